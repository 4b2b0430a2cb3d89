"""What watches over a gateway, and tells how it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nanobot.app.about import about, prices
from nanobot.app.agent import Agent
from nanobot.app.base import Base
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


@dataclass(frozen=True, slots=True)
class Watching:
    """`status` answers whoever asks; the routines run beside everything else."""

    notifier: Notifier
    status: Status
    routines: tuple[Pulse | HealthEndpoint, ...]


def build_watching(
    base: Base,
    agent: Agent,
    supervisor: Supervisor,
    tally: Tally,
    counted: Counted,
    others: Sequence[Callable[[], Concern | None]],
) -> Watching:
    """Put it together. `others` tell of what else is wrong."""
    vitals = Vitals(
        supervisor.states.values,
        base.stores.journal.database,
        base.clock,
        base.background,
        others,
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
