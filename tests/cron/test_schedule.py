"""Due times by tables and by properties, mainly around clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.cron.schedule import Schedule, ScheduleError, parse

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [
    BERLIN,
    ZoneInfo("America/New_York"),
    ZoneInfo("Australia/Lord_Howe"),  # moves by half an hour
    ZoneInfo("Asia/Beirut"),  # leaves out midnight
    ZoneInfo("Asia/Kathmandu"),
    ZoneInfo("UTC"),
]
EXPRESSIONS = [
    "0 4 * * *",
    "30 2 * * *",
    "*/30 2 * * *",
    "0 */2 * * *",
    "15 0-3 * * *",
    "*/7 * * * *",
    "0 0 * * *",
    "0 9 1 * *",
    "0 9 * * MON-FRI",
    "0 12 29 2 *",
]


def due(schedule: Schedule, start: str, times: int, zone: ZoneInfo = BERLIN) -> list[str]:
    """Return the next `times` due times after `start` (local, in `zone`), with their offsets."""
    moment = datetime.fromisoformat(start).replace(tzinfo=zone)
    found = []
    for _ in range(times):
        following = schedule.next_after(moment, zone)
        assert following is not None
        moment = following
        found.append(moment.isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("every 24h", "2026-03-10T09:00", "2026-03-11T09:00+01:00"),
        ("every 90m", "2026-03-10T09:00", "2026-03-10T10:30+01:00"),
        ("Every 1h30m", "2026-03-10T09:00", "2026-03-10T10:30+01:00"),
        ("every 7 d", "2026-03-10T09:00", "2026-03-17T09:00+01:00"),
        ("0 4 * * *", "2026-03-10T04:00", "2026-03-11T04:00+01:00"),
        ("0 4 * * *", "2026-03-10T03:59", "2026-03-10T04:00+01:00"),
        ("*/15 9-17 * * mon-fri", "2026-03-13T17:45", "2026-03-16T09:00+01:00"),
        ("0 9 * * 0", "2026-03-10T09:00", "2026-03-15T09:00+01:00"),
        ("0 9 * * 7", "2026-03-10T09:00", "2026-03-15T09:00+01:00"),
        ("0 9 13 * 5", "2026-03-10T09:00", "2026-03-13T09:00+01:00"),
        ("0 0 29 2 *", "2026-03-10T09:00", "2028-02-29T00:00+01:00"),
        ("at 2026-12-01T09:00", "2026-03-10T09:00", "2026-12-01T09:00+01:00"),
        ("at 2026-12-01 09:00", "2026-03-10T09:00", "2026-12-01T09:00+01:00"),
        ("at 2026-12-01T09:00Z", "2026-03-10T09:00", "2026-12-01T10:00+01:00"),
    ],
)
def test_the_next_due_time(text: str, start: str, expected: str) -> None:
    assert due(parse(text), start, 1) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "soon",
        "every",
        "every day",
        "every 0m",
        "every -5m",
        "every 5",
        "every 99999w",
        "every 999999999w999999999w",
        "at",
        "at noon",
        "at 2026-13-01T09:00",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "* 24 * * *",
        "0 0 31 2 *",
        "*/0 * * * *",
        "a b c d e",
    ],
)
def test_a_schedule_that_cannot_be_read_is_explained_with_an_example(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "every 24h" in caught.value.for_people()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # On 29 March 2026 clocks in Berlin go from 2:00 to 3:00.
        ("30 2 * * *", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        ("*/30 2 * * *", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
        ("0 2,3 * * *", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
        ("0 */2 * * *", ["2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"]),
        ("at 2026-03-29T02:30:20", ["2026-03-29T03:00+02:00"]),
        ("15 * * * *", ["2026-03-29T01:15+01:00", "2026-03-29T03:15+02:00"]),
    ],
)
def test_a_time_that_the_clocks_leave_out_is_due_once_right_after(
    text: str, expected: list[str]
) -> None:
    start = "2026-03-29T00:30" if "15" in text else "2026-03-29T01:00"
    assert due(parse(text), start, len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # On 25 October 2026 clocks in Berlin go from 3:00 back to 2:00.
        ("30 2 * * *", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        (
            "*/30 2 * * *",
            ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-26T02:00+01:00"],
        ),
        ("at 2026-10-25T02:30", ["2026-10-25T02:30+02:00"]),
        (
            "30 * * * *",
            ["2026-10-25T01:30+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00"],
        ),
    ],
)
def test_a_time_that_comes_twice_is_due_once(text: str, expected: list[str]) -> None:
    assert due(parse(text), "2026-10-25T01:00", len(expected)) == expected


def test_asked_within_the_repeated_hour_the_first_one_is_past() -> None:
    second = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)
    following = parse("30 2 * * *").next_after(second, BERLIN)
    assert following is not None
    assert following.isoformat() == "2026-10-26T02:30:00+01:00"
    assert parse("at 2026-10-25T02:30").next_after(second, BERLIN) is None


def test_a_time_once_passed_is_never_due_again() -> None:
    schedule = parse("at 2026-12-01T09:00")
    assert schedule.next_after(datetime(2026, 12, 1, 9, tzinfo=BERLIN)) is None


CHANGES = [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)]
MOMENTS = st.integers(0, 7 * 366 * 86_400).map(
    lambda seconds: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
) | st.sampled_from(CHANGES).flatmap(
    lambda day: st.integers(-3_600, 5 * 3_600).map(lambda seconds: day + timedelta(seconds=seconds))
)


@given(moment=MOMENTS, text=st.sampled_from(EXPRESSIONS), zone=st.sampled_from(ZONES))
def test_what_comes_next_is_strictly_later_and_a_time_that_clocks_show(
    moment: datetime, text: str, zone: ZoneInfo
) -> None:
    following = parse(text).next_after(moment, zone)
    assert following is not None
    assert following.astimezone(UTC) > moment
    shown = following.astimezone(UTC).astimezone(zone)
    assert shown.replace(tzinfo=None) == following.replace(tzinfo=None)


@given(moment=MOMENTS, text=st.sampled_from(EXPRESSIONS), zone=st.sampled_from(ZONES))
def test_nothing_is_due_between_a_moment_and_what_comes_next(
    moment: datetime, text: str, zone: ZoneInfo
) -> None:
    schedule = parse(text)
    following = schedule.next_after(moment, zone)
    assert following is not None
    earlier = schedule.next_after(moment + (following - moment) / 2, zone)
    assert earlier == following


@given(days=st.integers(0, 2_500), zone=st.sampled_from(ZONES), hour=st.integers(0, 23))
def test_a_daily_time_is_due_once_every_day(days: int, zone: ZoneInfo, hour: int) -> None:
    noon = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=days)
    schedule = parse(f"30 {hour} * * *")
    first = schedule.next_after(noon, zone)
    assert first is not None
    second = schedule.next_after(first, zone)
    assert second is not None
    assert second.date() - first.date() == timedelta(days=1)


def test_an_interval_is_time_that_passes_whatever_clocks_show() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    following = parse("every 24h").next_after(before, BERLIN)
    assert following is not None
    assert following.isoformat() == "2026-03-29T13:00:00+02:00"


def test_an_endless_expression_is_refused() -> None:
    every_minute = ",".join(map(str, range(60)))
    assert parse(f"{every_minute} * * * *")
    with pytest.raises(ScheduleError, match="longer than 500 characters"):
        parse(f"{every_minute * 10} * * * *")
