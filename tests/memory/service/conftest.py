from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.memory.owning import Owned


@pytest.fixture
async def owned(tmp_path: Path) -> AsyncIterator[Owned]:
    owned = Owned(tmp_path)
    await owned.journal.open()
    yield owned
    await owned.close()
