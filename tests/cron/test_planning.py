"""Due times of a job as values: each is run for once, with any clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nanobot.cron.job import Job, Run, after_clock_change, after_run, due_run, next_due, resume_job
from nanobot.cron.schedule import parse

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 3, 28, 12, tzinfo=UTC)  # the clocks go forward in the night


def job(schedule: str, after: datetime = START, zone: str = "Europe/Berlin") -> Job:
    return Job(
        "j1",
        "n",
        parse(schedule),
        zone,
        "m",
        "cli",
        "direct",
        "",
        "owner",
        "",
        START,
        after,
        origins=(),
        enabled=True,
        runs=(),
    )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ran(one: Job, now: datetime) -> tuple[Job, Run | None]:
    """Return the job after a check of the clock, and the run."""
    one = after_clock_change(one, now)
    run = due_run(one, now)
    if run is None:
        return one, None
    ended = after_run(one, run)
    assert ended is not None
    return ended, run


@given(
    schedule=st.sampled_from(
        ["30 2 * * *", "*/30 2 * * *", "0 */2 * * *", "every 90m", "0 0 * * *", "15 3 * * SUN"]
    ),
    steps=st.lists(st.integers(1, 3_000), max_size=12),
)
def test_each_due_time_is_run_for_once_whenever_somebody_looks(
    schedule: str, steps: list[int]
) -> None:
    one, now = job(schedule), START
    done: list[tuple[datetime, datetime]] = []
    for minutes in steps:
        now += timedelta(minutes=minutes)
        one, run = ran(one, now)
        if run is not None:
            done.append((run.due, run.through))
        assert due_run(one, now) is None
    expected = []
    due = one.schedule.next_after(START, BERLIN)
    while due is not None and due <= now:
        expected.append(due.astimezone(UTC))
        due = one.schedule.next_after(due, BERLIN)
    for moment in expected:
        assert sum(first <= moment <= through for first, through in done) == 1
    assert {first for first, _ in done} <= set(expected)


def test_very_many_missed_times_are_one_run() -> None:
    one, run = ran(job("* * * * *"), START + timedelta(days=30))
    assert run is not None
    assert run.due == START + timedelta(minutes=1)
    assert next_due(one, START) == START + timedelta(days=30, minutes=1)


def test_every_keeps_its_step_over_missed_times() -> None:
    one, run = ran(job("every 7m"), START + timedelta(days=30, minutes=1))
    assert run is not None
    assert (run.due - START) % timedelta(minutes=7) == timedelta()
    assert next_due(one, START) == run.through + timedelta(minutes=7)
    assert run.due == START + timedelta(minutes=7)


def test_a_clock_set_back_a_little_repeats_nothing() -> None:
    one, run = ran(job("*/10 * * * *"), utc("2026-03-28 12:10"))
    assert run == Run(utc("2026-03-28 12:10"), utc("2026-03-28 12:10"))
    for moment in ("2026-03-28 09:15", "2026-03-28 12:05", "2026-03-28 12:19"):
        one, run = ran(one, utc(moment))
        assert run is None
    assert ran(one, utc("2026-03-28 12:20"))[1] is not None


def test_a_clock_that_was_far_ahead_and_is_right_again_keeps_nobody_waiting() -> None:
    one, run = ran(job("0 8 * * *", zone="UTC"), utc("2027-03-28 12:00"))
    assert run is not None
    one, run = ran(one, utc("2026-03-28 12:01"))
    assert run is None
    assert next_due(one, utc("2026-03-28 12:01")) == utc("2026-03-30 08:00")  # the 29th was run for
    one, run = ran(one, utc("2026-03-30 08:00"))
    assert run == Run(utc("2026-03-30 08:00"), utc("2026-03-30 08:00"))


def test_a_due_time_that_was_run_for_does_not_come_again_with_the_day() -> None:
    one, _ = ran(job("0 8 * * *", zone="UTC"), utc("2026-03-29 09:00"))
    one, _ = ran(one, utc("2026-03-28 21:00"))  # the day was not over
    one, run = ran(one, utc("2026-03-29 08:00"))
    assert run is None
    assert next_due(one, utc("2026-03-29 08:00")) == utc("2026-03-30 08:00")


def test_a_clock_that_starts_in_1970_and_is_set_later_makes_nothing_missed() -> None:
    one, _ = ran(job("0 8 * * *", zone="UTC"), utc("2026-03-29 09:00"))
    one, _ = ran(one, utc("1970-01-01 00:00"))
    one, run = ran(one, utc("2026-03-29 09:01"))
    assert run is None
    one, run = ran(one, utc("2026-03-30 08:00"))
    assert run == Run(utc("2026-03-30 08:00"), utc("2026-03-30 08:00"))


def test_every_is_due_after_its_time_also_where_the_clock_was_set_back() -> None:
    one, _ = ran(job("every 1h"), START + timedelta(hours=1))
    back = START + timedelta(minutes=20)
    one, run = ran(one, back)
    assert run is None
    assert next_due(one, back) == back + timedelta(hours=1)


@pytest.mark.parametrize(
    ("zone", "expected"), [("Europe/Berlin", "06:00"), ("UTC", "08:00"), ("", "07:00")]
)
def test_a_job_without_a_zone_follows_the_agents(zone: str, expected: str) -> None:
    due = next_due(
        job("0 8 * * *", utc("2026-03-29 02:00"), zone), START.astimezone(ZoneInfo("Europe/London"))
    )
    assert due == utc(f"2026-03-29 {expected}")


def test_what_came_due_during_a_pause_is_not_made_up_for() -> None:
    one = resume_job(replace(job("0 8 * * *"), enabled=False), utc("2026-04-05 12:00"))
    assert one.enabled
    assert next_due(one, START) == utc("2026-04-06 06:00")
