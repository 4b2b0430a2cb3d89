"""The short version of the fault campaign: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_killed_at_any_step_no_message_is_lost_and_no_effect_happens_twice(tmp_path: Path) -> None:
    figures = short("bench.crash", tmp_path)
    assert figures["failures"] == []
    assert figures["kills before each write, fsync, rename, send"] == 3
    assert figures["kills in the middle of each"] >= 2
    assert figures["kills after each"] >= 2
    assert figures["kills at random moments"] >= 2
