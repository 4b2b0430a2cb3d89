"""When a job runs, and what a run stands for. Pure.

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

from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from nanobot.cron.job import KEPT_RUNS, Job, Run
from nanobot.cron.schedule import Every

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
