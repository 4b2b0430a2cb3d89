"""What happens by itself: Dream, scheduled jobs and the heartbeat."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.app.base import Base
from nanobot.app.memory import Remembering
from nanobot.app.toolbox import Toolbox
from nanobot.cron.heartbeat import ActiveHours, Heartbeat
from nanobot.gateway.gateway import Routine
from nanobot.memory.scopes import OWNER

HEARTBEAT = "HEARTBEAT.md"


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
