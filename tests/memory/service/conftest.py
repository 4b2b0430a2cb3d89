from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.memory.owned_memory import OwnedMemory


@pytest.fixture
async def owned(tmp_path: Path) -> AsyncIterator[OwnedMemory]:
    owned = OwnedMemory(tmp_path)
    await owned.journal.open()
    yield owned
    await owned.close()
