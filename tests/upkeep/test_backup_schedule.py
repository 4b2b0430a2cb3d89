"""Scheduled backups: their times, their number, and one notice about an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.cron.schedule import parse
from nanobot.tasks import Background
from nanobot.testing import FakeClock
from nanobot.upkeep.backups import (
    BackupMaker,
    BackupOrder,
    exclusive_backup,
    list_backups,
)
from nanobot.upkeep.snapshot import BackupOperations, Snapshot
from tests.upkeep.homes import build_home, write


@dataclass
class HourlyBackups:
    """A running routine that makes a backup each hour at half past."""

    clock: FakeClock
    folder: Path
    routine: BackupMaker
    told: list[str]

    async def passes(self, hours: float) -> None:
        """Advance the clock minute by minute, as the routine waits."""
        for _ in range(round(hours * 60)):
            await self.clock.until_sleeping()
            await self.clock.advance(60)
        await self.clock.until_sleeping()

    @property
    def made(self) -> list[datetime]:
        """The times of the backups, oldest first."""
        return [one.made_at for one in reversed(list_backups(self.folder))]


@contextlib.asynccontextmanager
async def living(home: Path, clock: FakeClock, folder: Path) -> AsyncIterator[HourlyBackups]:
    journal = SqliteJournal(home / "state" / "journal.db", clock)
    await journal.open()
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    operations = BackupOperations(home, journal, clock, live=True)
    schedule = parse("30 * * * *")
    work = Background()
    routine = BackupMaker(home, folder, BackupOrder(), operations, work, schedule, 2, tell)
    running = asyncio.ensure_future(routine.run_forever())
    try:
        yield HourlyBackups(clock, folder, routine, told)
    finally:
        routine.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await journal.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return build_home(tmp_path / "home")


async def test_one_is_made_each_time_it_is_due_and_the_oldest_go(home: Path) -> None:
    clock = FakeClock()
    async with living(home, clock, home / "backups") as life:
        await life.passes(0.4)
        assert life.made == []
        await life.passes(2.6)
        last = clock.now() - timedelta(minutes=30)
        assert life.made == [last - timedelta(hours=1), last]
        assert life.told == []


async def test_one_that_was_missed_is_made_soon_after_the_start(home: Path) -> None:
    clock = FakeClock()
    write(home / "backups" / "nanobot-20260228T033000Z.tar.gz", "two days old")
    async with living(home, clock, home / "backups") as life:
        await life.passes(0.05)
        assert len(life.made) == 2
        await life.passes(0.2)
        assert len(life.made) == 2


@pytest.mark.parametrize("hours", [0.2, 1.2], ids=["before the first", "after the first"])
async def test_a_clock_that_was_ahead_and_is_set_right_holds_none_up(
    home: Path, hours: float
) -> None:
    clock = FakeClock()
    async with living(home, clock, home / "backups") as life:
        await life.passes(hours)
        clock.jump(-timedelta(days=3).total_seconds())
        for passing in (1.6, 1, 1):
            before = clock.now()
            await life.passes(passing)
            assert [one for one in life.made if before < one <= clock.now()]
        assert life.routine.problem == ""


async def test_one_that_a_person_is_making_is_waited_for_and_is_no_trouble(home: Path) -> None:
    async with living(home, FakeClock(), home / "backups") as life:
        with exclusive_backup(home):
            await life.passes(0.6)
            assert (life.made, life.told, life.routine.problem) == ([], [], "")
        await life.passes(0.1)
        assert len(life.made) == 1


async def test_trouble_is_told_once_and_tried_again_each_hour(home: Path, tmp_path: Path) -> None:
    clock, folder = FakeClock(), tmp_path / "disk" / "backups"
    in_the_way = write(tmp_path / "disk", "not mounted")
    async with living(home, clock, folder) as life:
        await life.passes(1.6)
        assert len(life.told) == 1
        assert "The scheduled backup failed: " in life.told[0]
        assert str(folder.parent) in life.routine.problem
        in_the_way.unlink()
        await life.passes(1.1)
        assert len(life.made) == 1
        assert life.routine.problem == ""
        assert len(life.told) == 1


async def test_who_asks_while_a_snapshot_is_taken_for_one_who_is_gone_gets_a_whole_one(
    home: Path,
) -> None:
    clock = FakeClock()
    journal = SqliteJournal(home / "state" / "journal.db", clock)
    await journal.open()
    operations = BackupOperations(home, journal, clock, live=True)
    await asyncio.gather(*(operations.take() for _ in range(4)))
    sizes = {item.source: item.size for item in Snapshot.load(home).items if item.kind == "file"}
    assert sizes
    assert sizes == {source: (home / source).stat().st_size for source in sizes}
    await journal.close()
