"""A stuck gateway reports it and gives no sign of life. With other problems, it continues."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from loguru import logger

from nanobot.bus.journal import QueueCounts
from nanobot.bus.sql_journal import Journal
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.gateway.channels import ChannelState
from nanobot.gateway.health import (
    BEAT_SECONDS,
    HealthMonitor,
    SystemdNotifier,
    Watchdog,
)
from nanobot.tasks import Background
from nanobot.testing import FakeClock

T = TypeVar("T")


class Manager:
    """A service manager that records its messages."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.setblocking(False)
        self.environ = {
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": "90000000",
            "WATCHDOG_PID": str(os.getpid()),
        }

    def read_new(self) -> list[str]:
        """Return the messages since the last call."""
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


class InStep(SqliteJournal):
    """A journal that answers at once, in step with the clock, or never while `hangs`."""

    def __init__(self, path: Path, *, hangs: bool = False) -> None:
        super().__init__(path, FakeClock())
        self.works = asyncio.Event()
        if not hangs:
            self.works.set()

    async def counts(self) -> QueueCounts:
        await self.works.wait()
        return QueueCounts()


def journal_of(tmp_path: Path, *, hangs: bool = False) -> InStep:
    """Return a journal whose counts are in step with the clock."""
    return InStep(tmp_path / "journal.db", hangs=hangs)


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    return journal_of(tmp_path)


@asynccontextmanager
async def beating(
    manager: Manager, clock: FakeClock, channel: ChannelState, journal: Journal
) -> AsyncIterator[None]:
    background = Background()
    monitor = HealthMonitor({channel.name: channel}, journal, clock, background)
    watchdog = Watchdog(monitor, SystemdNotifier(manager.environ), clock)
    background.start(watchdog.run_forever(), name="watchdog")
    await clock.until_sleeping()
    try:
        yield
    finally:
        watchdog.stop()
        await background.drain(0.0)


async def beats(clock: FakeClock, seconds: float) -> None:
    """Let time pass, with the health checks in it."""
    for _ in range(round(seconds / BEAT_SECONDS)):
        await clock.until_sleeping()
        await clock.advance(BEAT_SECONDS)
    await clock.until_sleeping()


async def test_a_dead_poll_ends_the_signs_of_life_within_90_seconds(
    manager: Manager, journal: SqliteJournal
) -> None:
    clock = FakeClock()
    channel = ChannelState("telegram", "running", heard_at=0.0, due=60.0)
    async with beating(manager, clock, channel, journal):
        await beats(clock, 50)
        assert manager.read_new().count("WATCHDOG=1") == 6
        await beats(clock, 30)
        said = manager.read_new()
        assert any(
            line.startswith("STATUS=failing: telegram: the platform has been silent")
            for line in said
        )
        await beats(clock, 60)
        assert "WATCHDOG=1" not in manager.read_new()
        channel.heard_at, channel.due = clock.monotonic(), clock.monotonic() + 60
        await beats(clock, 20)
        assert {"WATCHDOG=1", "STATUS=ok"} <= set(manager.read_new())


async def test_a_disk_that_hangs_is_told_of_at_once_and_ends_the_signs_of_life(
    manager: Manager, tmp_path: Path
) -> None:
    clock, hanging = FakeClock(), journal_of(tmp_path, hangs=True)
    logged: list[str] = []
    monitor = HealthMonitor({}, hanging, clock, Background())
    looking = asyncio.ensure_future(monitor.check_health())
    await clock.until_sleeping()
    await clock.advance(3)
    look = await looking
    assert (look.journal_answers, look.state) == (False, "ok")
    async with beating(manager, clock, ChannelState("cli", "running"), hanging):
        sink = logger.add(logged.append, level="ERROR", format="{message}")
        said: list[str] = []
        for _ in range(8):  # a socket holds ten lines that are not read
            await clock.advance(30)
            said += [line for line in manager.read_new() if line.startswith("STATUS=failing")]
        await clock.advance(30)
        later = manager.read_new()
        logger.remove(sink)
        assert logged == ["health: failing: the journal has not responded for 68 s\n"]
        assert len({*said, *later}) > len(said) > 1, "it is told for how long"
        assert "WATCHDOG=1" not in later
        hanging.works.set()
        await beats(clock, 20)
        assert "WATCHDOG=1" in manager.read_new()


async def test_a_look_that_breaks_gives_no_sign_of_life_and_the_next_one_may(
    manager: Manager, journal: SqliteJournal
) -> None:
    clock, channel = FakeClock(), ChannelState("telegram", "running", heard_at=0.0, due=60.0)
    async with beating(manager, clock, channel, journal):
        manager.read_new()
        channel.heard_at, channel.due = None, -1.0  # unknown for the channel
        await beats(clock, 20)
        assert "WATCHDOG=1" not in manager.read_new()
        channel.due = None
        await beats(clock, 20)
        assert "WATCHDOG=1" in manager.read_new()
