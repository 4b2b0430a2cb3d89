"""What somebody wants scheduled, from words to values: bounds, zones, and `in 20m`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from nanobot.bus.events import Address
from nanobot.cron.schedule import At, Every, Schedule, ScheduleError, parse
from nanobot.errors import NanobotError

LEAST_INTERVAL = timedelta(seconds=60)
MOST_NAME, MOST_MESSAGE = 60, 4_000

_ALMOST_A_SECOND = timedelta(microseconds=999_999)
_NAME_FROM_MESSAGE, _MOST_SCHEDULE = 40, 200
_TIMED = re.compile(
    r"\s*(?:(?:in|every)\s+(?:\d+[smhdw]\s*)+(?!\S)|at\s+\d{4}-\d\d-\d\d(?:[T\s]\s*\d\d?:\d\d\S*)?)",
    re.IGNORECASE,
)
_FIELDS = re.compile(r"\s*(?:[\d*][\w*/,-]*\s+){3}(?:\S+\s+)\S+")
_IN = re.compile(r"in\s+(.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job speaks, for whom (`scope`), at whose wish; `origins` as in `Job`."""

    address: Address
    scope: str
    created_by: str
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """A job that is wanted, in bounds and with its first due time (UTC); `reminder` as in `Job`."""

    schedule: Schedule
    zone: str
    message: str
    name: str
    first: datetime
    reminder: bool = False


def wish(
    schedule: str, message: str, name: str, zone: str, now: datetime, *, reminder: bool = False
) -> Wish:
    """What is wanted, checked. `zone` is empty for the agent's, which is that of `now`.

    Raises `NanobotError`, `ScheduleError` among them, which says how it is written.
    """
    message, name = message.strip(), " ".join(name.split())
    if not message:
        raise NanobotError("there is no message: say what is to be done when the time comes")
    if len(message) > MOST_MESSAGE:
        raise NanobotError(f"the message is too long; it may have {MOST_MESSAGE:,} characters")
    if len(schedule) > _MOST_SCHEDULE:
        raise ScheduleError(f"{schedule[:_MOST_SCHEDULE]}…", "it is too long")
    place = _zone(zone) if zone else now.tzinfo
    assert place is not None
    parsed = _schedule(schedule.strip(), now)
    try:
        first = parsed.next_after(now, place)
    except OverflowError:
        raise ScheduleError(schedule.strip(), "that is too far away") from None
    if first is None:
        clock = now.astimezone(place).isoformat(" ", "minutes")
        raise ScheduleError(schedule.strip(), f"that time has passed (it is {clock})")
    if isinstance(parsed, At) and parsed.time.tzinfo is not None:
        zone = ""  # the offset says it all
    name = name[:MOST_NAME] or _named(message)
    return Wish(parsed, zone, message, name, first.astimezone(UTC), reminder)


def split_schedule(text: str) -> tuple[str, str]:
    """The schedule at the beginning of `text`, unchecked, and what follows it: `in 1h 30m`,
    `every 2h`, `at 2026-12-01 09:00`, or the five fields of a cron expression."""
    found = _TIMED.match(text) or _FIELDS.match(text)
    return (found[0].strip(), text[found.end() :].strip()) if found else (text.strip(), "")


def address_of(text: str) -> Address:
    """A chat's address. Raises `NanobotError` for what is none."""
    address = Address.of(text.strip())
    if not (address.channel and address.chat_id):
        raise NanobotError(f"{text[:80]!r} is no chat", hint="Chats are written as telegram:123.")
    return address


def _schedule(text: str, now: datetime) -> Schedule:
    if found := _IN.fullmatch(text):
        try:
            span = parse(f"every {found[1]}")
        except ScheduleError:
            raise ScheduleError(text, "after `in` comes a time such as 20m or 1h30m") from None
        due = span.next_after(now + _ALMOST_A_SECOND)
        assert due is not None
        return parse(f"at {due.replace(microsecond=0).isoformat()}")
    parsed = parse(text)
    if isinstance(parsed, Every) and parsed.interval < LEAST_INTERVAL:
        raise ScheduleError(text, "runs must be at least a minute apart")
    return parsed


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise NanobotError(
            f"there is no time zone {name[:60]!r}", hint="Zones have names such as Europe/Berlin."
        ) from None


def _named(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _NAME_FROM_MESSAGE else f"{line[: _NAME_FROM_MESSAGE - 1]}…"
