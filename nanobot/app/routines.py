"""What happens by itself: scheduled jobs and the heartbeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nanobot.app.cron import JobChats
from nanobot.app.home import Stores
from nanobot.app.memory import Remembering
from nanobot.bus.events import InboundMessage
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.cron.heartbeat import ActiveHours, Heartbeat
from nanobot.cron.service import CronService
from nanobot.cron.store import JobStore
from nanobot.memory.scopes import OWNER

HEARTBEAT = "HEARTBEAT.md"


def build_cron(
    stores: Stores,
    publish: Callable[[InboundMessage], Awaitable[object]],
    clock: Clock,
    may_reach: Callable[[str], bool],
) -> CronService:
    """The scheduled jobs. `may_reach`: whether the people in a chat may talk to the agent."""
    store = JobStore(stores.state / "jobs.json")
    busy = stores.journal.is_busy
    return CronService(store, publish, clock, busy=busy, may_reach=may_reach)


def build_routines(
    settings: Settings,
    stores: Stores,
    memory: Remembering,
    cron: CronService,
    chats: JobChats,
    publish: Callable[[InboundMessage], Awaitable[object]],
    clock: Clock,
) -> tuple[CronService | Heartbeat, ...]:
    """What runs by itself, as far as the owner wants it to."""
    jobs = (cron,) if settings.cron.enabled else ()
    every = settings.heartbeat.interval
    if every is None:
        return jobs
    document = memory.memories.of(OWNER).store
    heartbeat = Heartbeat(
        lambda: document.read(HEARTBEAT),
        document.template_of(HEARTBEAT),
        chats.owners_latest,
        publish,
        clock,
        every,
        ActiveHours(*settings.heartbeat.hours),
        busy=stores.journal.is_busy,
    )
    return (*jobs, heartbeat)
