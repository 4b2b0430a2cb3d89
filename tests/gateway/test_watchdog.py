"""A gateway that is stuck says so and gives no sign of life; one that only has trouble goes on."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from loguru import logger

from nanobot.bus.sqlite_journal import MIGRATIONS
from nanobot.gateway.health import (
    BEAT_SECONDS,
    JournalDatabase,
    Notifier,
    Pulse,
    StallWatch,
    Vitals,
)
from nanobot.gateway.supervisor import ChannelState
from nanobot.tasks import Background
from nanobot.testing import FakeClock

T = TypeVar("T")


class Manager:
    """What systemd hears."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.setblocking(False)
        self.environ = {
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": "90000000",
            "WATCHDOG_PID": str(os.getpid()),
        }

    def heard(self) -> list[str]:
        """Since it was asked last."""
        said = []
        while True:
            try:
                said.append(self._socket.recv(4_096).decode())
            except BlockingIOError:
                return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


class Database:
    """A journal that answers at once, in step with the clock."""

    refusal = ""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        for migration in MIGRATIONS:
            self._connection.executescript(migration)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self._connection)


@pytest.fixture
def database() -> Database:
    return Database()


class HangingDisk:
    """A database that answers nobody until it is mended."""

    refusal = ""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database
        self.mended = asyncio.Event()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        await self.mended.wait()
        return await self._database.run(work)


@asynccontextmanager
async def beating(
    manager: Manager, clock: FakeClock, channel: ChannelState, database: JournalDatabase
) -> AsyncIterator[None]:
    background = Background()
    vitals = Vitals(lambda: [channel], database, clock, background)
    pulse = Pulse(vitals, Notifier.from_environment(manager.environ), clock)
    background.start(pulse.run_forever(), name="pulse")
    await clock.until_sleeping()
    try:
        yield
    finally:
        pulse.stop()
        await background.drain(0.0)


async def beats(clock: FakeClock, seconds: float) -> None:
    """Let time pass, with the looks that happen meanwhile."""
    for _ in range(round(seconds / BEAT_SECONDS)):
        await clock.until_sleeping()
        await clock.advance(BEAT_SECONDS)
    await clock.until_sleeping()


async def test_a_dead_poll_ends_the_signs_of_life_within_90_seconds(
    manager: Manager, database: Database
) -> None:
    clock = FakeClock()
    channel = ChannelState("telegram", "running", heard_at=0.0, due=60.0)
    async with beating(manager, clock, channel, database):
        await beats(clock, 50)
        assert manager.heard().count("WATCHDOG=1") == 6
        await beats(clock, 30)
        said = manager.heard()
        assert any(line.startswith("STATUS=failing: telegram: nothing was heard") for line in said)
        await beats(clock, 60)
        assert "WATCHDOG=1" not in manager.heard()
        channel.heard_at, channel.due = clock.monotonic(), clock.monotonic() + 60
        await beats(clock, 20)
        assert {"WATCHDOG=1", "STATUS=ok"} <= set(manager.heard())


async def test_a_disk_that_hangs_is_told_of_at_once_and_ends_the_signs_of_life(
    manager: Manager, database: Database
) -> None:
    clock, disk = FakeClock(), HangingDisk(database)
    logged: list[str] = []
    vitals = Vitals(tuple, disk, clock, Background())
    looking = asyncio.ensure_future(vitals.look())
    await clock.until_sleeping()
    await clock.advance(3)
    look = await looking
    assert (look.journal_answers, look.health.state) == (False, "ok")
    async with beating(manager, clock, ChannelState("cli", "running"), disk):
        sink = logger.add(logged.append, level="ERROR", format="{message}")
        await clock.advance(120)
        await clock.advance(120)
        said = [line for line in manager.heard() if line.startswith("STATUS=failing")]
        await clock.advance(30)
        later = manager.heard()
        logger.remove(sink)
        assert logged == ["health: failing: the journal has not answered for 68 s\n"]
        assert len({*said, *later}) > len(said) > 1, "it is told for how long"
        assert "WATCHDOG=1" not in later
        disk.mended.set()
        await beats(clock, 20)
        assert "WATCHDOG=1" in manager.heard()


def test_an_event_loop_that_is_stuck_is_told_of_with_the_place() -> None:
    told = threading.Event()
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        told.set()

    sink = logger.add(keep, level="ERROR", format="{message}")
    watch = StallWatch(0.01)
    watch.start()
    try:
        assert told.wait(10), "it was not noticed that nothing happens here"
    finally:
        watch.stop()
        logger.remove(sink)
    assert "the event loop has not turned for" in lines[0]
    assert "test_an_event_loop_that_is_stuck" in lines[0]


async def test_a_look_that_breaks_gives_no_sign_of_life_and_the_next_one_may(
    manager: Manager, database: Database
) -> None:
    clock, channel = FakeClock(), ChannelState("telegram", "running", heard_at=0.0, due=60.0)
    async with beating(manager, clock, channel, database):
        manager.heard()
        channel.heard_at, channel.due = None, -1.0  # which no channel says
        await beats(clock, 20)
        assert "WATCHDOG=1" not in manager.heard()
        channel.due = None
        await beats(clock, 20)
        assert "WATCHDOG=1" in manager.heard()
