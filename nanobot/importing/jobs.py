"""Scheduled jobs of the other program as ours. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nanobot.bus.events import TERMINAL, Address
from nanobot.clock import find_zone
from nanobot.cron.job import Job
from nanobot.cron.schedule import Cron, Every, Schedule, ScheduleError, parse
from nanobot.cron.wording import LEAST_INTERVAL, MOST_MESSAGE, MOST_NAME, address_of
from nanobot.errors import NanobotError
from nanobot.importing.foreign import OURS, Fields, People, is_group, key_of
from nanobot.memory.scopes import Scopes
from nanobot.session.records import is_own

_SYSTEM = ("dream", "heartbeat")


class NoJob(Exception):
    """An entry that becomes no job; says why."""


def converted(
    store: Fields, people: People, now: datetime
) -> Iterator[tuple[str, Job | None, str]]:
    """The jobs of a jobs.json: each with its name and what is not as it was, or None and the reason
    why it becomes none."""
    entries = {f.text("id") or f"#{n}": f for n, f in enumerate(map(Fields, store.items("jobs")))}
    for id, entry in entries.items():
        try:
            job = _job(id, entry, people, now)
        except NoJob as error:
            yield entry.text("name") or id, None, str(error)
        else:
            known = job.channel in (TERMINAL, *OURS)
            note = "" if known else f"it is paused: there is no channel {job.channel}"
            yield job.name, replace(job, enabled=known and job.enabled), note


def _job(id: str, given: Fields, people: People, now: datetime) -> Job:
    """Raises `NoJob`."""
    payload, zone = given.inner("payload"), given.inner("schedule").text("tz")
    if payload.text("kind") == "system_event" or id in _SYSTEM:
        raise NoJob("nanobot does this by itself")
    message = payload.text("message")
    if not 0 < len(message) <= MOST_MESSAGE:
        raise NoJob(f"its message must have 1 to {MOST_MESSAGE:,} characters")
    if zone and find_zone(zone) is None:
        raise NoJob(f"there is no time zone {zone[:60]}")
    schedule, address = _schedule(given.inner("schedule"), now), _address(payload)
    due, after = _time(given.inner("state").number("next_run_at_ms")), now.astimezone(UTC)
    if isinstance(schedule, Every) and due is not None and due > now:
        after = due - schedule.interval  # so that it comes when it would have come
    is_shared = {"group": True} if is_group(address.key) else {}
    return Job(
        id=id,
        name=" ".join(given.text("name").split())[:MOST_NAME] or message[:40],
        schedule=schedule,
        zone=zone if isinstance(schedule, Cron) else "",
        message=message,
        channel=address.channel,
        chat_id=address.chat_id,
        thread_id=address.thread_id,
        scope=Scopes(people.is_owner).of_session(address.key, is_shared),
        created_by="",
        created_at=_time(given.number("created_at_ms")) or now.astimezone(UTC),
        after=after,
        enabled=given.flag("enabled", otherwise=True),
    )


def _schedule(given: Fields, now: datetime) -> Schedule:
    kind, every = given.text("kind"), given.number("every_ms")
    text = given.text("expr")
    if kind == "every":
        seconds = max(0, every or 0) // 1_000
        units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
        text = next(f"every {seconds // size}{unit}" for unit, size in units if not seconds % size)
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


def _time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
