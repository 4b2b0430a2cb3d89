"""A turn's time by step, computed from the timestamps of its messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nanobot.gateway.operations import TurnStep, waterfall
from nanobot.messages import Message, ToolCall

START = datetime(2026, 3, 1, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_waiting_the_model_and_tools_side_by_side() -> None:
    asked = (ToolCall("c1", "slow", "{}"), ToolCall("c2", "quick", "{}"))
    messages = [
        Message("user", "go", at(-2)),
        Message("assistant", "", at(1), tool_calls=asked),
        Message("tool", "b", at(1.5), tool_call_id="c2", name="quick"),
        Message("tool", "a", at(3), tool_call_id="c1", name="slow"),
        Message("user", "and this", at(3.5)),
        Message("assistant", "done", at(4)),
    ]
    assert waterfall(messages, START.isoformat(), {"c1": 2000, "c2": 500}) == [
        TurnStep("waiting", "", 0, 2000),
        TurnStep("model", "", 2000, 1000),
        TurnStep("tool", "quick", 3000, 500),
        TurnStep("tool", "slow", 3000, 2000),
        TurnStep("model", "", 5000, 1000),
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert waterfall([], START.isoformat(), {}) == []
    assert waterfall([Message("assistant", "x", at(1))], "", {}) == []
    late = [Message("user", "from a clock that is ahead", at(9)), Message("assistant", "x", None)]
    assert waterfall(late, START.isoformat(), {}) == []
