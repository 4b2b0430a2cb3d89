"""A home to protect, and the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loguru import logger

from tests.security.homes import AccessHome


@pytest.fixture
def home() -> AccessHome:
    return AccessHome()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The log lines as `LEVEL: text`."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), format="{level}: {message}")
    yield lines
    logger.remove(sink)
