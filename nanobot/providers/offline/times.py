"""From words to a schedule: "in 20 minutes", "tomorrow at 9", "every Monday at 8:30". Pure.

A time is looked for at the beginning and at the end of what is to be done. Schedules are written as
the cron tool takes them. An hour of twelve without "am" or "pm" is the next one that comes, unless
a day is named: then it is as on a clock of 24 hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple


class Timed(NamedTuple):
    """What is to be done, and when."""

    schedule: str
    text: str


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_ZH = "一二三四五六日"
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "fifteen": 15, "twenty": 20, "thirty": 30, "一": 1, "两": 2,
    "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10, "十五": 15,
    "二十": 20, "三十": 30,
}  # fmt: skip
_UNITS = (
    ("s", "s", "秒"),
    ("m", "m", "分"),
    ("h", "h", "小钟"),
    ("d", "d", "天"),
    ("w", "w", "周星"),
)
_HOUR_OF = {
    "morning": 9, "afternoon": 15, "evening": 19, "night": 20, "tonight": 20, "noon": 12,
    "midnight": 0, "早上": 8, "上午": 9, "中午": 12, "下午": 15, "晚上": 20, "今晚": 20, "明晚": 20,
    "明早": 8,
}  # fmt: skip
_LATE_ZH = frozenset({"下午", "晚上", "今晚", "明晚"})
_MORNING = 9
_GAPS = re.compile(r"[\s,，]{3,}")

_COUNT = (
    r"(?P<count>\d{1,4}|fifteen|twenty|thirty|seven|three|eight|five|four|nine|"
    r"one|six|ten|two|an|a)"
)
_UNIT = r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|[smhdw])\b"
_EVERY_UNIT = r"(?P<unit>minutes?|mins?|hours?|hrs?|days|weeks)\b"
_CLOCK = (
    r"(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s*(?P<half>am|pm|a\.m\.|p\.m\.)?"
    r"(?:\s*o'clock)?(?![\w:])|(?P<named>noon|midnight))"
)
_DAY = (
    rf"(?:(?P<day>today|tonight|tomorrow)|(?:(?:on|this|next)\s+)?(?P<weekday>{'|'.join(_DAYS)})"
    r"|(?:on\s+)?(?P<date>\d{4}-\d\d-\d\d))"
)
_PART = r"(?:\s+(?:in\s+the\s+)?(?P<part>morning|afternoon|evening|night))?"
_ENGLISH = (
    rf"in\s+(?:about\s+)?{_COUNT}\s*{_UNIT}",
    r"in\s+(?P<halfhour>half\s+an\s+hour)",
    rf"every\s+(?:{_COUNT}\s+)?{_EVERY_UNIT}",
    rf"(?:every\s*(?P<often>day|morning|evening|night|weekday|{'|'.join(_DAYS)})s?|(?P<daily>daily))"
    rf"(?:\s+at\s+{_CLOCK})?",
    rf"(?:for\s+)?{_DAY}{_PART}(?:,?(?:\s+at)?\s+{_CLOCK})?",
    rf"(?:at|for)\s+{_CLOCK}(?:\s+{_DAY})?",
)
_ZH_COUNT = r"(?P<count>\d{1,4}|十五|二十|三十|[一两二三四五六七八九十])"
_ZH_UNIT = r"(?P<unit>秒|分钟?|小时|钟头|天|周|星期)"
_ZH_CLOCK = (
    r"(?P<part>早上|上午|中午|下午|晚上)?(?P<hour>\d{1,2})(?:[:：](?P<minute>\d\d)|[点时]"
    r"(?:(?P<past>\d{1,2})分?|(?P<half>半))?(?:钟|整)?)"
)
_CHINESE = (
    rf"(?:过)?{_ZH_COUNT}\s*个?{_ZH_UNIT}(?:之后|以后|后)",
    r"(?P<halfhour>半个?小时)(?:之后|以后|后)",
    rf"每(?:隔)?{_ZH_COUNT}?个?(?P<unit>分钟|小时)",
    rf"(?:(?P<daily>每天)|每(?:周|星期)(?P<often>[{_DAYS_ZH}天]))(?:的)?(?:{_ZH_CLOCK})?",
    rf"(?:(?P<day>今天|明天|后天|今晚|明晚|明早)|(?:下?周|下?星期)(?P<weekday>[{_DAYS_ZH}天])"
    rf"|(?P<date>\d{{4}}-\d\d-\d\d))(?:的)?(?:{_ZH_CLOCK})?",
    _ZH_CLOCK,
)


def timed(text: str, now: datetime | None) -> Timed | None:
    """The time in `text` and the rest of it; None where there is none that is understood, or where
    it needs `now`, the person's local time, and that is not known."""
    text = _GAPS.sub(" ", text).strip().rstrip(".!。！ ")
    text = re.sub(r",?\s+please$", "", text, flags=re.IGNORECASE)
    for when, pattern in _patterns():
        if (match := pattern.match(text)) and (rest := _rest(match["text"])):
            schedule = when({k: v for k, v in match.groupdict().items() if v}, now)
            if schedule:
                return Timed(schedule, rest)
    return None


