"""A folder with a short path (sockets lie in it), a clock that stands still, and the core."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot.testing.clock import FakeClock
from tests.channels.whatsapp.linked.helpers import Core
from tests.scratch import scratch


@pytest.fixture
def folder() -> Iterator[Path]:
    """The adapter's own."""
    with scratch() as folder:
        yield folder


@pytest.fixture
def clock() -> FakeClock:
    """Only the test moves it."""
    return FakeClock()


@pytest.fixture
def core(folder: Path, clock: FakeClock) -> Core:
    """The core."""
    return Core(folder, clock)
