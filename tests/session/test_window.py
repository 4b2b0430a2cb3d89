from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.messages import Message
from nanobot.session.session import MessageWindow
from tests.session.support import asks, reply, result, texts, user

ids = st.sampled_from(["a", "b", "c"])
any_message = st.one_of(
    st.builds(user, st.text(max_size=5)),
    st.builds(reply, st.text(max_size=5)),
    st.builds(lambda names: asks(*names), st.lists(ids, min_size=1, max_size=3)),
    st.builds(result, ids),
)
damaged = st.lists(any_message, max_size=40)


def assert_accepted_by_an_api(messages: list[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


@given(damaged)
def test_any_damage_yields_whole_groups_from_a_user_turn(messages: list[Message]) -> None:
    history = MessageWindow(messages).messages()
    assert_accepted_by_an_api(history)
    assert not history or history[0].role == "user"


@given(st.lists(damaged, max_size=5))
def test_messages_added_bit_by_bit_are_judged_as_if_at_once(batches: list[list[Message]]) -> None:
    window = MessageWindow()
    for batch in batches:
        window.extend(batch)
        window.messages()
    together = MessageWindow(message for batch in batches for message in batch)
    assert window.messages() == together.messages()


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
    assert len(MessageWindow(messages).messages()) == left


def test_a_group_that_is_completed_later_comes_back() -> None:
    window = MessageWindow([user("q"), asks("a")])
    assert len(window.messages()) == 1
    window.extend([result("a")])
    assert len(window.messages()) == 3


def test_the_caller_may_change_the_list_it_gets() -> None:
    window = MessageWindow([user("q")])
    window.messages().clear()
    assert texts(window.messages()) == ["q"]
