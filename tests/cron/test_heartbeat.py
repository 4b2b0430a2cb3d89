"""The heartbeat: at its times, in its hours, never twice, and only with tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import time, timedelta

import pytest

from nanobot.cron.heartbeat import ActiveHours, Heartbeat, has_tasks
from nanobot.errors import StorageError
from nanobot.testing import FakeClock
from tests.cron.support import Inbox, berlin

TEMPLATE = "# Heartbeat\n\nThings to look at.\n\n(nothing to do)\n"
ASKS = f"{TEMPLATE}- Is the oven off?\n"


@dataclass
class HeartbeatKit:
    """A heartbeat with its input and its messages."""

    clock: FakeClock
    text: str = ASKS
    chat: str = "telegram:7:3"
    inbox: Inbox = field(default_factory=Inbox)
    busy: bool = False
    broken: bool = False

    @contextlib.asynccontextmanager
    async def open(self, every: timedelta = timedelta(minutes=30)) -> AsyncIterator[None]:
        heart = Heartbeat(
            self._read,
            TEMPLATE,
            lambda: self.chat,
            self.inbox.publish,
            self.clock,
            every,
            ActiveHours(time(8), time(22)),
            self._is_busy,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(heart.run_forever())
            try:
                yield
            finally:
                heart.stop()

    async def wait(self, minutes: int) -> None:
        for _ in range(minutes):
            await self.clock.until_sleeping()
            await self.clock.advance(60)
        await self.clock.until_sleeping()

    @property
    def beats(self) -> list[str]:
        return [event.removeprefix("heartbeat:") for event in self.inbox.offered]

    def _read(self) -> str:
        if self.broken:
            raise StorageError("HEARTBEAT.md", "no")
        return self.text

    async def _is_busy(self, key: str) -> bool:
        return self.busy and key == "heartbeat:owner"


async def test_it_beats_at_fixed_times_whenever_nanobot_started() -> None:
    room = HeartbeatKit(berlin("2026-03-02T09:17"))
    async with room.open():
        await room.wait(20)
    async with room.open():
        await room.wait(25)
    assert room.beats == ["2026-03-02T08:30:00+00:00", "2026-03-02T09:00:00+00:00"]
    message = room.inbox.messages[0]
    assert (message.channel, message.chat_id, message.thread_id) == ("telegram", "7", "3")
    assert (message.session_key, message.origin.initiator) == ("heartbeat:owner", "heartbeat")
    assert (message.origin.scope, message.origin.mark, message.origin.job) == (
        "owner",
        "nanobot",
        "",
    )
    assert "Mon 2026-03-02 09:30 +01:00" in message.content
    assert "- Is the oven off?" in message.content
    assert "answer exactly [silent]" in message.content


async def test_it_keeps_to_its_hours() -> None:
    room = HeartbeatKit(berlin("2026-03-02T21:15"))
    async with room.open():
        await room.wait(60)
    assert room.beats == ["2026-03-02T20:30:00+00:00"]


async def test_what_comes_outside_of_its_hours_is_one_when_they_begin() -> None:
    room = HeartbeatKit(berlin("2026-03-02T07:30"))
    async with room.open(timedelta(days=1)):
        await room.wait(45)
        assert room.beats == ["2026-03-02T00:00:00+00:00"]
        assert room.inbox.messages[0].timestamp == berlin("2026-03-02T08:00").now()
    async with room.open(timedelta(days=1)):
        await room.wait(5)
    assert len(room.beats) == 1


async def test_it_waits_for_the_last_one_to_end() -> None:
    room = HeartbeatKit(berlin("2026-03-02T09:15"), busy=True)
    async with room.open():
        await room.wait(30)
        room.busy = False
        await room.wait(30)
    assert room.beats == ["2026-03-02T09:00:00+00:00"]


async def test_a_clock_that_jumps_makes_no_beat_come_twice() -> None:
    room = HeartbeatKit(berlin("2026-03-02T09:15"))
    async with room.open():
        await room.wait(16)
        room.clock.jump(3_600)
        await room.wait(1)
        room.clock.jump(-7_200)
        await room.wait(30)
        room.clock.jump(86_400 * 30)
        await room.wait(1)
        room.clock.jump(-86_400 * 30)
        await room.wait(60)
    beats = [message.event_id.partition(":")[2] for message in room.inbox.messages]
    assert beats == [
        "2026-03-02T08:30:00+00:00", "2026-03-02T09:30:00+00:00", "2026-04-01T08:00:00+00:00",
        "2026-03-02T09:00:00+00:00",
    ]  # fmt: skip


@pytest.mark.parametrize("nothing", ["text", "chat"])
async def test_without_anything_to_do_or_anybody_to_tell_there_is_none(nothing: str) -> None:
    room = HeartbeatKit(berlin("2026-03-02T09:15"))
    setattr(room, nothing, TEMPLATE if nothing == "text" else "")
    async with room.open():
        await room.wait(20)
    assert room.beats == []


async def test_a_file_that_cannot_be_read_costs_one_beat() -> None:
    room = HeartbeatKit(berlin("2026-03-02T09:15"), broken=True)
    async with room.open():
        await room.wait(20)
        room.broken = False
        await room.wait(30)
    assert room.beats == ["2026-03-02T09:00:00+00:00"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", False),
        (TEMPLATE, False),
        (TEMPLATE.replace("\n", "\r\n"), False),
        ("# Mine\n\n<!-- - check\nmail -->\n- \n- [ ]\n* [x] done\n", False),
        (ASKS, True),
        ("check the mail", True),
        ("- [ ] check the mail", True),
    ],
)
def test_what_heartbeat_md_asks_for(text: str, says: bool) -> None:
    assert has_tasks(text, TEMPLATE) is says


@pytest.mark.parametrize(
    ("start", "end", "inside", "outside"),
    [
        (8, 22, ["08:00", "21:59"], ["07:59", "22:00"]),
        (22, 6, ["22:00", "00:00", "05:59"], ["06:00", "21:59"]),
        (8, 0, ["08:00", "23:59"], ["00:00", "07:59"]),
        (0, 0, ["00:00", "23:59"], []),
    ],
)
def test_active_hours(start: int, end: int, inside: list[str], outside: list[str]) -> None:
    hours = ActiveHours(time(start), time(end))
    moments = {text: berlin(f"2026-03-02T{text}").now() for text in inside + outside}
    assert [text for text, moment in moments.items() if hours.cover(moment)] == inside
