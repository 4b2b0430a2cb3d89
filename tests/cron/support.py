"""A cron service with a real file, a clock that tests move, and an inbox like the journal's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from nanobot.bus.events import Address, Button, InboundMessage
from nanobot.cron.job import Job, JobPlace, JobStore, draft_job
from nanobot.cron.service import CronService
from nanobot.testing import FakeClock
from tests.doubles.state import MemoryState

BERLIN = ZoneInfo("Europe/Berlin")
HERE = JobPlace(Address("telegram", "7"), "owner", "7")


class Killed(BaseException):
    """The process ends here."""


def _fine(_: InboundMessage) -> None:
    """Do nothing."""


@dataclass
class Inbox:
    """Takes a message once. `before` and `after` run around its storage."""

    taken: dict[tuple[str, str, str], InboundMessage] = field(default_factory=dict)
    offered: list[str] = field(default_factory=list)
    before: Callable[[InboundMessage], None] = _fine
    after: Callable[[InboundMessage], None] = _fine

    async def publish(self, message: InboundMessage) -> None:
        self.offered.append(message.event_id)
        self.before(message)
        self.taken.setdefault((message.channel, message.chat_id, message.event_id), message)
        self.after(message)

    @property
    def messages(self) -> list[InboundMessage]:
        return list(self.taken.values())

    def times(self, zone: ZoneInfo = BERLIN) -> list[str]:
        """Return the due times of the runs, local, in their order."""
        dues = (datetime.fromisoformat(m.event_id.split(":", 2)[2]) for m in self.messages)
        return [f"{due.astimezone(zone):%d %H:%M%z}" for due in dues]


@dataclass
class CronKit:
    """`start` creates the service again, like a new process. `busy` are the conversations with an
    unanswered message, `revoked` the chats whose people have no access."""

    folder: Path
    clock: FakeClock
    state: MemoryState = field(default_factory=MemoryState)
    inbox: Inbox = field(default_factory=Inbox)
    reminded: Inbox = field(default_factory=Inbox)
    said: list[tuple[str, str, tuple[Button, ...]]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    wakes_at: float = 0.0
    sleeps: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.service = CronService(
            JobStore(self.state),
            self.inbox.publish,
            self.clock,
            remind=self.reminded.publish,
            busy=self.is_busy,
            is_wanted=lambda at, scope: scope == "owner" or at not in self.revoked,
        )

    async def say(self, there: Address, text: str, buttons: Sequence[Button]) -> None:
        self.said.append((there.key, text, tuple(buttons)))

    async def is_busy(self, key: str) -> bool:
        return key in self.busy

    async def add(
        self,
        schedule: str,
        message: str = "Hello",
        place: JobPlace = HERE,
        zone: str = "",
        *,
        reminder: bool = False,
    ) -> Job:
        now = self.clock.now()
        return await self.service.add(
            draft_job(schedule, message, place, now, zone=zone, reminder=reminder)
        )

    async def jobs(self) -> list[Job]:
        return list(await self.service.jobs(""))

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the service."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.service.run_forever())
            await self.clock.until_sleeping()
            try:
                yield
            finally:
                self.service.stop()

    async def wait(self, minutes: float) -> None:
        """Advance the clock, with the service attending to each wake-up."""
        end = self.clock.monotonic() + minutes * 60
        while True:
            await self.clock.until_sleeping()
            if len(self.clock.slept) != self.sleeps:
                self.sleeps = len(self.clock.slept)
                self.wakes_at = self.clock.monotonic() + self.clock.slept[-1]
            now = self.clock.monotonic()
            if now >= end:
                return
            await self.clock.advance(min(end, self.wakes_at) - now)

    async def dies(self) -> None:
        """Run the service until it is killed."""
        task = asyncio.create_task(self.service.run_forever())
        with contextlib.suppress(Killed):
            await task


def berlin(text: str) -> FakeClock:
    """Return a clock that shows this time in Berlin."""
    return FakeClock(datetime.fromisoformat(text).replace(tzinfo=BERLIN))
