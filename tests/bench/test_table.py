"""The table that `make bench` writes."""

from __future__ import annotations

import pytest

from bench.table import Figure, Outcome, figures, markdown


@pytest.mark.parametrize(
    ("label", "value", "met"),
    [
        ("ready [s] (target <= 0.8)", 0.7, True),
        ("ready [s] (target <= 0.8)", 0.9, False),
        ("turns a second (target >= 1,000)", 999, False),
        ("promises broken (target 0)", 0, True),
        ("memory [MiB/h] (target <= 1)", "+1.20 ± 0.10", False),
        ("messages", 12, None),
    ],
)
def test_what_is_wanted_stands_in_the_label_and_is_compared(
    label: str, value: object, met: bool | None
) -> None:
    (figure,) = figures({"bench": "one", label: value})
    assert (figure.met, "target" in figure.label) == (met, False)


def test_names_that_machines_read_are_put_into_words() -> None:
    (figure,) = figures({"bench": "search", "search_p50_ms": 12.0})
    words = "a search among 50,000 messages, median [ms]"
    assert figure == Figure(words, "12.000", "<= 15", met=True)


def test_a_bench_that_failed_is_shown_with_what_it_complains_about() -> None:
    result = {"bench": "crash", "promises broken (target 0)": 1, "failures": ["e1 | unanswered"]}
    outcome = Outcome("python -m bench.crash", 3.2, (result,), "exit code 1")
    text = markdown("Measured", [outcome])
    assert "**It failed**: exit code 1" in text
    assert "| promises broken | 1 **missed** | 0 |" in text
    assert "- e1 \\| unanswered" in text
