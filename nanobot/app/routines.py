"""What happens by itself: Dream, scheduled jobs and the heartbeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from nanobot.app.home import Stores
from nanobot.app.memory import Remembering
from nanobot.bus.events import InboundMessage
from nanobot.clock import Clock
from nanobot.cron.heartbeat import ActiveHours, Heartbeat
from nanobot.cron.service import CronService
from nanobot.cron.store import JobStore
from nanobot.gateway.gateway import Routine
from nanobot.memory.scopes import OWNER

if TYPE_CHECKING:
    from nanobot.app.base import Base
    from nanobot.app.toolbox import Toolbox

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


def build_routines(base: Base, memory: Remembering, toolbox: Toolbox) -> Sequence[Routine]:
    """What runs by itself, as far as the owner wants it to."""
    settings, cron = base.settings, toolbox.around.cron
    dreaming = () if memory.schedule is None else (memory.schedule,)
    jobs = (cron,) if settings.cron.enabled else ()
    every = settings.heartbeat.interval
    if every is None:
        return (*dreaming, *jobs)
    document = memory.memories.of(OWNER).store
    heartbeat = Heartbeat(
        lambda: document.read(HEARTBEAT),
        document.template_of(HEARTBEAT),
        toolbox.job_chats.owners_latest,
        base.bus.note,
        base.clock,
        every,
        ActiveHours(*settings.heartbeat.hours),
        busy=base.stores.journal.is_busy,
    )
    return (*dreaming, *jobs, heartbeat)
