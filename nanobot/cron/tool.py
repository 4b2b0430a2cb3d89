"""Access to jobs: the `cron` tool, `/cron` and `/remind` in a chat, and the operations behind
`nanobot cron`.

The tool schedules for the chat of the agent. A job runs with the scope and the untrusted content of
the conversation that made it. Unattended turns (a job, the heartbeat, a subagent) can't make or
change jobs, so no job makes others. Jobs of another scope do not exist for the caller. A job runs
the model, so the owner is asked if the conversation has untrusted content. A reminder is only a
text in the same chat, where untrusted content could make the model post it at once: it needs no
approval. A request by a program goes to another chat, so it is judged like a job. Code shows a
reminder in its chat, with a button that removes it.

The commands see the jobs of their sender. The operations are for the owner of the home, who sees
all jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from nanobot.bus.events import TERMINAL, Address, Button
from nanobot.channel import Operation, find_home_chat
from nanobot.clock import Clock
from nanobot.commands import (
    Answer,
    Command,
    CommandCall,
    CommandRegistry,
    optional_text,
    text_argument,
)
from nanobot.cron.job import (
    Job,
    JobPlace,
    address_of,
    draft_job,
    next_due,
    next_text,
    schedule_text,
    split_schedule,
)
from nanobot.cron.service import ALL_SCOPES, CronService
from nanobot.errors import NanobotError, ToolError
from nanobot.messages import source_name
from nanobot.text import one_line, printable
from nanobot.tooling import OWNER, Arguments, Risk, Tool, ToolResult, TurnContext

CRON = "cron"


class CronArguments(Arguments, frozen=True):
    action: Literal["remind", "add", "list", "remove"]
    schedule: Annotated[
        str,
        Meta(description="in 20m, tomorrow 9:00, weekdays at 8, every 2h, or a cron expression."),
    ] = ""
    zone: Annotated[str, Meta(description="Such as Asia/Tokyo, if not the person's.")] = ""
    message: str = ""
    id: str = ""


class ModelCronArguments(CronArguments, frozen=True):
    model: Annotated[str, Meta(description="For add, only if the person names one.")] = ""


Say = Callable[[Address, str, Sequence[Button]], Awaitable[None]]
"""Sends a text to a chat, outside of any turn. Raises `StorageError`."""


PlaceOf = Callable[[TurnContext], Awaitable[Address]]
"""Returns the chat for later messages to a caller. Raises `ToolError`."""


async def address_of_caller(caller: TurnContext) -> Address:
    return find_home_chat(caller.address, caller.session_key)


class CronTool(Tool, Struct, frozen=True):
    """Schedules, lists and removes jobs of the caller's scope. They speak in the chat from
    `place_of`."""

    service: CronService
    clock: Clock
    say: Say
    place_of: PlaceOf = address_of_caller
    name = CRON
    description = (
        "Reminders and recurring work in this chat: remind sends message as it is, add gives it to "
        "you as a task, in an empty chat."
    )
    arguments = CronArguments
    effects = True

    async def risk(self, arguments: CronArguments, caller: TurnContext) -> Risk | None:
        if arguments.action == "list":
            return None
        refuse_unattended(caller)
        if arguments.action == "remove":
            # Untrusted content must not remove a reminder that the person relies on.
            if not arguments.id.strip():
                raise ToolError("give the id of the job to remove", hint="action `list` shows them")
            job = await self.service.find(arguments.id, caller.scope)
            details = f"{job.id}: {schedule_text(job)}\n{job.message}"
            return Risk("schedule", "remove this job", details)
        wanted = await self._draft(arguments, caller)
        if wanted.reminder and wanted.address == await address_of_caller(caller):
            return None
        when = next_text(wanted, self.clock.now())
        model = f", with {wanted.model}" if wanted.model else ""
        details = f"{schedule_text(wanted)}, {when}, in {wanted.address.key}{model}"
        return Risk("schedule", "schedule this", f"{details}\n{wanted.message}")

    async def __call__(self, arguments: CronArguments, caller: TurnContext) -> ToolResult:
        now = self.clock.now()
        if arguments.action == "list":
            jobs = await self.service.jobs(caller.scope)
            text = await list_jobs(self.service, caller.scope, now)
            return ToolResult(text, trusted=not any(job.origins for job in jobs))
        refuse_unattended(caller)
        if arguments.action == "remove":
            job = await self.service.remove(arguments.id, caller.scope)
            return ToolResult(f"Job {job.id} is removed.", trusted=True)
        job = await self.service.add(await self._draft(arguments, caller))
        if job.reminder:
            remove = (Button("Remove", f"/cron remove {job.id}"),)
            await self.say(job.address, reminder_text(job, now), remove)
        return ToolResult(
            f"Job {job.id} is scheduled: {schedule_text(job)}, {next_text(job, now)}.", trusted=True
        )

    async def _draft(self, arguments: CronArguments, caller: TurnContext) -> Job:
        there = await self.place_of(caller)
        # a program has no sender there
        is_here = there == await address_of_caller(caller)
        by = caller.sender_id if is_here else there.chat_id
        return draft_job(
            arguments.schedule,
            arguments.message,
            JobPlace(there, caller.scope, by, caller.origins()),
            self.clock.now(),
            zone=arguments.zone.strip(),
            reminder=arguments.action == "remind",
            model=arguments.model if isinstance(arguments, ModelCronArguments) else "",
        )


class ModelCronTool(CronTool, frozen=True):
    """The tool for homes with several models. Others save the argument's tokens."""

    arguments = ModelCronArguments


