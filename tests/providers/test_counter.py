"""Token counts of prompts, as exact as a decision needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.providers.counter import (
    LEAST_RATIO,
    MOST_RATIO,
    Tiktoken,
    TokenCounter,
)
from tests.encodings import ENCODINGS


class Exact:
    """Exact counter with set results, which counts its calls."""

    def __init__(self, tokens: int | None) -> None:
        self.tokens, self.asked = tokens, 0

    async def __call__(self, text: str) -> int | None:
        self.asked += 1
        return self.tokens


def never() -> str:
    raise AssertionError("the text is not needed")


def text() -> str:
    return "text"


async def test_far_from_the_threshold_the_estimate_is_enough() -> None:
    exact = Exact(1)
    counter = TokenCounter(exact=exact)
    assert await counter.count(never, 500, 1_000) == 500
    assert await counter.count(never, 2_000, 1_000) == 2_000
    assert exact.asked == 0


async def test_close_to_it_tokens_are_counted_once_for_prompts_of_about_that_size() -> None:
    exact = Exact(1_100)
    counter = TokenCounter(exact=exact)
    assert await counter.count(text, 950, 1_000) == 1_100
    assert await counter.count(text, 950, 1_000) == 1_100
    assert await counter.count(text, 960, 1_000) == 1_112
    assert exact.asked == 1
    await counter.count(text, 1_050, 1_000)
    assert exact.asked == 2


async def test_what_was_counted_of_one_conversation_says_nothing_of_another() -> None:
    exact = Exact(1_100)
    counter = TokenCounter(exact=exact)
    assert await counter.count(text, 1_000, 1_000, "english") == 1_100
    exact.tokens = 900
    assert await counter.count(text, 1_000, 1_000, "chinese") == 900
    assert await counter.count(text, 1_000, 1_000, "english") == 1_100


async def test_without_an_encoding_the_estimate_decides_with_a_margin() -> None:
    assert await TokenCounter(exact=Exact(None)).count(text, 1_000, 1_000) == 1_050
    assert await TokenCounter().count(never, 1_000, 1_000) == 1_000


def test_what_the_provider_reports_moves_the_ratio_slowly_and_within_bounds() -> None:
    counter = TokenCounter()
    counter.calibrate(1_000, 1_500)
    assert counter.ratio == pytest.approx(1.1)
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


@pytest.mark.skipif(not ENCODINGS.is_dir(), reason=f"the encodings are not in {ENCODINGS}")
async def test_tiktoken_counts_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(ENCODINGS))
    assert await Tiktoken("a-model-it-does-not-know")("hello world " * 500) == 1_001


async def test_an_encoding_that_is_not_to_be_had_is_not_looked_for_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = Tiktoken("gpt-4o")
    assert await exact("hello") is None
    monkeypatch.setattr("sys.executable", "/nowhere")
    assert await exact("hello") is None


async def test_counts_that_are_wanted_at_once_cost_one_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, worker = tmp_path / "tried", tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\necho once >> '{tried}'\nexit 1\n")
    worker.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(worker))
    exact = Tiktoken("gpt-4o")
    assert await asyncio.gather(*(exact("hello") for _ in range(3))) == [None] * 3
    assert tried.read_text() == "once\n"
