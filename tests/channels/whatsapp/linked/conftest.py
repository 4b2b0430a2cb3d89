"""A folder with a short path (for sockets), a stopped clock, and the core."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot.testing.clock import FakeClock
from tests.channels.whatsapp.linked.helpers import Core
from tests.scratch import scratch


@pytest.fixture
def folder() -> Iterator[Path]:
    """The adapter's folder."""
    with scratch() as folder:
        yield folder


@pytest.fixture
def clock() -> FakeClock:
    """A clock that only the test moves."""
    return FakeClock()


@pytest.fixture
def core(folder: Path, clock: FakeClock) -> Core:
    return Core(folder, clock)
