"""The short version of the fault campaign on jobs, helpers, approvals and commands: real processes,
really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_killed_while_things_happen_by_themselves_each_happens_once_or_is_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    figures = short("bench.crash_routines", tmp_path)
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] == 2
