"""What a turn spent its time on: waiting, calls of the model, tools.

It is worked out from when messages came: a reply of the model is stamped when it is whole, a tool's
result when the tool ends, and how long each tool took is in the turn's report. The rest is the
model's, with the little that nanobot itself does in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from nanobot.messages import Message


class TurnStep(Struct, frozen=True):
    """`kind` is `waiting`, `model` or `tool`; `start` and `took` are in milliseconds, from when the
    message was sent."""

    kind: str
    name: str
    start: int
    took: int


def waterfall(
    messages: Sequence[Message], started_at: str, tool_milliseconds: Mapping[str, int]
) -> list[TurnStep]:
    """The steps of the turn that `messages` are of, in order; empty where its start is unknown."""
    try:
        started = datetime.fromisoformat(started_at)
    except ValueError:
        return []
    stamps = [(message, message.timestamp) for message in messages if message.timestamp]
    sent = next((at for message, at in stamps if message.role == "user"), started)
    begin = min(sent, started)
    steps = [TurnStep("waiting", "", 0, _ms(started - begin))] if begin < started else []
    reached = started
    for message, at in stamps:
        if message.role == "tool":
            took = tool_milliseconds.get(message.tool_call_id, 0)
            start = max(0, _ms(at - begin) - took)
            steps.append(TurnStep("tool", message.name, start, took))
        elif message.role == "assistant":
            start = _ms(reached - begin)
            steps.append(TurnStep("model", "", start, max(0, _ms(at - begin) - start)))
        else:
            continue
        reached = max(reached, at)
    return steps


def _ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)
