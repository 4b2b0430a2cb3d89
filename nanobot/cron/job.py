"""A scheduled job, and all jobs together: values. Every change makes a new one.

Jobs as JSON text, and back.

What always holds: whatever this version does not understand comes out again as it went in. Fields
that it does not know are kept beside those it knows; an entry that it cannot read is kept whole.

`state/jobs.json`: the scheduled jobs, readable by the owner of the home only.

Invariant: nothing is overwritten that was not understood. A file that cannot be parsed is
quarantined as it is; an entry that cannot is kept in its place; and what somebody else wrote into
the file meanwhile is read before anything is written.

When a job runs, and what a run stands for. Pure.

A job keeps no next due time. It keeps up to when its due times are done with (`after`), and the
next one follows from its schedule, so that a changed time zone counts at once. What always holds:

- A due time is run for once. Those that passed while nobody ran them are one run together.
- A clock that is set back by up to three hours repeats nothing. Set back further, it had been
  wrong: due times come again, but not those that were run for; and where it is set forward again,
  what was done with before is not missed.
- `every` counts time that passes: a clock that is set back changes nothing about how soon it is due
  again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from loguru import logger

from nanobot.bus.events import Address
from nanobot.cron.schedule import At, Every, Schedule, ScheduleError, parse
from nanobot.security.documents import StateDocument, UnfitDocument, versioned_object

KEPT_RUNS = 20
"""Due times that a job remembers to have run for."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has begun: written down before its message is published, so that it is published
    once whatever happens in between.

    `due` is the due time that names it, and `missed` the number of earlier ones it stands for as
    well. With it every due time up to `through` is done with. All in UTC.
    """

    due: datetime
    through: datetime
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A message that comes by itself, in a chat, at set times.

    The agent runs with it; where it is a `reminder` it is sent as it is, and no model runs. `zone`
    is an IANA name; where it is empty, that of the agent counts. `scope` is whose memory and files,
    `origins` the untrusted text that the job may come from, `created_by` the sender who wanted it.
    Due times up to `after` are done with; so are those in `runs` (the latest ones, the newest
    last), and once the clock is past `ceiling` all up to there: it was ahead before it was set back
    to `after`. `begun` is a run whose end is not written down yet. `extra` is the JSON object of
    fields in the file that this version does not know. Moments are in UTC.
    """

    id: str
    name: str
    schedule: Schedule
    zone: str
    message: str
    channel: str
    chat_id: str
    thread_id: str
    scope: str
    created_by: str
    created_at: datetime
    after: datetime
    origins: tuple[str, ...] = ()
    reminder: bool = False
    enabled: bool = True
    runs: tuple[datetime, ...] = ()
    begun: Run | None = None
    ceiling: datetime | None = None
    extra: str = "{}"

    @property
    def session_key(self) -> str:
        """The conversation that its runs have."""
        return f"cron:{self.id}"

    @property
    def address(self) -> Address:
        """The chat it speaks in."""
        return Address(self.channel, self.chat_id, self.thread_id)

    @property
    def runs_once(self) -> bool:
        """Whether it is over after its run."""
        return isinstance(self.schedule, At)


@dataclass(frozen=True, slots=True)
class Jobs:
    """All jobs. `unread` are entries of the file that were not understood, as JSON, and `extra` the
    JSON object of its fields beside the jobs: both are kept as they are."""

    jobs: tuple[Job, ...] = ()
    unread: tuple[str, ...] = ()
    extra: str = "{}"

    def find(self, id: str) -> Job | None:
        """The job with this id."""
        return next((job for job in self.jobs if job.id == id), None)

    def of(self, scope: str) -> tuple[Job, ...]:
        """The jobs of one scope."""
        return tuple(job for job in self.jobs if job.scope == scope)

    def adding(self, job: Job) -> Jobs:
        """With one more job."""
        return replace(self, jobs=(*self.jobs, job))

    def changing(self, id: str, change: Callable[[Job], Job | None]) -> Jobs:
        """With one job changed, or without it where `change` gives None; the same where there is no
        such job."""
        changed = (change(job) if job.id == id else job for job in self.jobs)
        return replace(self, jobs=tuple(job for job in changed if job is not None))


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


