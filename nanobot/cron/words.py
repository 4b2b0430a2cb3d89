"""Schedules as people say them, in English. Pure.

    schedule  = interval | recurring | once
    interval  = "every" span | "every" ("minute" | "hour") | "hourly"
    recurring = days times | month time
    days      = "every day" | "daily" | ["on" | "every"] ("weekdays" | "weekends")
              | "every" names | ["on"] names in the plural
    month     = "on the" nth ["day"] "of every month" | ("every month" | "monthly") "on the" nth
    once      = "in" span | day time | "at" clock
    day       = "today" | "tomorrow" | "day after tomorrow" | ["on" | "this" | "next"] name
              | 2026-12-24 | ["on"] ("24 december" | "december 24") [2026]
    times     = time { ("and" | ",") time }          with the same minutes
    time      = ["at"] clock
    clock     = 8:30 | 8am | 8:30 pm | "noon" | "midnight" | 8      the last only after "at"
    span      = number unit { ["and"] number unit } | "half an hour"
    nth       = "1st" … "28th" | "last"
    name      = "monday" … or its first three letters; names are joined by "and" or a comma

Hours without am or pm use the 24-hour clock. Ambiguous words and past times are rejected, and every
form that the error's hint shows is accepted at that time. The other forms (`every 2h`,
`at 2026-12-01T09:00`, cron expressions) are in `nanobot.cron.schedule`. Words are translated into
one of these, so stored schedules do not depend on this grammar. `in_words` translates back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from functools import cache

from nanobot.cron.schedule import At, Cron, Every, Schedule, ScheduleError, parse, placed_in

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_PASSED = "that has passed (it is {:%Y-%m-%d %H:%M})"
_LIKELY_TIMES = ("9:00", "18:00")
"""Times of day that a hint proposes, the first that can be used."""

_IN_EVERY_MONTH = 28
_ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}

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
    rf"(?:(?:every|each)\s+(?:(?P<day>day)\b|(?P<kind>weekday|weekend)s?\b|(?P<names>{_NAMES})"
    rf"|(?P<other>(?:other|second|{_NUMBER})\s+\w+|week|year)\b)"
    rf"|(?P<daily>daily)\b|(?:on\s+)?(?:(?P<kinds>weekday|weekend)s\b|(?P<plural>{_PLURAL})))"
    rf"{_TIMES}"
)
_MONTHLY = (
    rf"(?:on\s+(?:the\s+)?{_NTH}\s+of\s+(?:every|each|the)\s+month\b"
    rf"|(?:every\s+month|monthly)(?:,?\s+on\s+(?:the\s+)?{_NTH.replace('nth', 'nth2')})?)"
    rf"{_ONE_TIME}"
)
_IN = rf"in\s+(?P<span>{_SPAN})"
_ONCE = (
    rf"(?:(?P<near>today|tomorrow|(?:the\s+)?day\s+after\s+tomorrow)\b"
    rf"|(?P<date>\d{{4}}-\d\d-\d\d)(?![\w-])"
    rf"|(?:on\s+)?(?:the\s+)?(?P<number>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})"
    rf"(?:,?\s+(?P<year>\d{{4}})(?!:))?"
    rf"|(?:on\s+)?(?P<month2>{_MONTH})\s+(?:the\s+)?(?P<number2>\d{{1,2}})(?:st|nd|rd|th)?(?![:\w])"
    rf"(?:,?\s+(?P<year2>\d{{4}})(?!:))?"
    rf"|(?:(?P<how>on|this|next)\s+)?(?P<name>{_NAME})"
    rf"){_ONE_TIME}"
)
_AT = rf"(?P<times>at\s+(?:{_CLOCK}|\d{{1,2}}(?![\w:.-])))"
_compiled = cache(re.compile)
"""At the first use: these take as long as everything else of a start."""

_OTHER_FORM = re.compile(r"^every |^at \d|\*")
"""Marks of an interval, of a moment and, in most cases, of a cron expression."""

_FORMS = (_INTERVAL, _RECURRING, _MONTHLY, _IN, _ONCE, _AT)


def longest_prefix(text: str) -> str:
    """What of `text`, from its beginning, are words of this grammar, a time left out included."""
    lower = text.lower()
    found = [match.end() for form in _FORMS if (match := _compiled(form).match(lower))]
    return text[: max(found, default=0)]


def recurring(text: str) -> Schedule | None:
    """What comes again and again by these words; None where they speak of nothing such. Raises
    `ScheduleError` where they do and cannot be used."""
    words = " ".join(text.lower().split())
    if found := _compiled(_INTERVAL).fullmatch(words):
        span = found["span"] or f"1 {found['unit'] or 'hour'}"
        return parse(f"every {_compact(span)}")
    if found := _compiled(_RECURRING).fullmatch(words):
        weekdays = _weekdays(text, found)
        return Cron(f"{_hours(text, found)} * * {weekdays}")
    if found := _compiled(_MONTHLY).fullmatch(words):
        day = _day_of_month(text, found)
        return Cron(f"{_hours(text, found)} {day} * *")
    return None


class _NoTimeOfDay(ScheduleError):
    """The words name a day and no time."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(
            text, "it names no time of day", hint or f"Write it like `{text} at 9:00`."
        )


