"""The short version of the fault campaign with Telegram: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_killed_between_telegram_and_the_agent_every_update_is_answered_in_order(
    tmp_path: Path,
) -> None:
    figures = short("bench.crash_telegram", tmp_path)
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] == 2
    assert figures["kills after 30 messages came meanwhile"] >= 1
    assert figures["kills beside a chat whose model hangs"] >= 1
    assert figures["kills while messages are edited"] >= 1
    assert figures["replies sent twice, while connections are reset for 3 s"] == 0
    assert figures["replies sent twice, while Telegram confirms nothing"] >= 4
    assert figures["kills in between"] >= 1