def reminder_text(job: Job, now: datetime) -> str:
    return f"Reminder set ({schedule_text(job)}, {next_text(job, now)}):\n\n{job.message}"


def fields_of(job: Job, now: datetime) -> dict[str, object]:
    """Return a job for machines, with its times in the agent's zone."""
    zone = now.tzinfo
    due = next_due(job, now) if job.enabled else None
    same = (
        "id",
        "name",
        "typed",
        "zone",
        "message",
        "reminder",
        "model",
        "scope",
        "enabled",
        "created_by",
    )
    return {
        **{name: getattr(job, name) for name in same},
        "schedule": job.schedule.text,
        "chat": job.address.key,
        "next": due.astimezone(zone).isoformat() if due else None,
        "last": job.runs[-1].astimezone(zone).isoformat() if job.runs else None,
        "runs": [one.astimezone(zone).isoformat() for one in job.runs],
        "session": job.session_key,
        "words": schedule_text(job),
        "created_at": job.created_at.astimezone(zone).isoformat(timespec="seconds"),
        "origins": list(job.origins),
        "sources": [source_name(one) for one in job.origins],
    }


async def list_jobs(service: CronService, scope: str, now: datetime) -> str:
    lines = []
    for job in await service.jobs(scope):
        kind = "reminder: " if job.reminder else ""
        when = f"{schedule_text(job)}, {next_text(job, now)}"
        where = one_line(job.address.key)
        lines.append(f"- `{job.id}` {kind}{one_line(job.name)}: {when}, {where}")
    problem = service.problem if scope == OWNER else ""
    head = [f"Warning: {problem}", ""] if problem else []
    return "\n".join([*head, *(lines or ["Nothing is scheduled."])])


def refuse_unattended(caller: TurnContext) -> None:
    if not caller.is_attended:
        raise ToolError(
            "jobs can only be changed when a person asks for it, and no one is here",
            hint="Say in your answer what should be scheduled.",
        )


_USAGE = "[list | remove ID | pause ID | resume ID | run ID]"
_REMIND = "WHEN TEXT"
_EXAMPLES = (
    "Usage: /remind WHEN TEXT\nExamples:\n/remind in 20 minutes turn the oven off\n"
    "/remind tomorrow 9:00 call Ana\n/remind every sunday at 18:00 water the plants\n"
    "/remind 0 8 * * 1-5 stand up"
)


class CronCommand:
    """The chat commands. `runs`: jobs are enabled here."""

    def __init__(self, service: CronService, clock: Clock, *, runs: bool = True) -> None:
        self._service, self._clock, self._runs = service, clock, runs

    def register(self, registry: CommandRegistry) -> None:
        registry.register(Command("cron", "List and change jobs", self._run, _USAGE))
        registry.register(Command("remind", "Set a reminder in this chat", self._remind, _REMIND))

    async def _remind(self, call: CommandCall) -> Answer:
        if not self._runs:
            return Answer("Jobs are turned off. To use them, set `cron.enabled` to true.")
        schedule, text = split_schedule(call.arguments)
        if not text:
            return Answer(_EXAMPLES)
        now, message = self._clock.now(), call.message
        there = find_home_chat(message.address, message.session_key)
        place = JobPlace(there, call.scope, message.sender_id)
        wanted = draft_job(schedule, text, place, now, reminder=True)
        await call.begin_effect()
        return Answer(reminder_text(await self._service.add(wanted), now))

    async def _run(self, call: CommandCall) -> Answer:
        scope, now = call.scope, self._clock.now()
        match call.arguments.lower().split():
            case [] | ["list"]:
                return Answer(await list_jobs(self._service, scope, now))
            case [("remove" | "pause" | "resume" | "run") as word, id]:
                # Named after the message, so that a repeated command runs the job once.
                wish = call.message.timestamp.isoformat()
                return Answer((await change_job(self._service, word, id, scope, now, wish))[1])
        return Answer(f"Usage: /cron {_USAGE}")


