"""A workspace made from the real template, a clock that stands still, and a whole home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot.memory.documents import install_template, load_template
from nanobot.memory.gitstore import GitStore
from nanobot.memory.store import MemoryStore
from nanobot.security.paths import Root
from nanobot.testing import FakeClock
from tests.memory.homes import RealHome, living


@dataclass
class StoppedClock:
    """A time that moves only when told."""

    time: datetime = datetime(2026, 11, 21, 14, 3, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        return


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    install_template(folder)
    return folder


@pytest.fixture
def versions(tmp_path: Path, workspace: Path, clock: StoppedClock) -> GitStore:
    return GitStore(tmp_path / "state", Root(workspace), clock)


@pytest.fixture
def store(versions: GitStore) -> MemoryStore:
    return MemoryStore(versions, load_template())


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[RealHome]:
    async with living(tmp_path / "home", FakeClock()) as made:
        yield made