def understand(text: str, now: datetime) -> Schedule:
    """Return the schedule that `text` describes, in words or in the other forms, as typed at `now`
    (aware, in the zone that it is meant for). Raises `ScheduleError`."""
    try:
        return _understand(text, now)
    except _NoTimeOfDay as error:
        raise _NoTimeOfDay(text, _hint_with_time(text, now)) from error


def _hint_with_time(text: str, now: datetime) -> str:
    """Complete `text` with a time of day. If no likely time can be used, return the advice for the
    first one: the words may have a second fault."""
    advice = ""
    for clock in _LIKELY_TIMES:
        try:
            _understand(f"{text} at {clock}", now)
        except ScheduleError as error:
            advice = advice or error.hint
        else:
            return f"Write it like `{text} at {clock}`."
    return advice


def _understand(text: str, now: datetime) -> Schedule:
    words = " ".join(text.lower().split())
    if (schedule := recurring(text)) is not None:
        return schedule
    if found := _compiled(_IN).fullmatch(words):
        return _after(f"every {_compact(found['span'])}", text, now)
    if found := _compiled(_ONCE).fullmatch(words):
        return _moment(text, _date(text, found, now), found, now)
    if found := _compiled(_AT).fullmatch(words):
        return _moment(text, now.date(), found, now)
    try:
        return parse(text)
    except ScheduleError as error:
        if words.startswith("in "):
            raise ScheduleError(text, "after `in` comes a time such as 20m or 1h30m") from None
        if known := longest_prefix(text := text.strip()):
            rest = text[len(known) :].strip(" ,")
            raise ScheduleError(text, f"nanobot does not understand {rest!r}") from error
        if _OTHER_FORM.search(words) or len(words.split()) == 5 or not words:
            raise
        raise ScheduleError(text, "nanobot does not understand these words") from error


def in_words(schedule: Schedule) -> str:
    """A schedule as people say it, where it is one of these; else as it is written."""
    fields = schedule.text.split()
    if not isinstance(schedule, Cron) or not all(field.isdigit() for field in fields[:1]):
        return schedule.text
    minute, hours, day, month, weekday = fields
    if month != "*" or not all(hour.isdigit() for hour in hours.split(",")):
        return schedule.text
    at = " and ".join(f"{int(hour):02}:{int(minute):02}" for hour in hours.split(","))
    when = ""
    if day == "*":
        when = _weekdays_in_words(weekday)
    elif weekday == "*" and "," not in hours:
        when = _day_in_words(day)
    return f"{when} at {at}" if when else schedule.text


