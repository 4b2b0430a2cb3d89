"""`CronService` by name, as the command line calls it: on a running gateway or on the files.

Whoever reaches these is the owner of the home, and sees the jobs of all. Arguments and results are
JSON; what is changed is told in `text`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from nanobot.bus.events import TERMINAL
from nanobot.clock import Clock
from nanobot.cron.job import Job
from nanobot.cron.service import EVERYONES, CronService
from nanobot.cron.wishes import Place, address_of, wish
from nanobot.cron.wording import fields_of, next_text, schedule_text
from nanobot.errors import NanobotError
from nanobot.security.names import printable
from nanobot.tooling.policy import OWNER

Arguments = Mapping[str, object]
Answered = dict[str, object]

_DEFAULT_CHAT = "cli:direct"
_LISTED = 20


class Chats(Protocol):
    """The chats that a job can speak in, beside the terminal."""

    def addresses(self) -> list[str]:
        """Those that something can be sent to at any time, the one used last first. May block."""
        ...

    def scope_of(self, address: str) -> str:
        """Whose chat it is. May block."""
        ...


class CronOperations:
    """The operations named `cron.…`. `runs` says whether jobs are run now: false where no gateway
    is running, and then a wish to run one waits for it."""

    def __init__(
        self, service: CronService, chats: Chats, clock: Clock, *, runs: bool = True
    ) -> None:
        self._service, self._chats, self._clock, self._runs = service, chats, clock, runs

    def table(self) -> Mapping[str, Callable[[Arguments], Awaitable[object]]]:
        """By name, as they are called over the socket."""
        return {
            "cron.list": self.list,
            "cron.add": self.add,
            "cron.remove": self.remove,
            "cron.pause": self.pause,
            "cron.resume": self.resume,
            "cron.run": self.run,
        }

    async def list(self, _: Arguments) -> Answered:
        """No arguments."""
        jobs = await self._service.jobs(EVERYONES)
        now = self._clock.now()
        return {
            "jobs": [fields_of(job, now) for job in jobs],
            "trouble": self._service.trouble,
        }

    async def add(self, arguments: Arguments) -> Answered:
        """`schedule`, `message`, and where wanted `name`, `zone`, `chat` (by default the chat that
        the owner used last, or the terminal)."""
        wanted = wish(
            _text(arguments, "schedule"),
            _text(arguments, "message"),
            _text(arguments, "name", needed=False),
            _text(arguments, "zone", needed=False),
            self._clock.now(),
        )
        chat = _text(arguments, "chat", needed=False)
        place = await asyncio.to_thread(self._place, chat)
        job = await self._service.add(wanted, place)
        when = next_text(job, self._clock.now())
        return self._told(
            job, f"Job {job.id} is scheduled: {schedule_text(job)}, {when}, in {job.address.key}."
        )

    async def remove(self, arguments: Arguments) -> Answered:
        """`id`."""
        job = await self._service.remove(_text(arguments, "id"), EVERYONES)
        return self._told(job, f"Removed {job.id} ({job.name}).")

    async def pause(self, arguments: Arguments) -> Answered:
        """`id`."""
        job = await self._service.pause(_text(arguments, "id"), EVERYONES)
        return self._told(job, f"Paused {job.id} ({job.name}).")

    async def resume(self, arguments: Arguments) -> Answered:
        """`id`."""
        job = await self._service.resume(_text(arguments, "id"), EVERYONES)
        when = next_text(job, self._clock.now())
        return self._told(job, f"{job.id} ({job.name}) goes on: {when}.")

    async def run(self, arguments: Arguments) -> Answered:
        """`id`."""
        job = await self._service.run_now(_text(arguments, "id"), EVERYONES)
        when = "runs now" if self._runs else "runs when nanobot is started"
        return self._told(job, f"{job.id} ({job.name}) {when}.")

    def _told(self, job: Job, text: str) -> Answered:
        return {**fields_of(job, self._clock.now()), "text": text}

    def _place(self, chat: str) -> Place:
        """Where a job speaks. Blocks; raises `NanobotError` for a chat that is not known."""
        known = self._chats.addresses()
        if not chat:
            owners = (one for one in known if self._chats.scope_of(one) == OWNER)
            chat = next(owners, _DEFAULT_CHAT)
        elif chat not in known and address_of(chat).channel != TERMINAL:
            shown = ", ".join(map(printable, known[:_LISTED])) or "none"
            raise NanobotError(f"there is no chat {printable(chat)}", hint=f"There are: {shown}.")
        return Place(address_of(chat), self._chats.scope_of(chat), "")


def _text(arguments: Arguments, key: str, *, needed: bool = True) -> str:
    value = arguments.get(key)
    if isinstance(value, str) and (value.strip() or not needed):
        return value.strip()
    if value is None and not needed:
        return ""
    raise NanobotError(f"the operation needs a text in {key!r}")
