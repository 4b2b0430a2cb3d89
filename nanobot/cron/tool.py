"""The `cron` tool: the agent schedules something for the chat it is in.

A job runs with the scope of the conversation that made it and with its foreign text. What began by
itself (a job, the heartbeat, a helper) makes and changes none, so that no job makes others; and the
jobs of another scope do not exist.

A job runs the model, so where foreign text is in the conversation the owner is asked. A reminder is
a text that comes back into the same chat, where foreign text could have the model say it at once:
it needs nobody's word. Code shows it in the chat, with a button that takes it back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from nanobot.bus.events import Address, Button
from nanobot.clock import Clock
from nanobot.cron.job import Job
from nanobot.cron.service import CronService
from nanobot.cron.wishes import Place, Wish, wish
from nanobot.cron.wording import list_text, moment_text, next_text, reminder_set, schedule_text
from nanobot.errors import ToolError
from nanobot.tooling import Arguments, Caller, Risk, ToolResult
from nanobot.tooling.policy import OWNER

CRON = "cron"


class CronArguments(Arguments):
    action: Literal["remind", "add", "list", "remove"] = Field(
        description="`remind` sends `message` as it is; `add` gives it to you, in an empty chat."
    )
    schedule: str = Field(
        default="",
        description="`in 20m`, `at 2026-12-01T09:00`, `every 2h` or a cron expression.",
    )
    zone: str = Field(default="", description="`Asia/Tokyo`, if not the person's own.")
    message: str = Field(default="", description="The reminder, or what you are to do then.")
    id: str = Field(default="", description="To remove.")


Say = Callable[[Address, str, Sequence[Button]], Awaitable[None]]
"""Says something in a chat, outside of any turn. Raises `StorageError`."""


@dataclass(frozen=True, slots=True)
class CronTool:
    """Schedules, lists and removes jobs of the caller's scope."""

    service: CronService
    clock: Clock
    say: Say
    name: str = CRON
    description: str = "Reminders and recurring work in this chat."
    arguments: type[CronArguments] = CronArguments
    effects: bool = True
    parallel: bool = False

    async def risk(self, arguments: CronArguments, caller: Caller) -> Risk | None:
        """See `Risky`."""
        if arguments.action == "list":
            return None
        _refuse_unattended(caller)
        if arguments.action == "remove":
            return await self._risk_of_removing(arguments, caller)
        if arguments.action == "remind":
            return None
        wanted, here = self._wish(arguments), self.clock.now().tzinfo
        assert here is not None
        when = moment_text(wanted.first, here)
        details = f"{wanted.schedule.text}, first on {when}, in {caller.address.key}"
        return Risk("schedule", "schedule this", f"{details}\n{wanted.message}")

    async def __call__(self, arguments: CronArguments, caller: Caller) -> ToolResult:
        if arguments.action == "list":
            return await self._list(caller)
        _refuse_unattended(caller)
        if arguments.action != "remove":
            return await self._add(arguments, caller)
        job = await self.service.remove(arguments.id, caller.scope)
        return ToolResult(f"Job {job.id} is removed.", trusted=True)

    async def _risk_of_removing(self, arguments: CronArguments, caller: Caller) -> Risk:
        """Foreign text must not take a reminder away that the person counts on."""
        if not arguments.id.strip():
            raise ToolError("say which job to remove, by its id", hint="action `list` shows them")
        job = await self.service.find(arguments.id, caller.scope)
        details = f"{job.id}: {schedule_text(job)}\n{job.message}"
        return Risk("schedule", "remove this job", details)

    async def _add(self, arguments: CronArguments, caller: Caller) -> ToolResult:
        place = Place(caller.address, caller.scope, caller.sender_id, caller.origins())
        job = await self.service.add(self._wish(arguments), place)
        when = f"{schedule_text(job)}, {next_text(job, self.clock.now())}"
        if job.reminder:
            remove = (Button("Remove", f"/cron remove {job.id}"),)
            await self.say(job.address, reminder_set(job, self.clock.now()), remove)
        return ToolResult(f"Job {job.id} is scheduled: {when}.", trusted=True)

    async def _list(self, caller: Caller) -> ToolResult:
        jobs = await self.service.jobs(caller.scope)
        trouble = self.service.trouble if caller.scope == OWNER else ""
        text = list_text(jobs, trouble, self.clock.now())
        return ToolResult(text, trusted=not any(map(_is_foreign, jobs)))

    def _wish(self, arguments: CronArguments) -> Wish:
        now = self.clock.now()
        return wish(
            arguments.schedule,
            arguments.message,
            "",
            arguments.zone.strip(),
            now,
            reminder=arguments.action == "remind",
        )


def _is_foreign(job: Job) -> bool:
    return bool(job.origins)


def _refuse_unattended(caller: Caller) -> None:
    if not caller.attended:
        raise ToolError(
            "jobs are scheduled and removed at the wish of a person only, and nobody is here",
            hint="Say in your answer what should be scheduled.",
        )
