from __future__ import annotations

from pathlib import Path

import pytest

from tests.skills.support import SkillsKit


@pytest.fixture
def kit(tmp_path: Path) -> SkillsKit:
    return SkillsKit(tmp_path)
