"""Scheduled jobs: their values, their creation from a person's words, their document, and their due
times. Pure except for the document.

A job does not store its next due time. It stores the time up to which its due times are finished
(`after`), and the next one follows from its schedule. So a changed time zone applies at once.
Invariants:

- Each due time is run for once. Due times that passed unattended are combined into one run.
- A clock that is set back by up to three hours repeats nothing. If it is set back further, it had
  been wrong: due times come again, except those already run for. A clock that shows a time before
  the job was made is wrong itself, and nothing is due by it.
- `every` counts elapsed time: setting the clock back does not change how soon it is due again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from nanobot.bus.events import Address
from nanobot.bus.state import Document, InvalidDocument, StateStore, decode_versioned
from nanobot.clock import find_zone
from nanobot.cron.schedule import At, Every, Schedule, ScheduleError, parse
from nanobot.errors import NanobotError
from nanobot.text import shorten

KEPT_RUNS = 20
"""Due times that a job remembers."""

_Moment = Annotated[datetime, Meta(tz=True)]
_Name = Annotated[str, Meta(min_length=1)]


class Run(Struct, frozen=True):
    """A run that has begun. It is stored before its message is published, so the message is
    published once, even after a crash.

    `due` is the first due time of the run and names it. All due times up to `through` are finished
    with it. Both are in UTC."""

    due: _Moment
    through: _Moment

    @property
    def event(self) -> str:
        """Id of the run within its job, independent of a hand-written zone."""
        return self.due.astimezone(UTC).isoformat()


class Job(Struct, frozen=True):
    """A message that is sent to a chat at set times.

    The agent runs with the message. A `reminder` is sent unchanged, without a model. `zone` is an
    IANA name, empty for the agent's zone. `scope` is the owner of the memory and files, `origins`
    the untrusted content that the job may come from, `created_by` the sender who requested it. Due
    times up to `after` are finished, and so are the times in `runs` (the latest ones, the newest
    last). `begun` is a run without a stored end. Moments are in UTC.

    `model` is the requested model, empty for the usual one. `typed` is the schedule as a person
    typed it, empty if that is its stored form.

    A stored job needs every field but the last four: a job that lost its `origins` must not become
    the owner's own."""

    id: _Name
    name: str
    schedule: Schedule
    zone: str
    message: str
    channel: _Name
    chat_id: _Name
    thread_id: str
    scope: _Name
    created_by: str
    created_at: _Moment
    after: _Moment
    origins: tuple[str, ...]
    enabled: bool
    runs: tuple[_Moment, ...]
    reminder: bool = False
    model: str = ""
    typed: str = ""
    begun: Run | None = None

    @property
    def session_key(self) -> str:
        return f"cron:{self.id}"

    @property
    def address(self) -> Address:
        return Address(self.channel, self.chat_id, self.thread_id)


Jobs = Mapping[str, Job]
"""All jobs by their ids, the oldest first."""

LEAST_INTERVAL = timedelta(seconds=60)
MOST_NAME, MOST_MESSAGE = 60, 4_000

_NAME_FROM_MESSAGE, _MOST_SCHEDULE = 40, 200
_EXPRESSION = r"\s*(?:[\d*][\w*/,-]*\s+){3}(?:\S+\s+)\S+"


class JobPlace(Struct, frozen=True):
    """The chat of a job, its scope and its creator. `origins` is as in `Job`."""

    address: Address
    scope: str
    created_by: str
    origins: tuple[str, ...] = ()


def draft_job(
    schedule: str,
    message: str,
    place: JobPlace,
    now: datetime,
    *,
    name: str = "",
    zone: str = "",
    reminder: bool = False,
    model: str = "",
) -> Job:
    """Return a checked job without an id. `zone` is empty for the agent's zone, which is that of
    `now`.

    Raise `NanobotError`, or `ScheduleError` with examples."""
    message, name, schedule = message.strip(), " ".join(name.split()), schedule.strip()
    if not 0 < len(message) <= MOST_MESSAGE:
        raise NanobotError(f"the message must be 1 to {MOST_MESSAGE:,} characters long")
    there = find_zone(zone) if zone else now.tzinfo
    if there is None:
        raise NanobotError(
            f"there is no time zone {zone[:60]!r}", hint="Use a name such as Europe/Berlin."
        )
    parsed = read_schedule(schedule, now.astimezone(there))
    try:
        first = parsed.next_after(now, there)
    except OverflowError:
        raise ScheduleError(schedule, "that is too far in the future") from None
    if first is None:
        clock = now.astimezone(there).isoformat(" ", "minutes")
        raise ScheduleError(schedule, f"that time has passed (it is now {clock})")
    if isinstance(parsed, At) and parsed.time.tzinfo is not None:
        zone = ""  # the offset is enough
    made_at = now.astimezone(UTC)
    is_as_stored = "".join(schedule.split()).casefold() == "".join(parsed.text.split()).casefold()
    return Job(
        id="",
        name=name[:MOST_NAME] or shorten(message, _NAME_FROM_MESSAGE),
        schedule=parsed,
        zone=zone,
        message=message,
        channel=place.address.channel,
        chat_id=place.address.chat_id,
        thread_id=place.address.thread_id,
        scope=place.scope,
        created_by=place.created_by,
        created_at=made_at,
        after=made_at.replace(microsecond=0),
        origins=place.origins,
        enabled=True,
        runs=(),
        reminder=reminder,
        model=model,
        typed="" if is_as_stored else schedule,
    )


