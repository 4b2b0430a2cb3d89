"""`/cron` and `/remind`: the jobs of whoever gives them, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable

from nanobot.clock import Clock
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.cron.service import CronService
from nanobot.cron.wishes import Place, split_schedule, wish
from nanobot.cron.wording import list_text, next_text, reminder_set
from nanobot.tooling.policy import OWNER

_USAGE = "[list | remove ID | pause ID | resume ID | run ID]"
_REMIND = "WHEN TEXT"
_EXAMPLES = (
    "Write it as: /remind in 20m turn the oven off, or /remind at 2026-12-01T09:00 call Ana, or"
    " /remind every 1w water the plants, or /remind 0 8 * * 1-5 stand up"
)


class CronCommand:
    """`scope_of` says whose jobs a call concerns; `runs` whether jobs are run here at all."""

    def __init__(
        self,
        service: CronService,
        scope_of: Callable[[CommandCall], str],
        clock: Clock,
        *,
        runs: bool = True,
    ) -> None:
        self._service, self._scope_of, self._clock, self._runs = service, scope_of, clock, runs

    def register(self, registry: CommandRegistry) -> None:
        """Add them to `registry`."""
        registry.register(Command("cron", "Show and change what is scheduled", self._run, _USAGE))
        registry.register(Command("remind", "Send a text here later", self._remind, _REMIND))

    async def _remind(self, call: CommandCall) -> Answer:
        if not self._runs:
            return Answer("Nothing is scheduled here: `cron.enabled` is false.")
        schedule, text = split_schedule(call.arguments)
        if not text:
            return Answer(_EXAMPLES)
        now, message = self._clock.now(), call.message
        wanted = wish(schedule, text, "", "", now, reminder=True)
        await call.once()
        place = Place(message.address, self._scope_of(call), message.sender_id)
        return Answer(reminder_set(await self._service.add(wanted, place), now))

    async def _run(self, call: CommandCall) -> Answer:
        scope = self._scope_of(call)
        match call.arguments.split():
            case [] | ["list"]:
                return Answer(await self._list(scope))
            case [word, id]:
                text = await self._change(word.lower(), id, scope, call)
                return Answer(text or f"Write it as: /cron {_USAGE}")
        return Answer(f"Write it as: /cron {_USAGE}")

    async def _list(self, scope: str) -> str:
        jobs = await self._service.jobs(scope)
        trouble = self._service.trouble if scope == OWNER else ""
        return list_text(jobs, trouble, self._clock.now())

    async def _change(self, word: str, id: str, scope: str, call: CommandCall) -> str:
        """What was done; empty for a word that is none of ours."""
        match word:
            case "remove":
                job = await self._service.remove(id, scope)
                return f"Removed `{job.id}`."
            case "pause":
                job = await self._service.pause(id, scope)
                return f"Paused `{job.id}`. /cron resume {job.id} lets it go on."
            case "resume":
                job = await self._service.resume(id, scope)
                return f"`{job.id}` goes on: {next_text(job, self._clock.now())}."
            case "run":
                # Named after the message, so that it runs once should the command run again.
                job = await self._service.run_now(id, scope, call.message.timestamp.isoformat())
                return f"`{job.id}` runs now."
        return ""
