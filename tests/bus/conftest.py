"""Fixtures: a clock, a path for a journal, and an open journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.testing import FakeClock
from tests.bus.support import open_journal


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path, clock: FakeClock) -> AsyncIterator[SqliteJournal]:
    async with open_journal(path, clock) as journal:
        yield journal
