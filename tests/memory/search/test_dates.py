"""Days that a question names, relative to today."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.days import Span, read_days

TODAY = date(2026, 3, 11)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("Who did I meet on 8 May 2023?", "2023-05-08", "2023-05-08"),
        ("dinner on May 3, 2023", "2023-05-03", "2023-05-03"),
        ("dinner on May 3rd", "2025-05-03", "2025-05-03"),
        ("on the 2nd of March", "2026-03-02", "2026-03-02"),
        ("on 2024-02-29", "2024-02-29", "2024-02-29"),
        ("what happened in May 2023", "2023-05-01", "2023-05-31"),
        ("what happened last May", "2025-05-01", "2025-05-31"),
        ("what happened in March", "2026-03-01", "2026-03-31"),
        ("what happened last March", "2025-03-01", "2025-03-31"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("back in 2022", "2022-01-01", "2022-12-31"),
        ("2023年5月8日", "2023-05-08", "2023-05-08"),
        ("2023年5月", "2023-05-01", "2023-05-31"),
        ("on 29 February", "2024-02-29", "2024-02-29"),
        ("a few days ago", "2026-03-05", "2026-03-09"),
        ("in the last ten days", "2026-03-01", "2026-03-11"),
        ("last weekend", "2026-03-07", "2026-03-08"),
        ("Monday last week", "2026-03-02", "2026-03-02"),
        ("in May last year", "2025-05-01", "2025-05-31"),
        ("16.01.24", "2024-01-16", "2024-01-16"),
        ("1/16/2024", "2024-01-16", "2024-01-16"),
        ("on Monday", "2026-03-09", "2026-03-09"),
    ],
)
def test_a_named_day_is_understood(question: str, first: str, last: str) -> None:
    found, *_ = read_days(question, TODAY)
    assert found == (Span(date.fromisoformat(first), date.fromisoformat(last)),)


@pytest.mark.parametrize(
    "question",
    ["May I ask something", "30.2.2023", "on 2023-02-30", "route 2023", "I will march on", "二月"],
)
def test_what_names_no_day_stays_in_the_question(question: str) -> None:
    assert read_days(question, TODAY) == ((), question, ())


def test_an_ambiguous_date_has_both_readings_except_with_dots() -> None:
    both = (Span.of(2024, 3, 5), Span.of(2024, 5, 3))
    assert read_days("on 5/3/2024", TODAY).spans == both
    assert read_days("on 5.3.2024", TODAY).spans == both[:1]


def test_last_monday_may_be_of_this_week_or_of_the_last() -> None:
    found = read_days("last Monday", TODAY).spans
    assert [one.first.day for one in found] == [9, 2]


def test_a_word_of_another_language_names_a_day_only_if_it_is_long() -> None:
    assert read_days("Was ist hier los?", TODAY, ("german",)).spans == ()
    assert read_days("hier", TODAY, ("french",)).spans
    assert read_days("vorgestern", TODAY).spans


def test_the_rest_of_the_question_is_without_the_date() -> None:
    _, rest, _ = read_days("What did Ann paint on 8 May 2023 in Rome?", TODAY)
    assert rest.split() == ["What", "did", "Ann", "paint", "in", "Rome?"]


@given(st.text(alphabet="0123456789 may-last,of年月日天weekago", max_size=40), st.dates())
def test_no_text_is_too_odd(text: str, today: date) -> None:
    found, *_ = read_days(text, today)
    assert all(span.first <= span.last for span in found)