def split_schedule(text: str) -> tuple[str, str]:
    """Return the unchecked schedule at the beginning of `text` and the rest: `in 1h 30m`, `every
    day at 8`, `at 2026-12-01 09:00`, or the five fields of a cron expression."""
    from nanobot.cron.words import longest_prefix

    text = text.strip()
    found = re.match(_EXPRESSION, text)
    end = max(found.end() if found else 0, len(longest_prefix(text)))
    return (text[:end].strip(), text[end:].lstrip(" \n\t:,").rstrip()) if end else (text, "")


def address_of(text: str) -> Address:
    """Parse a chat's address. Raise `NanobotError` if it is invalid."""
    address = Address.of(text.strip())
    if not (address.channel and address.chat_id):
        raise NanobotError(
            f"{text[:80]!r} is not a chat address", hint="Use the format telegram:123."
        )
    return address


def read_schedule(text: str, now: datetime) -> Schedule:
    from nanobot.cron.words import understand

    if len(text) > _MOST_SCHEDULE:
        raise ScheduleError(f"{text[:_MOST_SCHEDULE]}…", "it is too long")
    schedule = understand(text, now)
    if isinstance(schedule, Every) and schedule.interval < LEAST_INTERVAL:
        raise ScheduleError(text, "runs must be at least a minute apart")
    return schedule


_VERSION = 1
_ADVICE = "No jobs will run until you fix it, save it as state/jobs.json, and restart nanobot."


class JobStore(Document[Jobs]):
    def __init__(self, store: StateStore) -> None:
        super().__init__(
            store, "jobs", decode_jobs, lambda jobs: encode_jobs(jobs.values()), {}, _ADVICE
        )


def encode_jobs(jobs: Iterable[Job]) -> bytes:
    entries = [
        {**to_builtins(job, builtin_types=(datetime,)), "schedule": job.schedule.text}
        for job in jobs
    ]
    content = {"version": _VERSION, "jobs": entries}
    return json.dumps(content, indent=1, default=datetime.isoformat).encode("ascii") + b"\n"


def decode_jobs(content: bytes) -> Jobs:
    """Parse the document. Raise `InvalidDocument` if it is not a job list of this version."""
    entries = decode_versioned(content, _VERSION).get("jobs")
    try:
        # msgspec decodes every type except schedules.
        jobs = convert(entries, list[Job], dec_hook=lambda _, value: parse(str(value)))
    except (ValidationError, ScheduleError) as error:
        raise InvalidDocument(str(error)) from error
    for job in jobs:
        if find_zone(job.zone or "UTC") is None:
            raise InvalidDocument(f"there is no time zone {job.zone!r:.60}")
    by_id = {job.id: job for job in jobs}
    if len(by_id) < len(jobs):
        raise InvalidDocument("two jobs have the same id")
    return by_id


SMALL_STEP = timedelta(hours=3)
"""A clock set back by up to this time repeats nothing. If set back by more, it had been wrong."""

_SMALL_STEP_OF_EVERY = timedelta(minutes=1)


def zone_of(job: Job, now: datetime) -> tzinfo:
    """Return the zone of its schedule, by default the agent's, which is that of `now`."""
    zone = ZoneInfo(job.zone) if job.zone else now.tzinfo
    assert zone is not None
    return zone


def next_due(job: Job, now: datetime) -> datetime | None:
    """Return the next due time in UTC, possibly before `now`, or None for never again."""
    return due_after(job, job.after, now)


def due_after(job: Job, moment: datetime, now: datetime) -> datetime | None:
    """Return the first time after `moment` that was not run for, in UTC."""
    zone = zone_of(job, now)
    due = job.schedule.next_after(moment, zone)
    while due is not None and due.astimezone(UTC) in job.runs:  # after the clock was set back
        due = job.schedule.next_after(due, zone)
    return None if due is None else due.astimezone(UTC)


def due_run(job: Job, now: datetime) -> Run | None:
    """Return the pending run, combining missed due times, or None."""
    due = next_due(job, now)
    if due is None or due > now:
        return None
    if isinstance(job.schedule, Every):  # keeps its step
        interval = job.schedule.interval
        return Run(due, due + (now - due) // interval * interval)  # the last due time up to now
    return Run(due, now.astimezone(UTC))


def after_run(job: Job, run: Run) -> Job | None:
    """Return the job after `run` was published, or None if it is over."""
    if isinstance(job.schedule, At):
        return None
    return replace(job, after=run.through, runs=(*job.runs, run.due)[-KEPT_RUNS:], begun=None)


def after_clock_change(job: Job, now: datetime) -> Job:
    """Return the job with `after` moved back if the clock was set back, or else the same job."""
    step = _SMALL_STEP_OF_EVERY if isinstance(job.schedule, Every) else SMALL_STEP
    if job.after - now <= step or now < job.created_at:
        return job
    return replace(job, after=now.astimezone(UTC))


def resume_job(job: Job, now: datetime) -> Job:
    """Return the job, no longer paused. Missed due times are skipped."""
    return replace(job, enabled=True, after=max(job.after, now.astimezone(UTC)))


def schedule_text(job: Job) -> str:
    """Return the schedule as it was typed, with the zone if the job sets one."""
    words = job.typed or job.schedule.text
    if isinstance(job.schedule, At):  # "in 20m" counts from when it was typed
        words = f"“{job.typed}”" if job.typed else "once"
    return f"{words} ({job.zone})" if job.zone else words


def moment_text(moment: datetime, zone: tzinfo | None) -> str:
    """Return a moment as people in `zone` read it: `Mon 2026-03-02 09:00 +01:00`."""
    local = moment.astimezone(zone)
    return f"{local:%a %Y-%m-%d %H:%M} {local.isoformat()[-6:]}"


def next_text(job: Job, now: datetime) -> str:
    """Return the next due time in the agent's zone, because readers live there."""
    if not job.enabled:
        return "paused"
    due = next_due(job, now)
    return f"next {moment_text(due, now.tzinfo)}" if due else "no more runs"