async def change_job(
    service: CronService, word: str, id: str, scope: str, now: datetime, wish: str = ""
) -> tuple[Job, str]:
    """Remove, pause, resume or run a job. Return it and a report."""
    match word:
        case "remove":
            job, done = await service.remove(id, scope), "has been removed"
        case "pause":
            job = await service.pause(id, scope)
            done = "is paused until you resume it"
        case "resume":
            job = await service.resume(id, scope)
            done = f"has been resumed: {next_text(job, now)}"
        case _:
            job, done = await service.run_now(id, scope, wish), "is running now"
    return job, f"{job.id} ({one_line(job.name)}) {done}."


Request = Mapping[str, object]
Reply = dict[str, object]

_DEFAULT_CHAT = "cli:direct"
_LISTED = 20
_OFFERED = 100
"""Chats that are offered for a job. Others can be typed."""


class Chats(Protocol):
    """The chats that a job can speak in, in addition to the terminal."""

    def addresses(self) -> Iterator[str]:
        """Yield the chats that can be reached at any time, the last used first. Iteration may
        block."""
        ...

    def scope_of(self, address: str) -> str:
        """Return the scope of a chat. May block."""
        ...


class CronOperations:
    """The operations `cron.…`. `runs` is False without a gateway: a request to run a job then waits
    for one."""

    def __init__(
        self, service: CronService, chats: Chats, clock: Clock, *, runs: bool = True
    ) -> None:
        self._service, self._chats, self._clock, self._runs = service, chats, clock, runs

    def table(self) -> Mapping[str, Operation]:
        changes = {
            f"cron.{word}": partial(self._change, word)
            for word in ("remove", "pause", "resume", "run")
        }
        return {"cron.list": self.list, "cron.add": self.add, **changes}

    async def list(self, _: Request) -> Reply:
        """No arguments. `chats` are the last used chats that a job can speak in."""
        now = self._clock.now()
        jobs = [fields_of(job, now) for job in await self._service.jobs(ALL_SCOPES)]
        chats = await asyncio.to_thread(lambda: list(islice(self._chats.addresses(), _OFFERED)))
        return {"jobs": jobs, "chats": chats, "trouble": self._service.problem}

    async def add(self, arguments: Request) -> Reply:
        """Arguments: `schedule` and `message`. Optional: `name`, `zone`, `chat` (default: the
        owner's last chat, or the terminal), `task` (run the agent with the message instead of
        sending it), `model` (a configured name, for a task)."""
        task, model = arguments.get("task") is True, optional_text(arguments, "model")
        if model and not task:
            raise NanobotError(
                "a reminder does not use a model", hint="To make it a task, add --task."
            )
        chat = optional_text(arguments, "chat")
        now = self._clock.now()
        job = await self._service.add(
            draft_job(
                text_argument(arguments, "schedule"),
                text_argument(arguments, "message"),
                await asyncio.to_thread(self._choose_place, chat),
                now,
                name=optional_text(arguments, "name"),
                zone=optional_text(arguments, "zone"),
                reminder=not task,
                model=model,
            )
        )
        when = f"{schedule_text(job)}, {next_text(job, now)}, in {job.address.key}"
        kind = "Task" if task else "Reminder"
        done = f"{kind} {job.id} is scheduled: {when}."
        text = done if self._runs else f"{done} It will run when nanobot is started."
        return {**fields_of(job, now), "text": text}

    async def _change(self, word: str, arguments: Request) -> Reply:
        now = self._clock.now()
        job, text = await change_job(
            self._service, word, text_argument(arguments, "id"), ALL_SCOPES, now
        )
        if word == "run" and not self._runs:
            text = text.replace("is running now", "will run when nanobot is started")
        return {**fields_of(job, now), "text": text}

    def _choose_place(self, chat: str) -> JobPlace:
        """Return the place of a job. Blocks. Raise `NanobotError` for an unknown chat."""
        if not chat:
            known = self._chats.addresses()
            owners = (one for one in known if self._chats.scope_of(one) == OWNER)
            chat = next(owners, _DEFAULT_CHAT)
        elif chat not in self._chats.addresses() and address_of(chat).channel != TERMINAL:
            some = islice(self._chats.addresses(), _LISTED)
            shown = ", ".join(map(printable, some)) or "none"
            raise NanobotError(
                f"there is no chat {printable(chat)}", hint=f"Available chats: {shown}."
            )
        return JobPlace(address_of(chat), self._chats.scope_of(chat), "")
