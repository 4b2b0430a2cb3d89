"""What is told about jobs: to the model when one runs, to people, and to machines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo

from nanobot.bus.events import NANOBOT, InboundMessage
from nanobot.cron.job import Job, Run
from nanobot.cron.planning import MOST_COUNTED, next_due, zone_of
from nanobot.messages import SILENT
from nanobot.security.names import printable
from nanobot.templates import render

_LATE = timedelta(minutes=5)
_ROUND = str.maketrans("[]", "()")
_SHOWN = 200


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
    return _content(job, run.due, _late(job, run, now), now)


def content_now(job: Job, now: datetime) -> str:
    """The same for a run that somebody asked for."""
    return _content(job, now, ", since somebody asked for it now", now)


def _content(job: Job, due: datetime, late: str, now: datetime) -> str:
    zone = _zone(job, now)
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


def _late(job: Job, run: Run, now: datetime) -> str:
    if run.missed:
        count = "more than " if run.missed >= MOST_COUNTED and run.through != run.due else ""
        times = "time that was" if run.missed == 1 else "times that were"
        return f"; this run also stands for {count}{run.missed} earlier {times} missed"
    if now - run.due > _LATE:
        return f"; it is late, now is {moment_text(now, _zone(job, now))}"
    return ""


def schedule_text(job: Job) -> str:
    """Its schedule, with the zone where it has one of its own."""
    return f"{job.schedule.text} ({job.zone})" if job.zone else job.schedule.text


def moment_text(moment: datetime, zone: tzinfo) -> str:
    """A moment as people in `zone` read it: `Mon 2026-03-02 09:00 +01:00`."""
    local = moment.astimezone(zone)
    return f"{local:%a %Y-%m-%d %H:%M} {local.isoformat()[-6:]}"


def one_line(text: str) -> str:
    """What somebody wrote, as it may stand within a line in brackets."""
    return printable(" ".join(text.translate(_ROUND).split())[:_SHOWN])


def next_text(job: Job, now: datetime) -> str:
    """When it is due next, for people."""
    if not job.enabled:
        return "paused"
    zone = _zone(job, now)
    due = next_due(job, now, zone)
    return f"next {moment_text(due, zone)}" if due else "never due again"


def reminder_set(job: Job, now: datetime) -> str:
    """What a chat is told of a reminder that was made there."""
    return f"Reminder set ({schedule_text(job)}, {next_text(job, now)}):\n\n{job.message}"


def line_of(job: Job, now: datetime) -> str:
    """A job in one line of Markdown."""
    where = one_line(job.address.key)
    kind = "reminder: " if job.reminder else ""
    when = f"{schedule_text(job)}, {next_text(job, now)}"
    return f"- `{job.id}` {kind}{one_line(job.name)}: {when}, {where}"


def list_text(jobs: Iterable[Job], trouble: str, now: datetime) -> str:
    """Jobs for a chat."""
    lines = [line_of(job, now) for job in jobs] or ["Nothing is scheduled."]
    return "\n".join([*([f"Careful: {trouble}", ""] if trouble else []), *lines])


def fields_of(job: Job, now: datetime) -> dict[str, object]:
    """A job for machines."""
    zone = _zone(job, now)
    due = next_due(job, now, zone) if job.enabled else None
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


def _zone(job: Job, now: datetime) -> tzinfo:
    here = now.tzinfo
    assert here is not None
    return zone_of(job, here)
