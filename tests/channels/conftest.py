"""Homes are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scratch import scratch


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with scratch() as path:
        yield path
