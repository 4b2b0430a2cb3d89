"""Choosing the weight of the ranking by meaning, without the conversation that checks it."""

from __future__ import annotations

import pytest

from bench.fusion import Rankings, leave_one_out
from bench.locomo import Question

ANSWER, OTHERS = 1, range(2, 12)


def make_rankings(*, meaning_is_right: bool) -> Rankings:
    """Return a question whose answer is only in one of the rankings, while the other fills ten
    places."""
    answer, others = [(ANSWER, 1.0)], [(seq, 1.0) for seq in OTHERS]
    words, meaning = (others, answer) if meaning_is_right else (answer, others)
    return Rankings(Question("?", 1, frozenset({ANSWER})), words, meaning)


def test_the_weight_is_chosen_on_the_others_and_checked_on_the_one() -> None:
    meaning, words = make_rankings(meaning_is_right=True), make_rankings(meaning_is_right=False)
    figures = leave_one_out([[meaning], [words, words], [words, words]])
    assert figures["1: weight chosen on the others"] == pytest.approx(0.9)
    assert figures["1: recall@10 with it"] == 0.0
    assert figures["2: recall@10 with it"] == 1.0
    assert figures["held out, all questions: recall@10"] == pytest.approx(0.8)


def test_among_equal_weights_the_shipped_one_is_chosen() -> None:
    sure = Rankings(Question("?", 1, frozenset({ANSWER})), [(ANSWER, 1.0)], [(ANSWER, 1.0)])
    figures = leave_one_out([[sure], [sure]])
    assert figures["1: weight chosen on the others"] == 1.0
