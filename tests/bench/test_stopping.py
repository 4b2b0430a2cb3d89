"""The short version of the bench of stops: real processes, each ended by SIGTERM during a send."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_no_reply_is_seen_twice_or_lost_at_a_stop_within_its_send(tmp_path: Path) -> None:
    figures = short("bench.stopping", tmp_path)
    assert figures["promises broken (target 0)"] == 0, figures
    assert figures["replies seen twice, in 3 restarts"] == 0
