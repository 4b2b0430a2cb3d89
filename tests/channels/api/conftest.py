from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.api.support import Api


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """A home with the API turned on."""
    return Api(tmp_path / "home")
