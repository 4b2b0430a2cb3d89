"""A clock, a disk that can fail, and managers of one folder, each like a separate process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.session.support import FailingDisk, Open


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
async def managed(folder: Path, clock: FakeClock, disk: FailingDisk) -> AsyncIterator[Open]:
    """Yield a function that opens managers of one folder, each like a separate process."""
    made: list[SessionManager] = []

    def make(**options: object) -> SessionManager:
        made.append(SessionManager(folder, clock, files=disk, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    disk.broken.clear()
    for manager in made:
        await manager.close()


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Yield the logged warnings and errors."""
    heard: list[str] = []
    sink = logger.add(lambda entry: heard.append(str(entry)), level="WARNING", format="{message}")
    yield heard
    logger.remove(sink)
