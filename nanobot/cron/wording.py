"""Jobs in words: what somebody wants scheduled (`in 20m` included), checked; and what is told about
jobs to the model when one runs, to people, and to machines. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from nanobot.bus.events import NANOBOT, Address, InboundMessage
from nanobot.clock import find_zone
from nanobot.cron.job import MOST_COUNTED, Job, Run, next_due, zone_of
from nanobot.cron.schedule import At, Every, Schedule, ScheduleError, parse
from nanobot.errors import NanobotError
from nanobot.messages import SILENT
from nanobot.templates import render
from nanobot.text import one_line, shortened

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


def draft_job(
    schedule: str,
    message: str,
    place: Place,
    now: datetime,
    *,
    name: str = "",
    zone: str = "",
    reminder: bool = False,
) -> Job:
    """The job that is wanted, checked, without an id. `zone` is empty for the agent's, which is
    that of `now`.

    Raises `NanobotError`, `ScheduleError` among them, which says how it is written.
    """
    message, name, schedule = message.strip(), " ".join(name.split()), schedule.strip()
    if not 0 < len(message) <= MOST_MESSAGE:
        raise NanobotError(f"the message must have 1 to {MOST_MESSAGE:,} characters")
    if len(schedule) > _MOST_SCHEDULE:
        raise ScheduleError(f"{schedule[:_MOST_SCHEDULE]}…", "it is too long")
    there = find_zone(zone) if zone else now.tzinfo
    if there is None:
        raise NanobotError(
            f"there is no time zone {zone[:60]!r}", hint="Zones have names such as Europe/Berlin."
        )
    parsed = _schedule(schedule, now)
    try:
        first = parsed.next_after(now, there)
    except OverflowError:
        raise ScheduleError(schedule, "that is too far away") from None
    if first is None:
        clock = now.astimezone(there).isoformat(" ", "minutes")
        raise ScheduleError(schedule, f"that time has passed (it is {clock})")
    if isinstance(parsed, At) and parsed.time.tzinfo is not None:
        zone = ""  # the offset says it all
    made_at = now.astimezone(UTC)
    return Job(
        id="",
        name=name[:MOST_NAME] or shortened(message, _NAME_FROM_MESSAGE),
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
        reminder=reminder,
    )


def split_schedule(text: str) -> tuple[str, str]:
    """The schedule at the beginning of `text`, unchecked, and what follows it: `in 1h 30m`,
    `every 2h`, `at 2026-12-01 09:00`, or the five fields of a cron expression."""
    found = _TIMED.match(text) or _FIELDS.match(text)
    return (found[0].strip(), text[found.end() :].strip()) if found else (text.strip(), "")


def address_of(text: str) -> Address:
    """A chat's address. Raises `NanobotError` for what is none."""
    address = Address.of(text.strip())
    if not (address.channel and address.chat_id):
        raise NanobotError(
            f"{text[:80]!r} is not a chat", hint="Chats are written as telegram:123."
        )
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


_LATE = timedelta(minutes=5)


def message_of(job: Job, event: str, content: str, now: datetime) -> InboundMessage:
    """What a run puts into the inbox; `event` tells the runs of a job apart."""
    return InboundMessage(
        job.channel,
        job.chat_id,
        sender_id=NANOBOT,
        content=content,
        event_id=f"cron:{job.id}:{event}",
        timestamp=now,
        thread_id=job.thread_id,
        session_override=job.session_key,
        is_group=job.scope.startswith("groups/"),
        origin=f"job:{job.id}" if job.origins else NANOBOT,
        sender_name=job.name,
        begun_by="job",
        scope=job.scope,
        job=job.id,
    )


def content_of(job: Job, run: Run, now: datetime) -> str:
    """What the model reads when `job` runs, or for a reminder what is sent."""
    late = ""
    if run.missed:
        count = "more than " if run.missed >= MOST_COUNTED and run.through != run.due else ""
        times = "time that was" if run.missed == 1 else "times that were"
        late = f"; this run also stands for {count}{run.missed} earlier {times} missed"
    elif now - run.due > _LATE:
        late = f"; it is late, now is {moment_text(now, zone_of(job, now))}"
    return _content(job, run.due, late, now)


def content_now(job: Job, now: datetime) -> str:
    """The same for a run that somebody asked for."""
    return _content(job, now, ", since somebody asked for it now", now)


def _content(job: Job, due: datetime, late: str, now: datetime) -> str:
    zone = zone_of(job, now)
    if job.reminder:
        was_due = f"\n\n(due {moment_text(due, zone)}{late})" if late else ""
        return f"⏰ {job.message}{was_due}"
    return render(
        "job.md",
        id=job.id,
        called=one_line(job.name),
        schedule=schedule_text(job),
        made=job.created_at.astimezone(zone).strftime("%Y-%m-%d"),
        by=one_line(f"{job.channel}:{job.created_by}") if job.created_by else "the owner",
        due=moment_text(due, zone),
        late=late,
        message=job.message,
        silent=SILENT,
    ).rstrip("\n")


def schedule_text(job: Job) -> str:
    """Its schedule, with the zone where it has one of its own."""
    return f"{job.schedule.text} ({job.zone})" if job.zone else job.schedule.text


def moment_text(moment: datetime, zone: tzinfo) -> str:
    """A moment as people in `zone` read it: `Mon 2026-03-02 09:00 +01:00`."""
    local = moment.astimezone(zone)
    return f"{local:%a %Y-%m-%d %H:%M} {local.isoformat()[-6:]}"


def next_text(job: Job, now: datetime) -> str:
    """When it is due next, for people."""
    if not job.enabled:
        return "paused"
    zone = zone_of(job, now)
    due = next_due(job, now)
    return f"next {moment_text(due, zone)}" if due else "never due again"


def reminder_set(job: Job, now: datetime) -> str:
    """What a chat is told of a reminder that was made there."""
    return f"Reminder set ({schedule_text(job)}, {next_text(job, now)}):\n\n{job.message}"


def line_of(job: Job, now: datetime) -> str:
    """A job in one line of Markdown."""
    kind = "reminder: " if job.reminder else ""
    when = f"{schedule_text(job)}, {next_text(job, now)}"
    return f"- `{job.id}` {kind}{one_line(job.name)}: {when}, {one_line(job.address.key)}"


def list_text(jobs: Iterable[Job], trouble: str, now: datetime) -> str:
    """Jobs for a chat."""
    lines = [line_of(job, now) for job in jobs] or ["Nothing is scheduled."]
    return "\n".join([*([f"Careful: {trouble}", ""] if trouble else []), *lines])


def fields_of(job: Job, now: datetime) -> dict[str, object]:
    """A job for machines."""
    zone = zone_of(job, now)
    due = next_due(job, now) if job.enabled else None
    return {
        "id": job.id,
        "name": job.name,
        "schedule": job.schedule.text,
        "zone": job.zone,
        "message": job.message,
        "reminder": job.reminder,
        "chat": job.address.key,
        "scope": job.scope,
        "enabled": job.enabled,
        "next": due.astimezone(zone).isoformat() if due else None,
        "last": job.runs[-1].astimezone(zone).isoformat() if job.runs else None,
        "created_by": job.created_by,
        "created_at": job.created_at.astimezone(zone).isoformat(timespec="seconds"),
        "origins": list(job.origins),
    }
