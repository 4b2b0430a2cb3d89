"""The world of one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.testing import FakeClock
from tests.memory.dream.support import START, World


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock) -> World:
    return World(tmp_path, clock)
