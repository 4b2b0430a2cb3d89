"""The terminal's texts about a turn and its conversation."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nanobot.testing import FakeClock
from nanobot_cli.waiting import StatusLine, Waiting, greet, when
from nanobot_cli.wire import Delta, Reading, Reply, Taken, Tool, ToolDone

NOW = datetime(2026, 3, 3, 10, 0, tzinfo=UTC)
FACTS = {"model": "tiny-1", "context_percent": 31, "messages": 12, "tokens_today": 12_400}


async def test_the_seconds_of_each_wait_are_counted() -> None:
    clock = FakeClock()
    waiting = Waiting(clock)
    waiting.begin()
    assert waiting.describe(80) == "waiting"
    waiting.note(Taken())
    await clock.advance(8)
    assert waiting.describe(80) == "waiting for the model 8 s"
    waiting.note(Reading("", "reading 1,900 of 2,750 tokens"))
    await clock.advance(8)
    assert waiting.describe(80) == "reading 1,900 of 2,750 tokens"
    waiting.note(Reading("", ""))
    waiting.note(Tool("", "web_fetch example.org"))
    await clock.advance(10)
    waiting.note(Tool("", "read_file a.txt"))
    await clock.advance(2)
    assert waiting.describe(80) == "web_fetch example.org +1 12 s"
    assert waiting.describe(16) == "web_fet… +1 12 s"
    waiting.note(ToolDone("", "web_fetch example.org"))
    assert waiting.describe(80) == "read_file a.txt 2 s"
    waiting.note(ToolDone("", "read_file a.txt"))
    assert waiting.describe(80) == "waiting for the model"
    waiting.note(Delta("", "text"))
    await clock.advance(1)
    waiting.note(Delta("", "text"))
    assert waiting.describe(80) == "writing 1 s"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "tiny-1 · context 31 % · 12.4k tokens today · last turn 1.2 s"),
        (45, "tiny-1 · context 31 % · 12.4k tokens today"),
        (39, "tiny-1 · context 31 %"),
        (12, "tiny-1"),
        (4, "tin…"),
    ],
)
def test_the_status_line_leaves_out_parts_from_the_right(width: int, shown: str) -> None:
    status = StatusLine(FACTS)
    status.end_turn(Reply(milliseconds=1_234))
    assert status.text(width) == shown


def test_without_facts_the_status_line_is_empty() -> None:
    assert StatusLine({}).text(80) == ""
    assert StatusLine({**FACTS, "offline": True}).text(80) == "built-in offline model"


def test_a_chat_begins_with_what_it_continues_or_what_to_try() -> None:
    assert greet(FACTS | {"last": "2026-03-02T21:14:00+00:00"}, NOW) == [
        "nanobot · tiny-1",
        "continuing: 12 messages, last yesterday 21:14 · /new for a fresh chat",
    ]
    assert greet({"model": "tiny-1", "messages": 0}, NOW)[1].startswith("Try: ")
    assert "nanobot onboard" in greet({"model": "x", "offline": True}, NOW)[1]
    assert greet({}, NOW) == ["nanobot"]


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-03-03T09:05:00+00:00", "09:05"),
        ("2026-03-02T23:14:00+00:00", "yesterday 23:14"),
        ("2026-03-01T09:00:00+00:00", "Sun 2026-03-01 09:00"),
        ("soon", "soon"),
    ],
)
def test_a_time_is_as_short_as_it_can_be(moment: str, shown: str) -> None:
    assert when(moment, NOW) == shown
