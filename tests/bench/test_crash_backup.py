"""The short version of the fault campaign on backups: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_killed_while_one_is_made_or_restored_there_is_never_half_of_anything(
    tmp_path: Path,
) -> None:
    figures = short("bench.crash_backup", tmp_path)
    assert figures["failures"] == []
    assert figures["times that a restore was cut short"] > 0
