"""The short version of the fault campaign for a stopped answer: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_a_stopped_text_survives_a_kill_after_the_stop_once_with_its_note(tmp_path: Path) -> None:
    figures = short("bench.crash_stop", tmp_path)
    assert figures["failures"] == []
    assert figures["kills around the stop"] >= 5
