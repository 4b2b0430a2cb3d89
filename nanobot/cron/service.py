"""Runs jobs when they are due, and changes them.

A run is one inbox message per due time, in three steps: store the begin of the run, publish its
message (the journal drops a repeated one), store its end. A reminder is sent instead of published,
also once. After a crash in between, the next start publishes the same message again and continues.
Failed writes are retried within a minute.

Due times that passed while nanobot was down, or during the job's last run, are combined into one
run, which reports it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.events import NANOBOT, InboundMessage, Origin
from nanobot.clock import Clock, with_timeout
from nanobot.cron.job import (
    Job,
    Jobs,
    JobStore,
    Run,
    after_clock_change,
    after_run,
    due_after,
    due_run,
    moment_text,
    next_due,
    resume_job,
    schedule_text,
)
from nanobot.cron.schedule import Cron, Every, Schedule, ScheduleError
from nanobot.errors import NanobotError
from nanobot.messages import SILENT
from nanobot.tasks import logging_errors
from nanobot.templates import render
from nanobot.text import one_line
from nanobot.tooling import OWNER

LONGEST_WAIT = 60.0
"""Seconds until the clock is read again. It may have been set."""


MOST_JOBS, MOST_OF_OTHERS = 50, 5
"""Maximum jobs of the owner's scope, and of any other."""

_LEAST_INTERVAL = timedelta(hours=1)
"""Between two runs for other people, because the owner pays for each."""

ALL_SCOPES = ""
"""In place of a scope: the jobs of all scopes, for the owner of the home."""

Publish = Callable[[InboundMessage], Awaitable[object]]
"""Puts a message into the inbox, durably. Duplicates are dropped."""

_SHORTEST_WAIT = 0.01
_LATE = timedelta(minutes=5)


