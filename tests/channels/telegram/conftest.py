"""A fake Telegram, a clock that stands still, and the core's side of the port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from loguru import logger

from tests.channels.telegram.support import RecordingHost, WatchedClock
from tests.doubles.telegram import FakeTelegram


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    """Telegram."""
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
def clock() -> WatchedClock:
    """Only the test moves it."""
    return WatchedClock()


@pytest.fixture
def host(tmp_path: Path, clock: WatchedClock) -> RecordingHost:
    """The core."""
    return RecordingHost(tmp_path, clock)


@pytest.fixture
def log() -> Iterator[list[str]]:
    """All that is logged, tracebacks with the values of variables included."""
    lines: list[str] = []
    sink = logger.add(lines.append, level=0, backtrace=True, diagnose=True)
    yield lines
    logger.remove(sink)