_ADVICE = "Fix it and put it back in its place; its jobs do not run until then."


class JobStore(StateDocument[Jobs]):
    """The jobs in the file at `path`, in an existing folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, self._decoded, encoded, Jobs(), _ADVICE, keep_unreadable=True)
        self._unread = ""

    @property
    def problems(self) -> str:
        """What was not understood when it was read, and what to do; empty where all was."""
        return " ".join(filter(None, (self.trouble, self._unread)))

    def _decoded(self, content: bytes) -> Jobs:
        jobs = decoded(content)
        entries = [f"An entry is not used: {problem_of(one)}." for one in jobs.unread]
        self._unread = " ".join([*entries, f"It stays in {self.path} as it is."] if entries else ())
        if entries:
            logger.error("{}", self._unread)
        return jobs


MOST_COUNTED = 200
"""Due times that are counted one by one; a run that stands for more says so."""

SMALL_STEP = timedelta(hours=3)
"""A clock that is set back by no more repeats nothing; by more, it had been wrong."""

_SMALL_STEP_OF_EVERY = timedelta(minutes=1)


def zone_of(job: Job, here: tzinfo) -> tzinfo:
    """The zone in which its schedule is read; `here` is the agent's."""
    return ZoneInfo(job.zone) if job.zone else here


def next_due(job: Job, now: datetime, here: tzinfo) -> datetime | None:
    """When it is due next, in UTC, perhaps before `now`; None for never again."""
    return _due_after(job, _passed(job, now), here)


def due_run(job: Job, now: datetime, here: tzinfo) -> Run | None:
    """The run that is due by `now`, for all due times that were not run for; None where none is."""
    due = next_due(job, now, here)
    if due is None or due > now:
        return None
    if isinstance(job.schedule, Every):
        missed = (now - due) // job.schedule.interval
        due += missed * job.schedule.interval
        return Run(due, due, missed)
    missed = 0
    while (following := _due_after(job, due, here)) is not None and following <= now:
        due, missed = following, missed + 1
        if missed == MOST_COUNTED:
            return Run(due, now.astimezone(UTC), missed)
    return Run(due, due, missed)


def after_run(job: Job, run: Run) -> Job | None:
    """The job once `run` has been published; None where it is over."""
    if job.runs_once:
        return None
    ceiling = job.ceiling if job.ceiling and job.ceiling > run.through else None
    runs = (*job.runs, run.due)[-KEPT_RUNS:]
    return replace(job, after=run.through, runs=runs, begun=None, ceiling=ceiling)


def set_back(job: Job, now: datetime) -> Job:
    """The job as it goes on where the clock shows a time before `after`; else the same."""
    step = _SMALL_STEP_OF_EVERY if isinstance(job.schedule, Every) else SMALL_STEP
    if job.after - now <= step:
        return job
    ceiling = max(job.after, job.ceiling or job.after)
    return replace(job, after=now.astimezone(UTC), ceiling=ceiling)


def resumed(job: Job, now: datetime) -> Job:
    """A paused job that goes on: what came due meanwhile is not made up for."""
    return replace(job, enabled=True, after=max(job.after, now.astimezone(UTC)))


def _passed(job: Job, now: datetime) -> datetime:
    ceiling = job.ceiling
    return max(job.after, ceiling) if ceiling and now >= ceiling else job.after


def _due_after(job: Job, moment: datetime, here: tzinfo) -> datetime | None:
    zone = zone_of(job, here)
    due = job.schedule.next_after(moment, zone)
    while due is not None and due.astimezone(UTC) in job.runs:
        due = job.schedule.next_after(due, zone)
    return None if due is None else due.astimezone(UTC)
