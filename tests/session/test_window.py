from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.messages import Message
from nanobot.session.window import Window, message_tokens
from tests.session.support import asks, reply, result, texts, user

ids = st.sampled_from(["a", "b", "c"])
any_message = st.one_of(
    st.builds(user, st.text(max_size=5)),
    st.builds(reply, st.text(max_size=5)),
    st.builds(lambda names: asks(*names), st.lists(ids, min_size=1, max_size=3)),
    st.builds(result, ids),
)
damaged = st.lists(any_message, max_size=40)


def tokens(message: Message) -> int:
    return 1 + len(message.content)


def assert_accepted_by_an_api(messages: list[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


@given(damaged, st.integers(0, 30), st.integers(0, 60))
def test_any_damage_yields_whole_groups_within_limits_from_a_user_turn(
    messages: list[Message], max_messages: int, max_tokens: int
) -> None:
    history = Window(messages).select(max_messages, max_tokens, tokens)
    assert_accepted_by_an_api(history)
    assert not history or history[0].role == "user"
    assert not max_messages or len(history) <= max_messages
    assert not max_tokens or sum(map(tokens, history)) <= max_tokens


@given(damaged, st.integers(0, 30), st.integers(0, 60))
def test_what_fits_is_never_left_out(
    messages: list[Message], max_messages: int, max_tokens: int
) -> None:
    window = Window(messages)
    everything = window.select(0, 0, tokens)
    history = window.select(max_messages, max_tokens, tokens)
    rest = everything[: len(everything) - len(history)]
    assert everything == rest + history
    turns = [at for at, message in enumerate(rest) if message.role == "user"]
    if turns:
        longer = everything[turns[-1] :]
        too_many = max_messages and len(longer) > max_messages
        assert too_many or (max_tokens and sum(map(tokens, longer)) > max_tokens)


@given(st.lists(damaged, max_size=5))
def test_messages_added_bit_by_bit_are_judged_as_if_at_once(batches: list[list[Message]]) -> None:
    window = Window()
    for batch in batches:
        window.extend(batch)
        window.select(3, 10, tokens)
    together = Window(message for batch in batches for message in batch)
    assert window.select(0, 0, tokens) == together.select(0, 0, tokens)
    assert window.select(4, 9, tokens) == together.select(4, 9, tokens)


@pytest.mark.parametrize(
    ("messages", "left"),
    [
        ([user("q"), asks("a", "b"), result("b"), result("a"), reply("x")], 5),
        ([user("q"), asks("a", "b"), result("a"), reply("x")], 2),
        ([user("q"), asks("a"), user("steered"), result("a")], 2),
        ([result("a"), user("q")], 1),
        ([user("q"), asks("a"), result("a"), result("a")], 3),
        ([user("q"), asks("a", "a"), result("a"), result("a")], 4),
        ([reply("x"), asks("a"), result("a")], 0),
        ([user("q"), asks("a")], 1),
    ],
)
def test_a_call_and_its_results_stay_together_or_go_together(
    messages: list[Message], left: int
) -> None:
    assert len(Window(messages).select(0, 0, tokens)) == left


def test_a_group_that_is_completed_later_comes_back() -> None:
    window = Window([user("q"), asks("a")])
    assert len(window.select(0, 0, tokens)) == 1
    window.extend([result("a")])
    assert len(window.select(0, 0, tokens)) == 3


def test_the_caller_may_change_the_list_it_gets() -> None:
    window = Window([user("q")])
    window.select(0, 0, tokens).clear()
    assert texts(window.select(0, 0, tokens)) == ["q"]


def test_calls_images_and_notices_count_as_tokens() -> None:
    plain = message_tokens(user("look"))
    assert message_tokens(Message("user", "look", media=("a.png", "b.pdf"))) > plain + 1000
    assert message_tokens(Message("user", "look", notice="added a fact")) > plain
    assert message_tokens(asks("a")) > message_tokens(reply(""))


def test_tokens_are_counted_once_for_each_message() -> None:
    counted: list[str] = []

    def noted(message: Message) -> int:
        counted.append(message.content)
        return 1

    window = Window([user("one"), user("two")])
    window.select(0, 10, noted)
    window.extend([user("three")])
    window.select(0, 10, noted)
    window.select(2, 2, noted)
    assert counted == ["one", "two", "three"]
