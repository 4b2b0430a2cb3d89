"""Schedules as people say them, in English. Pure.

    schedule  = interval | recurring | once
    interval  = "every" span | "every" ("minute" | "hour") | "hourly"
    recurring = days times | "on the" nth ["day"] "of every month" time
    days      = "every day" | "daily" | ["on" | "every"] ("weekdays" | "weekends")
              | "every" names | ["on"] names in the plural
    once      = "in" span | day time | "at" clock
    day       = "today" | "tomorrow" | "day after tomorrow" | ["on" | "this" | "next"] name
              | 2026-12-24 | ["on"] ("24 december" | "december 24")
    times     = time { ("and" | ",") time }          with the same minutes
    time      = ["at"] clock
    clock     = 8:30 | 8am | 8:30 pm | "noon" | "midnight" | 8      the last only after "at"
    span      = number unit { ["and"] number unit } | "half an hour"
    nth       = "1st" … "28th" | "last"
    name      = "monday" … or its first three letters; names are joined by "and" or a comma

Hours without am or pm use the 24-hour clock. Ambiguous words and past times are rejected, and every
form that the error's hint shows is accepted at that time. The other forms (`every 2h`,
`at 2026-12-01T09:00`, cron expressions) are in `nanobot.cron.schedule`. Words are translated into
one of these, so stored schedules do not depend on this grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from functools import cache

from nanobot.cron.schedule import At, Cron, Every, Schedule, ScheduleError, parse, place_in

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_IN_EVERY_MONTH = 28

_NUMBER = rf"(?:\d{{1,9}}|(?:{'|'.join(_NUMBERS)})\b)"
_UNIT = r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
_PART = rf"(?:{_NUMBER}\s*{_UNIT})(?![a-z])"
_SPAN = rf"(?:half\s+an\s+hour|{_PART}(?:\s*(?:,|and)?\s*{_PART})*)"
_NAME = rf"(?:{'|'.join(f'{day[:3]}(?:{day[3:]})?' for day in _DAYS)}|tues|thur|thurs)\b"
_NAMES = rf"{_NAME}(?:\s*(?:,\s*and|,|and|&)\s*{_NAME})*"
_PLURALS = rf"(?:{'|'.join(f'{day}s' for day in _DAYS)})\b"
_PLURAL = rf"{_PLURALS}(?:\s*(?:,\s*and|,|and|&)\s*{_PLURALS})*"
_MONTH = rf"(?:{'|'.join(f'{month[:3]}(?:{month[3:]})?' for month in _MONTHS)}|sept)\b\.?"
_CLOCK = r"(?:noon|midnight|\d{1,2}:\d\d(?!\d)(?:\s*[ap]\.?m\b\.?)?|\d{1,2}\s*[ap]\.?m\b\.?)"
_TIME = rf"(?:at\s+{_CLOCK}|at\s+\d{{1,2}}(?![\w:.-])|{_CLOCK})"
_MORE = rf"(?:\s*(?:,|and|&)\s*(?:{_TIME}|\d{{1,2}}(?![\w:.-])))*"
_TIMES = rf"(?:,?\s*(?P<times>{_TIME}{_MORE}))?"
_ONE_TIME = rf"(?:,?\s*(?P<times>{_TIME}))?"
_NTH = r"(?P<nth>\d{1,2}(?:st|nd|rd|th)?|last)(?:\s+day)?\b"

_INTERVAL = rf"(?:every|each)\s+(?:(?P<span>{_SPAN})|(?P<unit>minute|hour)\b)|(?P<hourly>hourly)\b"
_RECURRING = (
    rf"(?:(?:every|each)\s+(?:day\b|(?P<kind>weekday|weekend)s?\b|(?P<names>{_NAMES}))"
    rf"|daily\b|(?:on\s+)?(?:(?P<kinds>weekday|weekend)s\b|(?P<plural>{_PLURAL})))"
    rf"{_TIMES}"
)
_MONTHLY = rf"on\s+(?:the\s+)?{_NTH}\s+of\s+(?:every|each|the)\s+month\b{_ONE_TIME}"
_IN = rf"in\s+(?P<span>{_SPAN})"
_ONCE = (
    rf"(?:(?P<near>today|tomorrow|(?:the\s+)?day\s+after\s+tomorrow)\b"
    rf"|(?P<date>\d{{4}}-\d\d-\d\d)(?![\w-])"
    rf"|(?:on\s+)?(?:the\s+)?(?P<number>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})"
    rf"|(?:on\s+)?(?P<month2>{_MONTH})\s+(?:the\s+)?(?P<number2>\d{{1,2}})(?:st|nd|rd|th)?(?![:\w])"
    rf"|(?:(?P<how>on|this|next)\s+)?(?P<name>{_NAME})"
    rf"){_ONE_TIME}"
)
_AT = rf"(?P<times>at\s+(?:{_CLOCK}|\d{{1,2}}(?![\w:.-])))"
_DATED = r"at\s+\d{4}-\d\d-\d\d(?:[t\s]\s*\d\d?:\d\d\S*)?"
_compiled = cache(re.compile)
"""Compile on first use: these patterns take as long as the rest of a start."""

_OTHER_FORM = re.compile(r"^every |^at \d|\*")
"""Matches an interval, a moment, and most cron expressions."""

_FORMS = (_INTERVAL, _RECURRING, _MONTHLY, _IN, _ONCE, _AT, _DATED)


def longest_prefix(text: str) -> str:
    """Return the beginning of `text` that matches this grammar. A missing time of day is
    accepted."""
    lower = text.lower()
    found = [match.end() for form in _FORMS if (match := _compiled(form).match(lower))]
    return text[: max(found, default=0)]


def parse_recurring(text: str) -> Schedule | None:
    """Return the recurring schedule in these words, or None if they have none. Raise
    `ScheduleError` if it is invalid."""
    words = " ".join(text.lower().split())
    if found := _compiled(_INTERVAL).fullmatch(words):
        span = found["span"] or f"1 {found['unit'] or 'hour'}"
        return parse(f"every {shorten_span(span)}")
    if found := _compiled(_RECURRING).fullmatch(words):
        return Cron(f"{format_hours(text, found)} * * {format_weekdays(found)}")
    if found := _compiled(_MONTHLY).fullmatch(words):
        return Cron(f"{format_hours(text, found)} {format_day_of_month(text, found['nth'])} * *")
    return None


def understand(text: str, now: datetime) -> Schedule:
    """Return the schedule in `text`, in words or in the other forms, as typed at `now` (aware, in
    the schedule's zone). Raise `ScheduleError`."""
    words = " ".join(text.lower().split())
    if (schedule := parse_recurring(text)) is not None:
        return schedule
    if found := _compiled(_IN).fullmatch(words):
        return schedule_after(f"every {shorten_span(found['span'])}", text, now)
    if found := _compiled(_ONCE).fullmatch(words):
        return find_moment(text, find_dates(text, found, now.date()), found, now)
    if found := _compiled(_AT).fullmatch(words):
        return find_moment(text, [now.date()], found, now)
    try:
        return parse(text)
    except ScheduleError as error:
        if known := longest_prefix(text := text.strip()):
            rest = text[len(known) :].strip(" ,")
            raise ScheduleError(text, f"nanobot does not understand {rest!r}") from error
        if _OTHER_FORM.search(words) or len(words.split()) == 5 or not words:
            raise
        raise ScheduleError(text, "nanobot does not understand it") from error


def shorten_span(span: str) -> str:
    """Return `1 hour and 30 minutes` as `1h30m`."""
    if span.startswith("half"):
        return "30m"
    parts = re.findall(rf"({_NUMBER})\s*({_UNIT})(?![a-z])", span)
    return "".join(f"{_NUMBERS.get(number, number)}{unit[0]}" for number, unit in parts)


def schedule_after(every: str, text: str, now: datetime) -> At:
    try:
        span = parse(every)
    except ScheduleError:
        raise ScheduleError(
            text, "the time must be between one second and ten years from now"
        ) from None
    assert isinstance(span, Every)
    due = now + timedelta(microseconds=999_999)  # rounds up to a full second
    whole = (due + span.interval).replace(microsecond=0)
    return At(whole, f"at {whole.isoformat()}")


def format_hours(text: str, found: re.Match[str]) -> str:
    clocks = sorted(set(parse_clocks(text, found["times"])))
    if len({clock.minute for clock in clocks}) > 1:
        shown = ", ".join(f"{clock:%H:%M}" for clock in clocks)
        reason = f"all times in a schedule must have the same minutes, not {shown}"
        raise ScheduleError(text, reason, "Add one schedule for each time.")
    return f"{clocks[0].minute} {','.join(str(clock.hour) for clock in clocks)}"


def format_weekdays(found: re.Match[str]) -> str:
    if kind := found["kind"] or found["kinds"]:
        return "1-5" if kind == "weekday" else "0,6"
    names = re.findall(r"[a-z]+", found["names"] or found["plural"] or "")
    numbers = {(number_of_weekday(name) + 1) % 7 for name in names if name != "and"}
    return ",".join(map(str, sorted(numbers))) or "*"


def format_day_of_month(text: str, nth: str) -> str:
    if nth == "last":
        return "L"
    number = int(nth.rstrip("stndrh"))
    if not 1 <= number <= _IN_EVERY_MONTH:
        hint = "For the last day, write `on the last day of every month at 10:00`."
        raise ScheduleError(text, f"not every month has a day {number}", hint)
    return str(number)


def parse_clocks(text: str, times: str | None) -> list[time]:
    """Return the times of day in the words. Raise `ScheduleError` if there are none."""
    if not times:
        raise ScheduleError(text, "it needs a time of day")
    parts = re.findall(
        r"(\d{1,2})(?::(\d\d))?\s*([ap]?)|(noon|midnight)", times.replace("and", ",")
    )
    return [parse_clock(text, *part) for part in parts]


def parse_clock(text: str, hour: str, minute: str, half: str, word: str) -> time:
    if word:
        return time(12 if word == "noon" else 0)
    number, past = int(hour), int(minute or 0)
    in_range = 1 <= number <= 12 if half else number <= 23
    if not in_range or past > 59:
        shown = f"{hour}{f':{minute}' if minute else ''}{f'{half}m' if half else ''}"
        hint = "Use a time such as 8:30, 20:30, or 8:30pm. Midnight is 0:00."
        raise ScheduleError(text, f"{shown} is not a valid time", hint)
    return time(number % 12 + 12 * (half == "p") if half else number, past)


def number_of_weekday(name: str) -> int:
    """Return the number of a weekday by its first letters. Monday is 0."""
    return next(at for at, day in enumerate(_DAYS) if day.startswith(name[:3]))


def find_dates(text: str, found: re.Match[str], today: date) -> Iterator[date]:
    """Yield each day that the words can mean. Raise `ScheduleError`."""
    if near := found["near"]:
        yield today + timedelta(days={"today": 0, "tomorrow": 1}.get(near, 2))
    elif name := found["name"]:
        yield from find_weekday_dates(name, found["how"], today)
    else:
        try:
            yield date.fromisoformat(found["date"]) if found["date"] else find_date(found, today)
        except ValueError:
            hint = f"Use the format `{today + timedelta(days=1)} 18:00`."
            raise ScheduleError(text, "that date does not exist", hint) from None


def find_date(found: re.Match[str], today: date) -> date:
    """Return the next day with this number and month. Raise `ValueError` if the next year has
    none."""
    name, number = (found["month"] or found["month2"])[:3], found["number"] or found["number2"]
    month = 1 + next(at for at, one in enumerate(_MONTHS) if one.startswith(name))
    with suppress(ValueError):
        if (this_year := date(today.year, month, int(number))) >= today:
            return this_year
    return date(today.year + 1, month, int(number))


def find_weekday_dates(name: str, how: str | None, today: date) -> Iterator[date]:
    """Yield the days that a weekday can mean. For some people "next" is never in this week."""
    coming = today + timedelta(days=(number_of_weekday(name) - today.weekday()) % 7)
    is_this_week = coming.isocalendar()[:2] == today.isocalendar()[:2]
    if how != "next" or coming != today:
        yield coming
    if (how == "next" and is_this_week) or (how in (None, "on") and coming == today):
        yield coming + timedelta(days=7)


def find_moment(text: str, days: Iterable[date], found: re.Match[str], now: datetime) -> At:
    """Return the only future moment that is meant. Raise `ScheduleError`."""
    (clock,) = parse_clocks(text, found["times"])
    moments = [datetime.combine(day, clock) for day in days]
    if "midnight" in found["times"]:  # the start of the day, or its end
        moments += [moment + timedelta(days=1) for moment in moments]
    assert now.tzinfo is not None
    coming = [moment for moment in moments if place_in(moment, now.tzinfo) > now]
    if not coming:
        raise ScheduleError(text, f"that time has passed (it is now {now:%Y-%m-%d %H:%M})")
    if len(coming) > 1:
        hint = f"Write {' or '.join(f'`{moment:%Y-%m-%d %H:%M}`' for moment in coming)}."
        raise ScheduleError(text, "it can mean more than one day", hint)
    return At(coming[0], f"at {coming[0].isoformat(timespec='minutes')}")
