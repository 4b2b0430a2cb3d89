"""The provider's counts correct the estimates of prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.providers.counter import LEAST_RATIO, MOST_RATIO, TokenCounter


def test_what_the_provider_reports_moves_the_ratio_slowly_and_within_bounds() -> None:
    counter = TokenCounter()
    counter.calibrate(1_000, 1_500)
    assert counter.ratio == pytest.approx(1.1)
    assert counter.tokens(1_000) == 1_100
    for _ in range(60):
        counter.calibrate(1_000, 100_000)
    assert MOST_RATIO - 0.01 < counter.ratio <= MOST_RATIO


def test_reports_that_say_little_are_ignored() -> None:
    counter = TokenCounter()
    counter.calibrate(100, 900)
    counter.calibrate(10_000, 0)
    assert counter.ratio == 1.0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-5, 10**7)), max_size=30))
def test_the_ratio_stays_within_its_bounds(reports: list[tuple[int, int]]) -> None:
    counter = TokenCounter()
    for estimated, reported in reports:
        counter.calibrate(estimated, reported)
        assert LEAST_RATIO <= counter.ratio <= MOST_RATIO