def _rest(text: str) -> str:
    return re.sub(r"^(?:to|that|about)\s+|^[去要]", "", text.strip(" ,，:："), flags=re.IGNORECASE)


Groups = dict[str, str]


@cache
def _patterns() -> tuple[tuple[Callable[[Groups, datetime | None], str], re.Pattern[str]], ...]:
    kinds = (_span, _span, _interval, _repeated, _moment, _moment)
    forms = [
        (kind, form)
        for wordings, gap in ((_ENGLISH, r"[\s,]+"), (_CHINESE, r"[\s,，]*"))
        for kind, when in zip(kinds, wordings, strict=True)
        for form in (rf"{when}{gap}(?P<text>.+)$", rf"(?P<text>.+?){gap}{when}$")
    ]
    return tuple((kind, re.compile(form, re.IGNORECASE | re.DOTALL)) for kind, form in forms)


def _unit(word: str) -> str:
    first = word[0].lower()
    return next(unit for unit, latin, chinese in _UNITS if first in latin or first in chinese)


def _length(groups: Groups) -> str:
    if "halfhour" in groups:
        return "30m"
    count = groups.get("count", "1").lower()
    return f"{_NUMBERS.get(count) or int(count)}{_unit(groups['unit'])}"


def _span(groups: Groups, _: datetime | None) -> str:
    return f"in {_length(groups)}"


def _interval(groups: Groups, _: datetime | None) -> str:
    return f"every {_length(groups)}"


def _repeated(groups: Groups, _: datetime | None) -> str:
    """Every day, or on days of the week, as a cron expression."""
    often = groups.get("often", "").lower()
    hour, minute = _clock(groups) or (_HOUR_OF.get(often, _MORNING), 0)
    day = "*"
    if often == "weekday":
        day = "1-5"
    elif often in _DAYS:
        day = str((_DAYS.index(often) + 1) % 7)
    elif often in (*_DAYS_ZH, "天") and often:
        day = str((_DAYS_ZH + "天").index(often) % 7 + 1) if often not in "日天" else "0"
    return f"{minute} {hour} * * {day}" if hour < 24 and minute < 60 else ""


def _moment(groups: Groups, now: datetime | None) -> str:
    """One time: of the day that is named, or the next one on the clock."""
    clock = _clock(groups)
    named = groups.get("part") or groups.get("day", "")
    hour, minute = clock or (_HOUR_OF.get(named.lower(), _MORNING), 0)
    if now is None or hour > 23 or minute > 59:
        return ""
    day = _day(groups, now)
    try:
        moment = datetime.fromisoformat(f"{day:%Y-%m-%d}T{hour:02}:{minute:02}")
    except (TypeError, ValueError):
        return ""
    if "day" not in groups and "weekday" not in groups and "date" not in groups:
        moment = _next(moment, groups, now)
    elif "weekday" in groups and moment <= now:
        moment += timedelta(weeks=1)
    return f"at {moment:%Y-%m-%dT%H:%M}"


def _day(groups: Groups, now: datetime) -> datetime:
    if date := groups.get("date"):
        try:
            return datetime.fromisoformat(date)
        except ValueError:
            return now
    if weekday := groups.get("weekday", "").lower():
        wanted = _DAYS.index(weekday) if weekday in _DAYS else (_DAYS_ZH + "天").index(weekday)
        return now + timedelta(days=(min(wanted, 6) - now.weekday()) % 7)
    ahead = {"tomorrow": 1, "明天": 1, "明晚": 1, "明早": 1, "后天": 2}
    return now + timedelta(days=ahead.get(groups.get("day", "").lower(), 0))


def _next(moment: datetime, groups: Groups, now: datetime) -> datetime:
    """The next time that the clock shows this; a bare hour may be one of the afternoon."""
    bare = not {"minute", "half", "named", "part", "past"} & set(groups)
    if moment <= now and bare and 1 <= moment.hour < 12 and moment + timedelta(hours=12) > now:
        return moment + timedelta(hours=12)
    return moment if moment > now else moment + timedelta(days=1)


def _clock(groups: Groups) -> tuple[int, int] | None:
    if named := groups.get("named"):
        return _HOUR_OF[named.lower()], 0
    if "hour" not in groups:
        return None
    hour = int(groups["hour"])
    minute = int(groups.get("minute") or groups.get("past") or 0)
    half, part = groups.get("half", "").lower(), groups.get("part") or groups.get("day", "")
    if half == "半":
        minute = 30
    if half[:1] in ("a", "p") and 1 <= hour <= 12:
        hour = hour % 12 + (12 if half[0] == "p" else 0)
    elif part in (*_LATE_ZH, "tonight", "evening", "night", "afternoon") and hour < 12:
        hour += 12
    return hour, minute
