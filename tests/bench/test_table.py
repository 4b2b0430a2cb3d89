"""The table that `make bench` writes."""

from __future__ import annotations

import pytest

from bench import doors
from bench.doors import DOORS, Cost
from bench.table import ROWS, Figure, Outcome, figures, markdown


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
    (figure,) = figures({"bench": "search", "search_p50_ms": 7.5})
    words = "a search among 50,000 messages, median CPU [ms]"
    assert figure == Figure(words, "7.500", "<= 8", met=True)


def test_a_bench_that_failed_is_shown_with_what_it_complains_about() -> None:
    result = {"bench": "crash", "promises broken (target 0)": 1, "failures": ["e1 | unanswered"]}
    outcome = Outcome("python -m bench.crash", 3.2, (result,), "exit code 1")
    text = markdown("Measured", [outcome])
    assert "**It failed**: exit code 1" in text
    assert "| promises broken | 1 **missed** | 0 |" in text
    assert "- e1 \\| unanswered" in text


def test_what_a_message_costs_comes_first_with_the_goals_of_several_benches() -> None:
    chats = {
        "bench": "chats",
        "gateway, CPU of its start [s], empty": 0.2,
        "gateway, CPU of its start [s], 10,000 chats (target <= 1.2 x empty)": 0.3,
    }
    benches = ({"bench": "http", "ratio (target <= 2.2)": 2.0}, chats)
    text = markdown("Measured", [Outcome("python -m bench.x", 1.0, (one,)) for one in benches])
    first = text.partition("## `python")[0]
    assert "| a turn over HTTP, relative to the minimum | 2.000 | <= 2.2 |" in first
    assert "| 10,000 chats: start, to empty | 1.500 **missed** | <= 1.2 |" in first


def test_every_door_in_that_table_is_measured() -> None:
    cost = [(Cost(1.0, 1.0, 0.0), Cost(2.0, 2.0, 3.0))]
    labels = [
        label for door in DOORS for label, _ in doors.figures(door, dict.fromkeys(door.kinds, cost))
    ]
    wanted = [row.figure for row in ROWS if row.bench == "doors"]
    assert len(wanted) == 8
    assert [sum(label.startswith(one) for label in labels) for one in wanted] == [1] * 8
