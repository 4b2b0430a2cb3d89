"""Headers of a person's messages in the prompt."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from nanobot.agent.prompt import header, late_notice
from nanobot.memory.guard import memory_notice

BERLIN = ZoneInfo("Europe/Berlin")
TODAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2026, 11, 21, 14, 3, tzinfo=BERLIN), "today, Sat 2026-11-21 14:03 +01:00"),
        (datetime(2026, 11, 21, 0, 0, tzinfo=BERLIN), "today, Sat 2026-11-21 00:00 +01:00"),
        (datetime(2026, 11, 20, 23, 59, tzinfo=BERLIN), "yesterday, Fri 2026-11-20 23:59 +01:00"),
        (datetime(2026, 11, 18, 9, 5, tzinfo=BERLIN), "3 days ago, Wed 2026-11-18 09:05 +01:00"),
        # The clocks went back on 25 October: 27 civil days, regardless of the hours.
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "27 days ago, Sun 2026-10-25 02:30 +02:00"),
        (
            datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
            "27 days ago, Sun 2026-10-25 02:30 +01:00",
        ),
        # The offset of the receipt is kept, even if the person has travelled since.
        (
            datetime(2026, 11, 20, 22, 0, tzinfo=timezone(-timedelta(hours=3, minutes=30))),
            "yesterday, Fri 2026-11-20 22:00 -03:30",
        ),
        # A wrong clock does not put a message into the future.
        (datetime(2026, 11, 22, 1, 0, tzinfo=BERLIN), "today, Sun 2026-11-22 01:00 +01:00"),
    ],
)
def test_a_header_says_how_long_ago_and_when_and_where(moment: datetime, expected: str) -> None:
    assert header(moment, None, "cli:direct", TODAY) == f"[{expected}, cli:direct]"


def test_a_header_says_what_is_new_since_the_one_before() -> None:
    before = datetime(2026, 11, 20, 23, 50, tzinfo=BERLIN)

    def after(**change: int) -> str:
        return header(before + timedelta(**change), before, "cli:direct", TODAY)

    assert after(minutes=9) == "[23:59]"
    assert after(seconds=59) == ""
    assert after(minutes=10).endswith("Sat 2026-11-21 00:00 +01:00, cli:direct]")
    elsewhere = before.astimezone(timezone(timedelta(hours=0)))
    moved = header(elsewhere, before, "cli:direct", TODAY)
    assert moved.endswith("Fri 2026-11-20 22:50 +00:00, cli:direct]")


def test_a_message_of_unknown_time_has_no_header() -> None:
    assert header(None, None, "cli:direct", TODAY) == ""


def test_a_notice_names_the_lines_that_came_and_went() -> None:
    before = "# Memory\n\n- likes tea\n- has a cat\n"
    after = '# Memory\n\n- likes tea\n- has a dog called "Rex"\n'
    assert memory_notice(before, after) == (
        '[memory changed: added "has a dog called \'Rex\'"; removed "has a cat"]'
    )


def test_headings_and_order_are_no_news() -> None:
    assert memory_notice("- a\n- b\n", "## New heading\n\n- b\n- a\n") == ""


def test_a_long_notice_is_cut_and_says_where_the_rest_is() -> None:
    notice = memory_notice("", "\n".join(f"- fact {n} {'x' * 300}" for n in range(20)))
    assert notice.count("added") == 8
    assert "and 12 more, see memory/MEMORY.md" in notice
    assert len(notice) < 1_600
    assert "\n" not in notice


@pytest.mark.parametrize(
    ("waited", "notice"),
    [
        (timedelta(minutes=5), "[late: sent 5 min before this answer]"),
        (timedelta(hours=3, minutes=5), "[late: sent 3 h 5 min before this answer]"),
        (timedelta(days=2, minutes=1), "[late: sent 2 d 1 min before this answer]"),
    ],
)
def test_what_waited_is_shown_with_its_age(waited: timedelta, notice: str) -> None:
    assert late_notice(waited) == notice
