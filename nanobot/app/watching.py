"""What watches over a gateway, and tells how it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nanobot.app.about import about, prices
from nanobot.app.agent import Agent
from nanobot.app.base import Base
from nanobot.app.home import Stores
from nanobot.errors import NanobotError
from nanobot.gateway.endpoint import HealthEndpoint
from nanobot.gateway.health import Concern
from nanobot.gateway.notify import Notifier
from nanobot.gateway.pulse import Pulse
from nanobot.gateway.status import Live, Status
from nanobot.gateway.supervisor import Supervisor
from nanobot.gateway.tally import Tally
from nanobot.gateway.vitals import Vitals
from nanobot.gateway.webserver import WebServer
from nanobot.logs import Counted
from nanobot.memory.store.reading import FACTS, MemoryReader


@dataclass(frozen=True, slots=True)
class Watching:
    """`status` answers whoever asks; the routines run beside everything else."""

    notifier: Notifier
    status: Status
    routines: tuple[Pulse | HealthEndpoint, ...]


def dead_threads(stores: Stores) -> Concern | None:
    """A thread that ended by a fault: only a new process has it again, and finds everything in the
    journal."""
    if stores.journal.database.has_died:
        what = "the journal"
    elif stores.sessions.has_died:
        what = "conversations"
    else:
        return None
    text = f"the thread that writes {what} has died"
    return Concern("failing", text, "Restart nanobot; `nanobot logs` says why.", stuck=True)


def unreadable_conversations(stores: Stores) -> Concern | None:
    """Conversations whose files cannot be read: messages in them wait."""
    errors = stores.sessions.unreadable
    if not errors:
        return None
    key, error = next(iter(errors.items()))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Concern("degraded", f"conversation {key} cannot be read{more}: {error}", error.hint)


def damaged_memory(memory: MemoryReader) -> Concern | None:
    """A file of long-term memory that a power loss or a broken disk left unreadable."""
    for path in FACTS:
        try:
            is_damaged = "\0" in memory.read(path)
        except (NanobotError, OSError) as error:
            return Concern("degraded", f"{path} cannot be read: {error}", "`nanobot doctor`")
        if is_damaged:
            hint = "`nanobot memory restore --list` shows its versions, and takes one back."
            return Concern("degraded", f"{path} is damaged: it holds zero bytes", hint)
    return None


def build_watching(
    base: Base,
    agent: Agent,
    supervisor: Supervisor,
    tally: Tally,
    counted: Counted,
    memory: MemoryReader,
    others: Sequence[Callable[[], Concern | None]],
) -> Watching:
    """Put it together. `others` tell of what else is wrong; `memory` is the owner's."""
    vitals = Vitals(
        supervisor.states.values,
        base.stores.journal.database,
        base.clock,
        base.background,
        (
            *others,
            partial(dead_threads, base.stores),
            partial(unreadable_conversations, base.stores),
            partial(damaged_memory, memory),
        ),
    )
    live = Live(
        born=base.clock.monotonic(),
        turns_running=lambda: agent.turns.count,
        channels=supervisor.states.values,
        vitals=vitals,
        tally=tally,
        logged=lambda: (counted.errors, counted.warnings),
    )
    settings, stores = base.settings, base.stores
    status = Status(
        about(settings),
        stores.journal.database,
        stores.sessions,
        prices(settings),
        base.clock,
        live,
    )
    notifier = Notifier.from_environment(os.environ)
    pulse = Pulse(vitals, notifier, base.clock)
    health = settings.health
    if not health.enabled:
        return Watching(notifier, status, (pulse,))
    web = WebServer(health.host, health.port, section="health", public_hosts=None)
    token = health.token.get_secret_value()
    endpoint = HealthEndpoint(web, vitals, status.report, metrics=health.metrics, token=token)
    return Watching(notifier, status, (pulse, endpoint))
