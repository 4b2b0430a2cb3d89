"""Days that a question names, relative to today."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.search.days import Span, read_days

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


def test_the_rest_of_the_question_is_without_the_date() -> None:
    _, rest, _ = read_days("What did Ann paint on 8 May 2023 in Rome?", TODAY)
    assert rest.split() == ["What", "did", "Ann", "paint", "in", "Rome?"]


@given(st.text(alphabet="0123456789 may-last,of年月日天weekago", max_size=40), st.dates())
def test_no_text_is_too_odd(text: str, today: date) -> None:
    found, *_ = read_days(text, today)
    assert all(span.first <= span.last for span in found)
