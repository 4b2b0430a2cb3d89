"""Schedules in words, by a table and by properties: their meaning, and rejected ones with
advice."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nanobot.cron.job import split_schedule
from nanobot.cron.schedule import ScheduleError
from nanobot.cron.words import understand

NOW = datetime(2026, 11, 25, 15, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""A Wednesday."""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("every day at 8", "0 8 * * *"),
        ("Every day at 8:30pm", "30 20 * * *"),
        ("daily 7:05", "5 7 * * *"),
        ("every day at 8 and 18", "0 8,18 * * *"),
        ("every day at noon", "0 12 * * *"),
        ("every day at midnight", "0 0 * * *"),
        ("every day at 12am", "0 0 * * *"),
        ("every day at 12 p.m.", "0 12 * * *"),
        ("every monday at 9:30", "30 9 * * 1"),
        ("mondays at 9", "0 9 * * 1"),
        ("on mondays and fridays at 9", "0 9 * * 1,5"),
        ("every mon, wed and fri 17:00", "0 17 * * 1,3,5"),
        ("every sunday at 6pm", "0 18 * * 0"),
        ("weekdays at 7", "0 7 * * 1-5"),
        ("every weekday at 7", "0 7 * * 1-5"),
        ("on weekends at 10", "0 10 * * 0,6"),
        ("on the 1st of every month at 10", "0 10 1 * *"),
        ("on the last day of every month at 18:00", "0 18 L * *"),
        ("every 2 hours", "every 2h"),
        ("every two hours", "every 2h"),
        ("every hour", "every 1h"),
        ("hourly", "every 1h"),
        ("every 1 hour and 30 minutes", "every 1h30m"),
        ("every 24h", "every 24h"),
        ("every 7 d", "every 7d"),
        ("tomorrow 9:00", "at 2026-11-26T09:00"),
        ("tomorrow at 9", "at 2026-11-26T09:00"),
        ("today 18:00", "at 2026-11-25T18:00"),
        ("the day after tomorrow at noon", "at 2026-11-27T12:00"),
        ("friday at noon", "at 2026-11-27T12:00"),
        ("on tuesday at 9am", "at 2026-12-01T09:00"),
        ("next tuesday at 9am", "at 2026-12-01T09:00"),
        ("next wednesday at 9", "at 2026-12-02T09:00"),
        ("wednesday 9:00", "at 2026-12-02T09:00"),  # today's has passed
        ("this wednesday 18:00", "at 2026-11-25T18:00"),
        ("2026-12-24 18:00", "at 2026-12-24T18:00"),
        ("24 december 18:00", "at 2026-12-24T18:00"),
        ("december 24th at 6pm", "at 2026-12-24T18:00"),
        ("1 feb at 8", "at 2027-02-01T08:00"),
        ("at 18:00", "at 2026-11-25T18:00"),
        ("today at midnight", "at 2026-11-26T00:00"),  # today's beginning has passed
        ("in 20 minutes", "at 2026-11-25T15:50:00+01:00"),
        ("in an hour", "at 2026-11-25T16:30:00+01:00"),
        ("in half an hour", "at 2026-11-25T16:00:00+01:00"),
        ("in 2 days", "at 2026-11-27T15:30:00+01:00"),
        ("0 8 * * 1-5", "0 8 * * 1-5"),
        ("at 2026-12-01T09:00", "at 2026-12-01T09:00"),
    ],
)
def test_words_become_a_schedule(text: str, wanted: str) -> None:
    assert understand(text, NOW).text == wanted
    assert understand(f"  {text.upper()} ", NOW).text == wanted


