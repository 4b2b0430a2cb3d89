"""The short version of the fault campaign on memory: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_killed_while_it_remembers_nothing_is_lost_and_nothing_is_learned_twice(
    tmp_path: Path,
) -> None:
    figures = short("bench.crash_memory", tmp_path)
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] == 3