def _weekdays_in_words(field: str) -> str:
    known = {"*": "every day", "1-5": "weekdays", "0,6": "weekends"}
    if field in known or not all(one.isdigit() and int(one) < 7 for one in field.split(",")):
        return known.get(field, "")
    names = [_DAYS[int(one) - 1] for one in field.split(",")]
    return f"every {' and '.join(names)}"


def _day_in_words(field: str) -> str:
    if field == "L":
        return "on the last day of every month"
    if not field.isdigit() or not 1 <= int(field) <= _IN_EVERY_MONTH:
        return ""
    return f"on the {int(field)}{_ORDINALS.get(int(field), 'th')} of every month"


def _compact(span: str) -> str:
    """`1 hour and 30 minutes` as `1h30m`."""
    if span.startswith("half"):
        return "30m"
    parts = re.findall(rf"({_NUMBER})\s*({_UNIT})(?![a-z])", span)
    return "".join(f"{_NUMBERS.get(number, number)}{unit[0]}" for number, unit in parts)


def _after(every: str, text: str, now: datetime) -> At:
    try:
        span = parse(every)
    except ScheduleError:
        raise ScheduleError(text, "the time must be between a second and ten years") from None
    assert isinstance(span, Every)
    due = now + timedelta(microseconds=999_999)
    whole = (due + span.interval).replace(microsecond=0)
    return At(whole, f"at {whole.isoformat()}")


def _hours(text: str, found: re.Match[str]) -> str:
    """The first two fields of a cron expression. Raises `ScheduleError`."""
    clocks = sorted(set(_clocks(text, found)))
    if len({clock.minute for clock in clocks}) > 1:
        shown = ", ".join(f"{clock:%H:%M}" for clock in clocks)
        reason = f"one schedule has the same minutes in all its hours, not {shown}"
        raise ScheduleError(text, reason, "Make a schedule of each.")
    return f"{clocks[0].minute} {','.join(str(clock.hour) for clock in clocks)}"


def _weekdays(text: str, found: re.Match[str]) -> str:
    """The last field of a cron expression. Raises `ScheduleError`."""
    if found["other"]:
        hint = (
            "Write it like `every monday at 9:00`, `every 14d` (which counts from now) or"
            " `on the 1st of every month at 9:00`."
        )
        raise ScheduleError(text, f"`every {found['other']}` has no day to begin with", hint)
    if kind := found["kind"] or found["kinds"]:
        return "1-5" if kind == "weekday" else "0,6"
    names = found["names"] or found["plural"]
    if not names:
        return "*"
    numbers = {(_number_of(name) + 1) % 7 for name in re.findall(r"[a-z]+", names) if name != "and"}
    return ",".join(map(str, sorted(numbers)))


def _day_of_month(text: str, found: re.Match[str]) -> str:
    nth = found["nth"] or found["nth2"]
    if not nth:
        hint = "Write it like `on the 1st of every month at 10:00`."
        raise ScheduleError(text, "it names no day of the month", hint)
    if nth == "last":
        return "L"
    number = int(re.match(r"\d+", nth)[0])  # type: ignore[index]
    if not 1 <= number <= 31:
        raise ScheduleError(text, f"no month has a day {number}")
    if number > _IN_EVERY_MONTH:
        hint = (
            f"Write `on the last day of every month at 10:00`, or `0 10 {number} * *` for those"
            " that have it."
        )
        raise ScheduleError(text, f"not every month has a day {number}", hint)
    return str(number)


def _clocks(text: str, found: re.Match[str]) -> list[time]:
    """Return the times of day in the words. Raises `ScheduleError`, also if there are none."""
    if not found["times"]:
        raise _NoTimeOfDay(text)
    return list(_each_clock(text, found["times"]))


