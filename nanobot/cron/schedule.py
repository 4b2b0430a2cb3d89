"""Due times: `every 24h`, a cron expression, or `at <time>`. Pure. `nanobot.cron.words` translates
words such as `every day at 8`.

`next_after(moment)` is always strictly later than `moment`, and aware. When clocks change:

- A skipped time of day is due once, at the first moment after the gap.
- A repeated time of day is due once, the first time.
- An hourly expression (`*/5 * * * *`) follows elapsed time and continues through the change.
- `every` counts elapsed time. So `every 24h` can drift by an hour against the wall clock; `0 4 * *
  *` does not.

cronsim reads cron expressions: it matches Debian's cron, is typed, has no dependencies, and is
released steadily. Its clock changes are not used for times of day, because it skips some (`*/30 2 *
* *`) and returns past times within a repeated hour. They are computed without a zone and placed
here."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from nanobot.errors import NanobotError

EXAMPLES = (
    "Examples: `every day at 4:00`, `weekdays at 7:30`, `tomorrow 9:00`, `24 december 18:00`,"
    " `in 20 minutes`, `every 24h`, `0 4 * * *`."
)
"""No example names a year, so each is valid at any time."""

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = r"(?:\d{1,9}[smhdw])+"
_PART = r"(\d+)([smhdw])"
_LONGEST = timedelta(days=3_660)
_MINUTE = timedelta(minutes=1)
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a calendar without zones


_MOST_TEXT = 500
"""Characters. An expression that lists every minute of an hour has 170."""


class ScheduleError(NanobotError):
    """A schedule that is invalid or never due. The hint shows examples."""

    def __init__(self, text: str, reason: str, hint: str = EXAMPLES) -> None:
        super().__init__(f"the schedule {text!r} cannot be used: {reason}", hint=hint)


class Schedule:
    """Base class of the three schedules. `text` is the stored form."""

    __slots__ = ()
    text: str

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime | None:
        """Return the first due time after `moment`, or None for never again. The zone defaults to
        that of `moment`."""
        raise NotImplementedError


class Every(Schedule, Struct, frozen=True):
    """Due at each `interval` (one second to ten years)."""

    interval: timedelta
    text: str

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime | None:
        """Return `moment` plus one interval."""
        due = moment.astimezone(UTC) + self.interval
        return due.astimezone(zone or moment.tzinfo)


class Cron(Schedule, Struct, frozen=True):
    """Due at the times of a cron expression of five fields, in the requested zone."""

    text: str

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime | None:
        """Return the first due time after `moment`, or None if fifty years have none."""
        place = zone or moment.tzinfo
        assert place is not None
        local = moment.astimezone(place)
        if self.text.split()[1] in {"*", "*/1", "0-23"}:  # for every hour
            found = next(CronSim(self.text, local), None)
            # Via UTC, so that a skipped midnight gets its real local time.
            return found.astimezone(UTC).astimezone(place) if found else None
        # without zone, so no time is skipped
        for due in CronSim(self.text, local.replace(tzinfo=None, fold=0)):
            placed = place_in(due, place)
            if placed.astimezone(UTC) > moment.astimezone(UTC):
                return placed
        return None


class At(Schedule, Struct, frozen=True):
    """Due once. A `time` without an offset is in the requested zone."""

    time: datetime
    text: str

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime | None:
        """Return the time, or None if it has passed."""
        place = zone or moment.tzinfo
        assert place is not None
        aware = self.time.tzinfo is not None
        due = self.time.astimezone(place) if aware else place_in(self.time, place)
        return due if due.astimezone(UTC) > moment.astimezone(UTC) else None


def parse(text: str) -> Schedule:
    """Parse a schedule. Raise `ScheduleError`, which shows examples."""
    if len(text) > _MOST_TEXT:
        raise ScheduleError(f"{text[:40]}…", f"it is longer than {_MOST_TEXT} characters")
    words = text.split()
    if not words:
        raise ScheduleError(text, "it is empty")
    kind = words[0].casefold()
    if kind == "every":
        span = "".join(words[1:]).casefold()
        if not re.fullmatch(_SPAN, span):
            raise ScheduleError(text, "`every` needs a day, or an interval such as 90m, 24h, or 7d")
        seconds = sum(int(number) * _SECONDS[unit] for number, unit in re.findall(_PART, span))
        if not 1 <= seconds <= _LONGEST.total_seconds():
            raise ScheduleError(text, "the interval must be between one second and ten years")
        return Every(timedelta(seconds=seconds), f"every {span}")
    if kind == "at":
        time = " ".join(words[1:])
        with suppress(ValueError):
            return At(datetime.fromisoformat(time), f"at {time}")
        raise ScheduleError(text, "`at` needs a time such as 2026-12-01T09:00")
    return parse_cron(text, words)


def place_in(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first moment at which clocks in `zone` show `wall` (naive), or the first moment
    after the gap that skips it."""
    if not is_shown(wall, zone):
        wall = wall.replace(second=0, microsecond=0)  # gaps end at full minutes
    while not is_shown(wall, zone):
        wall += _MINUTE
    return wall.replace(tzinfo=zone, fold=0)


def is_shown(wall: datetime, zone: tzinfo) -> bool:
    there_and_back = wall.replace(tzinfo=zone, fold=0).astimezone(UTC).astimezone(zone)
    return there_and_back.replace(tzinfo=None, fold=0) == wall.replace(fold=0)


def parse_cron(text: str, fields: list[str]) -> Cron:
    if len(fields) != 5:
        raise ScheduleError(
            text,
            "a cron expression needs five fields (minute hour day month weekday), not "
            f"{len(fields)}",
        )
    expression = " ".join(fields)
    try:
        first = next(CronSim(expression, _ANY_DAY), None)
    except CronSimError as error:
        reason = str(error).removeprefix("Bad ")
        raise ScheduleError(text, f"its {reason} field is not valid") from error
    if first is None:
        raise ScheduleError(text, "that date does not exist")
    return Cron(expression)
