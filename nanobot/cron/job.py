"""A scheduled job, and all jobs together: values. Every change makes a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from nanobot.bus.events import Address
from nanobot.cron.schedule import At, Schedule

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