def _each_clock(text: str, times: str) -> Iterator[time]:
    for hour, minute, half, word in re.findall(
        r"(\d{1,2})(?::(\d\d))?\s*([ap]?)|(noon|midnight)", times.replace("and", ",")
    ):
        if word:
            yield time(12 if word == "noon" else 0)
            continue
        number, past = int(hour), int(minute or 0)
        right = 1 <= number <= 12 if half else number <= 23
        if not right or past > 59:
            time_text = f"{hour}{f':{minute}' if minute else ''}{f'{half}m' if half else ''}"
            midnight = "Midnight is 0:00 of the next day." if number == 24 else ""
            hint = midnight or "Write it like 8:30, 20:30 or 8:30pm."
            raise ScheduleError(text, f"there is no time {time_text}", hint)
        yield time(number % 12 + 12 * (half == "p") if half else number, past)


def _number_of(name: str) -> int:
    """The number of a day of the week by its first letters, Monday's being 0."""
    return next(at for at, day in enumerate(_DAYS) if day.startswith(name[:3]))


def _date(text: str, found: re.Match[str], now: datetime) -> date:
    """The day in the words. Raises `ScheduleError`."""
    today = now.date()
    if near := found["near"]:
        away = {"today": 0, "tomorrow": 1}.get(near, 2)
        return today + timedelta(days=away)
    if name := found["name"]:
        return _coming(text, name, found, now)
    with suppress(ValueError):
        if found["date"]:
            return date.fromisoformat(found["date"])
        number = int(found["number"] or found["number2"])
        month_name = (found["month"] or found["month2"])[:3]
        month = 1 + next(at for at, one in enumerate(_MONTHS) if one.startswith(month_name))
        if year := found["year"] or found["year2"]:
            return date(int(year), month, number)
        return _this_year_or_next(month, number, today)
    tomorrow = today + timedelta(days=1)
    raise ScheduleError(text, "there is no such day", f"Write a day as in `{tomorrow} 18:00`.")


def _this_year_or_next(month: int, number: int, today: date) -> date:
    """Raises `ValueError` where neither has such a day."""
    with suppress(ValueError):
        if (found := date(today.year, month, number)) >= today:
            return found
    return date(today.year + 1, month, number)


def _coming(text: str, name: str, found: re.Match[str], now: datetime) -> date:
    """The day of the week that is meant. Raises `ScheduleError` where two could be."""
    today, weekday, how = now.date(), _number_of(name), found["how"]
    coming = today + timedelta(days=(weekday - today.weekday()) % 7)
    later, full = coming + timedelta(days=7), _DAYS[weekday]
    clock = f"{_clocks(text, found)[0]:%H:%M}"
    if how == "next":
        if coming == today:
            return later
        if coming.isocalendar()[:2] != today.isocalendar()[:2]:
            return coming
        two = f"Write `{full} at {clock}` for {coming}, or `{later} {clock}`."
        raise ScheduleError(text, f"`next {full}` could be this week or the next", two)
    if coming == today and how != "this":
        if time.fromisoformat(clock) <= now.time():
            return later
        two = f"Write `today at {clock}`, or `next {full} at {clock}` for {later}."
        raise ScheduleError(text, f"today is {full}, so it could be today or in a week", two)
    return coming


def _moment(text: str, day: date, found: re.Match[str], now: datetime) -> At:
    """The moment on that day. Raises `ScheduleError`."""
    (clock,) = _clocks(text, found)
    following = day + timedelta(days=1)
    if "midnight" in found["times"] and day == now.date():  # its beginning has passed
        day = following
    elif "midnight" in found["times"]:
        two = f"Write `{day} 0:00` for its beginning, or `{following} 0:00` for its end."
        raise ScheduleError(text, "midnight is where a day begins and where it ends", two)
    due = datetime.combine(day, clock)
    assert now.tzinfo is not None
    if placed_in(due, now.tzinfo) <= now:
        tomorrow = now.date() + timedelta(days=1)
        hint = f"Write `tomorrow at {clock:%H:%M}` for {tomorrow}, or another day."
        raise ScheduleError(text, _PASSED.format(now), hint)
    return At(due, f"at {due.isoformat(timespec='minutes')}")
