"""One conversation with the offline model in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.providers.offline.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """All file tools, an untouched memory."""
    return Bench(tmp_path)