class CronService:
    """Scheduler of the jobs.

    `remind` sends a message to its chat, once for each event id. `busy` checks whether a
    conversation has an unanswered message: a job does not run while its last run has not ended.
    `is_wanted` checks whether a chat still belongs to the scope and its people have access (may
    block); if not, the job is paused. `models` are the allowed values of `Job.model`.

    Methods with a `scope` see only its jobs, or all for `ALL_SCOPES`. Changes raise `NanobotError`
    if they are impossible and `StorageError` if they can't be stored."""

    def __init__(
        self,
        store: JobStore,
        publish: Publish,
        clock: Clock,
        *,
        remind: Publish,
        busy: Callable[[str], Awaitable[bool]],
        is_wanted: Callable[[str, str], bool],
        models: Sequence[str] = (),
    ) -> None:
        self._store, self._publish, self._remind, self._clock = store, publish, remind, clock
        self._busy, self._is_wanted, self.models = busy, is_wanted, tuple(models)
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def problem(self) -> str:
        """Fault of the document when it was read, or an empty text."""
        return self._store.problem

    async def jobs(self, scope: str) -> Sequence[Job]:
        """Return the jobs, the oldest first. Raise `StorageError`."""
        jobs = await asyncio.to_thread(self._store.load)
        return [job for job in jobs.values() if scope in (ALL_SCOPES, job.scope)]

    async def find(self, id: str, scope: str) -> Job:
        """Return one job. Raise `NanobotError` if there is none, and `StorageError`."""
        wanted = id.strip().strip("`").casefold()
        for job in await self.jobs(scope):
            if job.id == wanted:
                return job
        raise NanobotError(f"there is no job {id[:40]!r}", hint="List the jobs to see their ids.")

    async def add(self, draft: Job) -> Job:
        most = MOST_JOBS if draft.scope == OWNER else MOST_OF_OTHERS
        if draft.scope != OWNER:
            refuse_too_often(draft.schedule)
        if draft.model and draft.model not in self.models:
            names = ", ".join(self.models)
            there = f"Named models: {names}." if names else "It is empty."
            raise NanobotError(f"`models` has no model {draft.model[:40]!r}", hint=there)
        if draft.model and draft.scope != OWNER:
            raise NanobotError("only the owner can choose a job's model")
        job = draft

        def add_to(jobs: Jobs) -> Jobs:
            nonlocal job
            if sum(one.scope == draft.scope for one in jobs.values()) >= most:
                raise NanobotError(
                    f"the limit of {most} jobs has been reached", hint="Remove one first."
                )
            ids = (secrets.token_hex(3) for _ in count())  # short, because people type them
            job = replace(draft, id=next(id for id in ids if id not in jobs))
            return {**jobs, job.id: job}

        await asyncio.to_thread(self._store.change, add_to)
        self.wake()
        return job

    async def remove(self, id: str, scope: str) -> Job:
        """Remove a job and return it."""
        job = await self.find(id, scope)
        await self._change(job, lambda _: None)
        return job

    async def pause(self, id: str, scope: str) -> Job:
        """Pause a job until `resume` and return it."""
        job = await self.find(id, scope)
        return await self._change(job, lambda job: replace(job, enabled=False)) or job

    async def resume(self, id: str, scope: str) -> Job:
        """Continue a paused job from now and return it."""
        now, job = self._clock.now(), await self.find(id, scope)

        def resume(job: Job) -> Job:
            going = job if job.enabled else resume_job(job, now)
            if next_due(going, now) is None:
                raise NanobotError(
                    "the job's time has passed", hint="Remove the job, or schedule it again."
                )
            return going

        job = await self._change(job, resume) or job
        self.wake()
        return job

    async def run_now(self, id: str, scope: str, wish: str = "") -> Job:
        """Run a job now, in addition to its schedule. The same `wish` (default: the moment) runs
        once."""
        now, job = self._clock.now(), await self.find(id, scope)
        if not await asyncio.to_thread(self._is_wanted, job.address.key, job.scope):
            raise NanobotError("the people in the job's chat don't have access")
        event = f"now:{wish or now.astimezone(UTC).isoformat()}"
        await self._deliver(job, event, now, ", run now on request", now)
        return job

    async def run_forever(self) -> None:
        """Run jobs when they are due, until `stop`. Cancelling is safe as well."""
        while not self._stopping:
            self._wake.clear()  # later wake-ups are seen by this round or start the next
            nearest = await self._run_due()
            seconds = (nearest - self._clock.now()).total_seconds()
            with suppress(TimeoutError):
                await with_timeout(self._clock, max(seconds, _SHORTEST_WAIT), self._wake.wait())

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """End after the current message is published."""
        self._stopping = True
        self._wake.set()

    async def _run_due(self) -> datetime:
        """Run the due jobs and return the time of the next check."""
        jobs: Sequence[Job] = ()
        with logging_errors("reading the jobs"):
            jobs = await self.jobs(ALL_SCOPES)
        nearest = self._clock.now() + timedelta(seconds=LONGEST_WAIT)
        for job in jobs:
            if self._stopping:
                break
            with logging_errors(f"job {job.id}"):
                nearest = min(nearest, await self._attend(job) or nearest)
        return nearest

    async def _attend(self, job: Job) -> datetime | None:
        """Run a job if it is due. Return its next due time, or None if that is unknown now."""
        now = self._clock.now()
        current: Job | None = job
        if job.begun is None:
            if not job.enabled:
                return None
            if after_clock_change(job, now) == job and due_run(job, now) is None:
                return next_due(job, now)
            if await self._busy(job.session_key):  # its last run has not ended
                return None

            def begin(job: Job) -> Job:
                job = after_clock_change(job, now)
                is_waiting = job.enabled and job.begun is None
                return replace(job, begun=due_run(job, now)) if is_waiting else job

            current = await self._change(job, begin)
        if current is not None and current.begun is not None:
            current = await self._finish(current, current.begun)
        return next_due(current, now) if current is not None and current.enabled else None

    async def _finish(self, job: Job, run: Run) -> Job | None:
        """Publish a run that has begun, and store its end."""
        there = job.address.key
        if not await asyncio.to_thread(self._is_wanted, there, job.scope):
            logger.warning("job {} is paused because {} no longer has access", job.id, there)
            return await self._change(job, lambda job: replace(job, enabled=False, begun=None))
        now = self._clock.now()
        following = due_after(job, run.due, now)
        # this run replaces later ones too
        missed = following is not None and following <= run.through
        late = ""
        if missed or now - run.due > _LATE:
            late = f"; it is now {moment_text(now, now.tzinfo)}, so this is late"
            late += " and covers all times missed until now" if missed else ""
        await self._deliver(job, run.event, run.due, late, now)
        return await self._change(job, lambda job: after_run(job, run) if job.begun == run else job)

    async def _deliver(self, job: Job, event: str, due: datetime, late: str, now: datetime) -> None:
        put = self._remind if job.reminder else self._publish
        await put(message_of(job, event, due, late, now))

    async def _change(self, job: Job, change: Callable[[Job], Job | None]) -> Job | None:
        """Change a job, or remove it if `change` returns None. Return the stored job, or None if it
        is gone."""

        def apply(jobs: Jobs) -> Jobs:
            changed = {id: change(one) if id == job.id else one for id, one in jobs.items()}
            return {id: one for id, one in changed.items() if one is not None}

        return (await asyncio.to_thread(self._store.change, apply)).get(job.id)


def refuse_too_often(schedule: Schedule) -> None:
    often = False
    match schedule:
        case Every(interval=interval):
            often = interval < _LEAST_INTERVAL
        case Cron(text=text):
            often = not text.split()[0].isdecimal()  # one minute of the hour, in any hours
    if often:
        reason = "only the owner can schedule runs less than an hour apart"
        raise ScheduleError(schedule.text, reason)


def message_of(job: Job, event: str, due: datetime, late: str, now: datetime) -> InboundMessage:
    """Return the message of a run, or of a reminder. `event` identifies the run within its job.
    `late` is the reason for a delay."""
    zone = now.tzinfo
    was_due = f"{moment_text(due, zone)}{late}"
    if job.reminder:
        content = f"⏰ {job.message}" + (f"\n\n(due {was_due})" if late else "")
    else:
        content = render(
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
        )
    mark = f"job:{job.id}" if job.origins else NANOBOT
    return InboundMessage(
        job.channel,
        job.chat_id,
        sender_id=NANOBOT,
        content=content.rstrip("\n"),
        event_id=f"cron:{job.id}:{event}",
        timestamp=now,
        thread_id=job.thread_id,
        session_override=job.session_key,
        is_group=job.scope.startswith("groups/"),
        sender_name=job.name,
        origin=Origin("job", job.scope, job.id, job.model, mark),
    )
