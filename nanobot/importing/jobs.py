"""Scheduled jobs of the other program as ours. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from nanobot.bus.events import TERMINAL, Address
from nanobot.cron.job import Job
from nanobot.cron.schedule import Cron, Every, Schedule, ScheduleError, parse
from nanobot.cron.wording import LEAST_INTERVAL, MOST_MESSAGE, MOST_NAME, address_of
from nanobot.errors import NanobotError
from nanobot.importing.foreign import Fields
from nanobot.importing.people import OURS, People, is_group, key_of
from nanobot.memory.scopes import Scopes
from nanobot.session.records import is_own

_SYSTEM = ("dream", "heartbeat")


class NoJob(Exception):
    """An entry that becomes no job; says why."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A job, and what is not as it was."""

    job: Job
    note: str = ""


def converted(
    store: Fields, actions: Iterable[Fields], people: People, now: datetime
) -> Iterator[Taken | tuple[str, str]]:
    """The jobs of a jobs.json, with the changes of an action.jsonl that were still to be made; for
    what becomes none its name and the reason."""
    entries = {f.text("id") or f"#{n}": f for n, f in enumerate(map(Fields, store.items("jobs")))}
    for action in actions:
        given = action.inner("params")
        if action.text("action") == "del":
            entries.pop(given.text("job_id"), None)
        elif given.text("id"):
            entries[given.text("id")] = given
    for id, entry in entries.items():
        try:
            yield _job(id, entry, people, now)
        except NoJob as error:
            yield entry.text("name") or id, str(error)


def _job(id: str, given: Fields, people: People, now: datetime) -> Taken:
    """Raises `NoJob`."""
    payload = given.inner("payload")
    if payload.text("kind") == "system_event" or id in _SYSTEM:
        raise NoJob("nanobot does this by itself")
    message = payload.text("message")
    if not 0 < len(message) <= MOST_MESSAGE:
        raise NoJob(f"its message must have 1 to {MOST_MESSAGE:,} characters")
    schedule = _schedule(given.inner("schedule"), now)
    address = _address(payload)
    known = address.channel in (TERMINAL, *OURS)
    key, scopes = address.key, Scopes(people.is_owner)
    return Taken(
        Job(
            id=id,
            name=" ".join(given.text("name").split())[:MOST_NAME] or message[:40],
            schedule=schedule,
            zone=_zone(given.inner("schedule").text("tz")) if isinstance(schedule, Cron) else "",
            message=message,
            channel=address.channel,
            chat_id=address.chat_id,
            thread_id=address.thread_id,
            scope=scopes.of_session(key, {"group": True} if is_group(key) else {}),
            created_by="",
            created_at=_time(given.number("created_at_ms")) or now.astimezone(UTC),
            after=_after(schedule, given.inner("state"), now),
            enabled=known and given.flag("enabled", otherwise=True),
        ),
        "" if known else f"it is paused: there is no channel {address.channel}",
    )


def _schedule(given: Fields, now: datetime) -> Schedule:
    kind, every = given.text("kind"), given.number("every_ms")
    text = given.text("expr")
    if kind == "every":
        text = f"every {_span((every or 0) // 1_000)}"
    elif kind == "at":
        due = _time(given.number("at_ms"))
        if due is None or due <= now:
            raise NoJob("its time has passed")
        text = f"at {due.isoformat()}"
    try:
        found = parse(text)
    except ScheduleError as error:
        raise NoJob(str(error)) from None
    if kind == "cron" and not isinstance(found, Cron):
        raise NoJob("its schedule cannot be read")
    if isinstance(found, Every) and found.interval < LEAST_INTERVAL:
        raise NoJob("its runs are less than a minute apart")
    return found


def _span(seconds: int) -> str:
    """`1h30m`."""
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def _address(payload: Fields) -> Address:
    """Where it speaks: in the terminal where it said nothing of that."""
    channel = payload.text("origin_channel") or payload.text("channel")
    chat = payload.text("origin_chat_id") or payload.text("to")
    bound = key_of(payload.text("session_key"))
    if bound.partition(":")[0] == channel and not is_own(bound):
        address = bound
    else:
        address = key_of(f"{channel}:{chat}") if channel and chat else ""
    try:
        return address_of(address or f"{TERMINAL}:direct")
    except NanobotError as error:
        raise NoJob(str(error)) from None


def _after(schedule: Schedule, state: Fields, now: datetime) -> datetime:
    """Up to when its due times are done with, so that it comes when it would have come."""
    due = _time(state.number("next_run_at_ms"))
    if isinstance(schedule, Every) and due is not None and due > now:
        return due - schedule.interval
    return now.astimezone(UTC)


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key if name else ""
    except (OSError, ValueError, KeyError):
        raise NoJob(f"there is no time zone {name[:60]}") from None


def _time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