@pytest.mark.parametrize(
    ("text", "reason", "advice"),
    [
        ("every day", "needs a time of day", "`every day at 4:00`"),
        ("today", "needs a time of day", "`tomorrow 9:00`"),
        ("wednesday at 18:00", "more than one day", "`2026-11-25 18:00` or `2026-12-02 18:00`"),
        ("next friday at 9", "more than one day", "`2026-11-27 09:00` or `2026-12-04 09:00`"),
        ("today 9:00", "has passed (it is now 2026-11-25 15:30)", "`tomorrow 9:00`"),
        ("at 9", "has passed", "Examples"),
        ("2026-11-24 9:00", "has passed", "Examples"),
        ("tomorrow at midnight", "more than one day", "`2026-11-26 00:00` or `2026-11-27 00:00`"),
        ("tomorrow 24:00", "24:00 is not a valid time", "Midnight is 0:00"),
        ("tomorrow 13pm", "13pm is not a valid time", "8:30pm"),
        ("tomorrow 9:75", "9:75 is not a valid time", "8:30"),
        ("on the 31st of every month at 9", "not every month", "`on the last day of every month"),
        ("every month at 9", "`every` needs a day", "Examples"),
        ("every other day at 9", "`every` needs a day", "Examples"),
        ("every 2 days at 9", "does not understand 'at 9'", "Examples"),
        ("every day at 8 and 9:30", "the same minutes", "one schedule for each"),
        ("30 february 9:00", "that date does not exist", "`2026-11-26 18:00`"),
        ("2026-02-30 9:00", "that date does not exist", "`2026-11-26 18:00`"),
        ("12/24 18:00", "does not understand it", "tomorrow 9:00"),
        ("morgen um 9", "does not understand it", "tomorrow 9:00"),
        ("at soon", "does not understand it", "tomorrow 9:00"),
        ("tomorrow morning", "does not understand 'morning'", "tomorrow 9:00"),
        ("every friday at 9 please", "does not understand 'please'", "tomorrow 9:00"),
        ("0 8 * *", "five fields", "`0 4 * * *`"),
        ("in a while", "does not understand it", "in 20 minutes"),
        ("in 99999 weeks", "between one second and ten years", ""),
    ],
)
def test_what_is_unclear_or_past_is_refused_with_the_nearest_right_form(
    text: str, reason: str, advice: str
) -> None:
    with pytest.raises(ScheduleError) as refused:
        understand(text, NOW)
    assert reason in str(refused.value)
    assert advice in refused.value.hint


_WEEKDAY = st.sampled_from(["monday", "tue", "wednesday", "friday", "sunday"])
_CLOCK = st.sampled_from(["", " at 9", " 18:00", " at 23:59", " at midnight", " 24:00", " at 13pm"])
_PHRASES = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["", "next ", "this ", "on ", "every "]), _WEEKDAY,
              _CLOCK),
    st.builds("{}{}".format, st.sampled_from([
        "today", "tomorrow", "at", "every day", "every other day", "monthly", "every month",
        "2026-11-24", "2026-02-30", "29 february", "on the 31st of every month", "tomorrow morning",
        "in a while", "soon", "every fortnight", "every 1", "0 8 * *", "at 2020-01-01T09:00",
    ]), _CLOCK),
)  # fmt: skip


@given(_PHRASES, st.integers(0, 5 * 365 * 24 * 60))
def test_every_form_that_a_hint_shows_is_accepted_at_that_time(text: str, minutes: int) -> None:
    now = NOW + timedelta(minutes=minutes)
    assume((now.month, now.day) != (12, 24))  # the example of a date is this one: it has passed
    for form in re.findall(r"`([^`]+)`", _advice_for(text, now)):
        understand(form, now)


def _advice_for(text: str, now: datetime) -> str:
    try:
        understand(text, now)
    except ScheduleError as error:
        return error.hint
    return ""


@given(st.text(st.sampled_from("every day at 8and,:0 monthin.tw-"), max_size=60))
def test_anything_else_is_a_schedule_or_a_clear_refusal(text: str) -> None:
    try:
        schedule = understand(text, NOW)
        due = schedule.next_after(NOW)
    except (ScheduleError, OverflowError):
        return
    assert due is None or due.astimezone(UTC) > NOW.astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "schedule", "rest"),
    [
        ("tomorrow 9:00 call Ana", "tomorrow 9:00", "call Ana"),
        ("every day at 8 stretch", "every day at 8", "stretch"),
        ("every monday and thursday at 9:30: bins", "every monday and thursday at 9:30", "bins"),
        ("in 20 minutes turn the oven off", "in 20 minutes", "turn the oven off"),
        ("in 20m 5 eggs", "in 20m", "5 eggs"),
        ("friday at noon, lunch", "friday at noon", "lunch"),
        ("2026-12-24 18:00 presents", "2026-12-24 18:00", "presents"),
        ("at 2026-12-01 09:00 call Ana", "at 2026-12-01 09:00", "call Ana"),
        ("0 8 * * 1-5 stand up", "0 8 * * 1-5", "stand up"),
        ("every day stretch", "every day", "stretch"),
        ("weekdays at 7 5 pushups", "weekdays at 7", "5 pushups"),
        ("on the 1st of every month at 10 rent", "on the 1st of every month at 10", "rent"),
        ("buy milk", "buy milk", ""),
    ],
)
def test_a_reminder_begins_with_its_schedule(text: str, schedule: str, rest: str) -> None:
    assert split_schedule(text) == (schedule, rest)
