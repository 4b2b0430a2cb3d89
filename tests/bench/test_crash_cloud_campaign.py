"""The short version of the fault campaign with the Cloud API: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_of_what_meta_took_without_saying_so_nobody_sees_a_third_copy(tmp_path: Path) -> None:
    figures = short("bench.crash_cloud", tmp_path)
    assert figures["failures"] == []
    assert figures["replies sent twice, with nothing killed"] >= 4
    assert figures["kills at random moments"] >= 1
