"""A home to guard, and the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from tests.security.homes import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "state").mkdir()
    return House(tmp_path / "state")


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What is logged, as `LEVEL: text`."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), format="{level}: {message}")
    yield lines
    logger.remove(sink)
