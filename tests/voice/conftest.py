"""Programs in this machine's sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.security.sandbox import SandboxFinder
from nanobot.voice.programs import Programs


@pytest.fixture
def home(disk_path: Path) -> Path:
    """Nanobot's own folder, with private content."""
    home = disk_path / "home"
    home.mkdir()
    (home / "secrets.env").write_text("KEY=canary")
    return home


@pytest.fixture
def programs(home: Path) -> Programs:
    """The runner of the programs."""
    return Programs(SandboxFinder("auto", home), home / "state" / "voice")
