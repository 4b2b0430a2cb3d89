"""Tool calls and their results: an API refuses either without the other.

All of these go by position, not by id alone: some servers use the same ids again in every reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nanobot.clock import Clock
from nanobot.messages import Message, ToolCall

AT_ONCE = 8
"""Calls that run side by side."""

STOPPED = "stopped by the person before it finished; the outcome is unknown"


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last group that have no result yet, in order."""
    at = _last_group(messages)
    if at is None:
        return []
    answered = {message.tool_call_id for message in messages[at + 1 :]}
    return [call for call in messages[at].tool_calls if call.id not in answered]


def whole_groups(messages: Sequence[Message]) -> list[Message]:
    """The messages without a last group whose results are not complete."""
    return list(messages[: _last_group(messages)] if open_calls(messages) else messages)


def with_stopped_calls(messages: Sequence[Message], clock: Clock) -> list[Message]:
    """The messages, with a result for each call that has none."""
    stopped = [
        Message("tool", STOPPED, clock.now(), tool_call_id=call.id, name=call.name)
        for call in open_calls(messages)
    ]
    return [*messages, *stopped]


def _last_group(messages: Sequence[Message]) -> int | None:
    indices = range(len(messages) - 1, -1, -1)
    return next((index for index in indices if messages[index].tool_calls), None)


def groups_of(
    calls: Sequence[ToolCall], can_run_parallel: Callable[[str], bool]
) -> list[list[ToolCall]]:
    """Runs of calls that run side by side; every other call is a group of its own."""
    groups: list[list[ToolCall]] = []
    joins = False
    for call in calls:
        parallel = can_run_parallel(call.name)
        if parallel and joins and len(groups[-1]) < AT_ONCE:
            groups[-1].append(call)
        else:
            groups.append([call])
        joins = parallel
    return groups
