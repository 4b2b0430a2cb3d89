"""The short version of the kills around a send: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_a_reply_comes_twice_only_if_its_answer_was_not_read_and_never_a_third_time(
    tmp_path: Path,
) -> None:
    figures = short("bench.crash_sends", tmp_path)
    assert figures["failures"] == []
    for platform in ("Telegram", "the Cloud API"):
        assert figures[f"kills within 200 ms of an answer of {platform}"] >= 3
        assert figures[f"copies of a reply in whose send all processes died, {platform}"] == 2
