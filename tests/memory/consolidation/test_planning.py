"""The points at which a conversation may be parted, and how much of it goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.memory.consolidation.planning import (
    begins_turn,
    joints_of,
    newest_turn,
    pick_consolidation_boundary,
    pick_window_boundary,
)
from nanobot.messages import Message, ToolCall


def user(turn: str = "", origin: str = "") -> Message:
    return Message("user", "hello", turn_id=turn, origin=origin)


def answer(turn: str = "") -> Message:
    return Message("assistant", "yes", turn_id=turn)


def call(*ids: str, turn: str = "") -> Message:
    calls = tuple(ToolCall(name, "look", "{}") for name in ids)
    return Message("assistant", "", tool_calls=calls, turn_id=turn)


def result(of: str, turn: str = "") -> Message:
    return Message("tool", "found", tool_call_id=of, turn_id=turn)


def find_parted_calls(messages: Sequence[Message], cut: int) -> list[str]:
    """Return the results after a cut whose call (the nearest with that id) is before it."""
    called: dict[str, int] = {}
    parted = []
    for index, message in enumerate(messages):
        if message.role == "tool" and index >= cut > called.get(message.tool_call_id, index):
            parted.append(message.tool_call_id)
        for made in message.tool_calls:
            called[made.id] = index
    return parted


PLAIN = [user(), answer()] * 5
WITH_TOOLS = [user(), call("a"), result("a"), call("b"), result("b"), answer()]


@pytest.mark.parametrize(
    ("messages", "wanted", "least", "goes"),
    [
        ([], 10, 1, 0),
        (PLAIN, 1, 1, 2),
        (PLAIN, 20, 1, 2),
        (PLAIN, 21, 1, 4),
        (PLAIN, 1, 55, 6),
        (PLAIN, 80, 1, 8),
        (PLAIN, 81, 1, 8),
        (WITH_TOOLS, 1, 1, 1),
        (WITH_TOOLS, 11, 1, 3),
        (WITH_TOOLS, 31, 1, 5),
        (WITH_TOOLS, 51, 1, 6),
        (WITH_TOOLS, 1000, 1, 6),
        ([user(), answer(), *WITH_TOOLS], 60, 20, 2),
        ([user(), answer(), *WITH_TOOLS], 60, 21, 7),
        ([user()], 1, 1, 1),
    ],
)
def test_the_first_turn_at_which_enough_has_left_is_taken(
    messages: list[Message], wanted: int, least: int, goes: int
) -> None:
    costs = [10] * len(messages)
    assert pick_consolidation_boundary(messages, costs, wanted, least) == goes


def test_a_message_sent_into_a_running_turn_begins_no_turn() -> None:
    messages = [user("1"), call("a", turn="1"), result("a", "1"), user("1"), answer("1"), user("2")]
    assert newest_turn(messages) == 5
    assert pick_consolidation_boundary(messages, [10] * 6, 1) == 5


def test_a_scheduled_run_is_a_turn_and_a_remark_of_nanobot_is_none() -> None:
    assert begins_turn([answer("1"), user("2", "nanobot")], 1)
    assert not begins_turn([answer(), user(origin="nanobot")], 1)


@pytest.mark.parametrize(
    ("count", "window", "chunk", "goes"),
    [
        (99, 100, 50, 0),
        (100, 100, 50, 50),
        (100, 100, 51, 50),
        (100, 100, 1, 2),
        (40, 40, 20, 20),
        (400, 0, 50, 0),
        (400, 100, 50, 50),
    ],
)
def test_the_window_goes_in_chunks_rounded_to_a_turn(
    count: int, window: int, chunk: int, goes: int
) -> None:
    messages = ([user(), answer()] * (count // 2 + 1))[:count]
    assert pick_window_boundary(messages, window, chunk) == goes


def test_one_turn_alone_is_never_parted_by_count() -> None:
    messages = [user(), *[part for n in range(60) for part in (call(f"{n}"), result(f"{n}"))]]
    assert pick_window_boundary(messages, 100, 50) == 0
    assert pick_window_boundary([*messages, user()], 100, 50) == len(messages)


ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, database=None)
KINDS = (
    *(user(turn, origin) for turn in ("", "1", "2") for origin in ("", "nanobot")),
    *(answer(turn) for turn in ("", "1", "2")),
    *(call(*ids) for ids in ("a", "b", "ab", "abc", "bc")),
    *(result(of) for of in "abcabc"),
)
CONVERSATIONS = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.integers(0, 500)), max_size=24
).map(lambda parts: ([KINDS[kind] for kind, _ in parts], [cost for _, cost in parts]))
"""Turns of calls and results, whole and damaged, with repeated ids, and their costs."""


@ALWAYS_THE_SAME
@given(CONVERSATIONS, st.integers(-10, 5000), st.integers(0, 1000))
def test_a_boundary_always_progresses_and_never_parts_a_call_from_its_results(
    conversation: tuple[list[Message], list[int]], wanted: int, least: int
) -> None:
    messages, costs = conversation
    cut = pick_consolidation_boundary(messages, costs, wanted, least)
    assert (0 < cut <= len(messages)) if messages else cut == 0
    assert not find_parted_calls(messages, cut)


@ALWAYS_THE_SAME
@given(CONVERSATIONS, st.integers(1, 5000), st.integers(1, 1000))
def test_a_boundary_lets_enough_leave_and_not_a_turn_more(
    conversation: tuple[list[Message], list[int]], wanted: int, least: int
) -> None:
    messages, costs = conversation
    cut = pick_consolidation_boundary(messages, costs, wanted, least)
    gone, needed = sum(costs[:cut]), max(wanted, least)
    turns = [index for index in joints_of(messages) if begins_turn(messages, index)]
    assert cut == len(messages) or gone >= min(needed, least)
    assert all(sum(costs[:turn]) < needed for turn in turns if turn < cut)
    if sum(costs[: turns[-1]] if turns else []) >= needed:
        assert cut in turns


@ALWAYS_THE_SAME
@given(CONVERSATIONS, st.integers(1, 5000))
def test_repeating_it_comes_to_an_end(
    conversation: tuple[list[Message], list[int]], wanted: int
) -> None:
    messages, costs = conversation
    for _ in range(len(messages)):
        cut = pick_consolidation_boundary(messages, costs, wanted)
        messages, costs = messages[cut:], costs[cut:]
    assert not messages


@ALWAYS_THE_SAME
@given(CONVERSATIONS, st.integers(1, 20), st.integers(1, 20))
def test_the_window_is_parted_in_front_of_a_turn_only(
    conversation: tuple[list[Message], list[int]], window: int, chunk: int
) -> None:
    messages, _ = conversation
    cut = pick_window_boundary(messages, window, chunk)
    assert cut == 0 or begins_turn(messages, cut)
    assert not find_parted_calls(messages, cut)
