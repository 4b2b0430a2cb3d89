"""A fake Telegram, a stopped clock, and the core's side of the port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from loguru import logger

from tests.channels.telegram.support import RecordingHost, WatchedClock
from tests.doubles.telegram import FakeTelegram


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
def clock() -> WatchedClock:
    """A clock that only the test moves."""
    return WatchedClock()


@pytest.fixture
def host(tmp_path: Path, clock: WatchedClock) -> RecordingHost:
    return RecordingHost(tmp_path, clock)


@pytest.fixture
def log() -> Iterator[list[str]]:
    """The whole log, including tracebacks with the values of variables."""
    lines: list[str] = []
    sink = logger.add(lines.append, level=0, backtrace=True, diagnose=True)
    yield lines
    logger.remove(sink)
