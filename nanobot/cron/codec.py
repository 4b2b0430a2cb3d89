"""Jobs as JSON text, and back.

What always holds: whatever this version does not understand comes out again as it went in. Fields
that it does not know are kept beside those it knows; an entry that it cannot read is kept whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from nanobot.cron.job import Job, Jobs, Run
from nanobot.cron.schedule import ScheduleError, parse
from nanobot.security.documents import UnfitDocument, versioned_object

VERSION = 1

_TOP = frozenset({"version", "jobs"})
_KNOWN = frozenset(field.name for field in fields(Job)) - {"extra"}


def encoded(jobs: Jobs) -> bytes:
    """The whole file."""
    entries = [*map(_as_json, jobs.jobs), *map(json.loads, jobs.unread)]
    content = {**json.loads(jobs.extra), "version": VERSION, "jobs": entries}
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def decoded(content: bytes) -> Jobs:
    """What a file holds. Raises `UnfitDocument` where it is no list of jobs of this version."""
    top = versioned_object(content, VERSION)
    entries = top.get("jobs")
    if not isinstance(entries, list):
        raise UnfitDocument("it has no list 'jobs'")
    jobs: dict[str, Job] = {}
    unread = []
    for entry in entries:
        try:
            job = _job(_Fields(entry))
            if job.id in jobs:
                raise UnfitDocument("another entry has the same id")  # noqa: TRY301 - kept like the others
        except UnfitDocument:
            unread.append(json.dumps(entry))
        else:
            jobs[job.id] = job
    return Jobs(tuple(jobs.values()), tuple(unread), _without(top, _TOP))


def problem_of(entry: str) -> str:
    """Why an entry that is kept as JSON was not understood."""
    try:
        _job(_Fields(json.loads(entry)))
    except UnfitDocument as error:
        return str(error)
    return "another entry has the same id"


def _as_json(job: Job) -> dict[str, object]:
    return {
        **json.loads(job.extra),
        "id": job.id,
        "name": job.name,
        "schedule": job.schedule.text,
        "zone": job.zone,
        "message": job.message,
        "channel": job.channel,
        "chat_id": job.chat_id,
        "thread_id": job.thread_id,
        "scope": job.scope,
        "created_by": job.created_by,
        "created_at": job.created_at.isoformat(),
        "origins": list(job.origins),
        "reminder": job.reminder,
        "enabled": job.enabled,
        "after": job.after.isoformat(),
        "runs": [due.isoformat() for due in job.runs],
        "begun": _run_as_json(job.begun) if job.begun else None,
        "ceiling": job.ceiling.isoformat() if job.ceiling else None,
    }


def _run_as_json(run: Run) -> dict[str, object]:
    return {
        "due": run.due.isoformat(), "through": run.through.isoformat(), "missed": run.missed,
    }  # fmt: skip


class _Fields:
    """The fields of one object, each with its type."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise UnfitDocument("it is not an object")
        self.value: Mapping[str, object] = value

    def text(self, key: str, *, needed: bool = False) -> str:
        value = self.value.get(key)
        if not isinstance(value, str) or (needed and not value):
            raise UnfitDocument(f"it has no text {key!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value.get(key)
        if not isinstance(value, list):
            raise UnfitDocument(f"it has no list {key!r}")
        texts = tuple(item for item in value if isinstance(item, str))
        if len(texts) < len(value):
            raise UnfitDocument(f"{key!r} has something in it that is no text")
        return texts

    def flag(self, key: str) -> bool:
        value = self.value.get(key)
        if not isinstance(value, bool):
            raise UnfitDocument(f"it does not say whether {key!r}")
        return value

    def count(self, key: str) -> int:
        value = self.value.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise UnfitDocument(f"it has no number {key!r}")
        return value

    def moment(self, key: str) -> datetime:
        return _moment(self.text(key))


def _job(given: _Fields) -> Job:
    """Raises `UnfitDocument`."""
    try:
        schedule = parse(given.text("schedule"))
    except ScheduleError as error:
        raise UnfitDocument(str(error)) from error
    begun, ceiling = given.value.get("begun"), given.value.get("ceiling")
    return Job(
        id=given.text("id", needed=True),
        name=given.text("name"),
        schedule=schedule,
        zone=_zone(given.text("zone")),
        message=given.text("message"),
        channel=given.text("channel", needed=True),
        chat_id=given.text("chat_id", needed=True),
        thread_id=given.text("thread_id"),
        scope=given.text("scope", needed=True),
        created_by=given.text("created_by"),
        created_at=given.moment("created_at"),
        after=given.moment("after"),
        origins=given.texts("origins"),
        reminder=given.value.get("reminder") is True,  # versions before 0.2 had none
        enabled=given.flag("enabled"),
        runs=tuple(map(_moment, given.texts("runs"))),
        begun=None if begun is None else _run(_Fields(begun)),
        ceiling=None if ceiling is None else given.moment("ceiling"),
        extra=_without(given.value, _KNOWN),
    )


def _run(given: _Fields) -> Run:
    return Run(given.moment("due"), given.moment("through"), given.count("missed"))


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key if name else ""
    except (OSError, ValueError, KeyError):
        raise UnfitDocument(f"there is no time zone {name[:60]!r}") from None


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise UnfitDocument(f"{text[:40]!r} is not a time")


def _without(value: Mapping[str, object], known: frozenset[str]) -> str:
    return json.dumps({key: item for key, item in value.items() if key not in known})
