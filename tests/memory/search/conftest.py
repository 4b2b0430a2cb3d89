from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
async def index(home: Home) -> AsyncIterator[MemoryIndex]:
    made = home.index()
    yield made
    await made.close()


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The logged warnings and errors."""
    said: list[str] = []
    sink = logger.add(lambda message: said.append(str(message)), level="WARNING")
    yield said
    logger.remove(sink)
