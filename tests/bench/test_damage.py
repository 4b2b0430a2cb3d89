"""The short version of the damage campaign: a real home, damaged in many ways."""

from __future__ import annotations

import pytest

from bench.damage import campaign

pytestmark = pytest.mark.campaign


async def test_a_home_with_a_damaged_file_starts_answers_and_reports_what_was_lost() -> None:
    figures = await campaign(short=True)
    assert figures["failures"] == []
    assert int(str(figures["damages"])) >= 20
