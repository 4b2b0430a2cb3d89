"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.agent.runner import AgentHook, Chronicle, Hooks
from nanobot.app.base import Routine, build_base, build_models
from nanobot.app.commands import TypedKeys, build_operations, register_commands
from nanobot.app.gateway import Gateway, GatewayParts
from nanobot.app.memory import build_memory
from nanobot.app.services import (
    build_agent,
    build_platforms,
    build_routines,
    build_upkeep,
    build_watching,
)
from nanobot.app.tools import build_toolbox
from nanobot.channel import Channel
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.gateway.control import ControlServer
from nanobot.gateway.pairing import Pairing
from nanobot.memory.scopes import OWNER
from nanobot.providers.port import Provider
from nanobot.tooling import Tool


def build_gateway(
    settings: Settings,
    *,
    clock: Clock | None = None,
    provider: Provider | None = None,
    learner: Provider | None = None,
    channels: Sequence[Channel] = (),
    hooks: Sequence[AgentHook] = (),
    extra_tools: Sequence[Tool] = (),
    routines: Sequence[Routine] = (),
    admit_everyone: bool = False,
    chores: bool = True,
) -> Gateway:
    """Put a nanobot together for `settings`.

    The keyword arguments add to it or replace parts, for embedding and for tests: `learner` is the
    model that condenses conversations and dreams (by default the one that answers), and without
    `chores` nothing happens by itself (jobs, Dream, looking after conversations that rest, and
    `routines`, which run beside everything else). Raises
    `NanobotError` where the home or the configuration cannot be used.
    """
    base = build_base(settings, clock, channels, admit_everyone=admit_everyone)
    models = build_models(base, provider, learner)
    memory = build_memory(
        settings,
        base.stores,
        models.learner,
        base.clock,
        access=base.access,
        notifier=base.notifier,
        quiesce=base.processes.quiesce,
    )
    toolbox = build_toolbox(base, models, memory, extra_tools)
    typed_keys = TypedKeys(base, memory.service)
    chronicle = Chronicle()
    hook = Hooks(base.screen, (chronicle, typed_keys, *hooks))
    agent = build_agent(base, models, memory, toolbox, hook)
    platforms, upkeep = build_platforms(base), build_upkeep(base)
    pairing = Pairing(base.access, base.notifier.say)
    owners = memory.memories.of(OWNER).store
    watching = build_watching(base, agent.turns, platforms.supervisor, upkeep, owners, chronicle)
    status = watching.status
    operations = build_operations(base, memory, toolbox, platforms, upkeep, status, pairing)
    jobs = build_routines(base, memory, toolbox, agent)
    control = ControlServer(base.stores.state, operations, base.cli.chat)
    running = (*watching.routines, *upkeep.routines, *jobs, *routines)
    gateway = Gateway(
        GatewayParts(
            base, models, memory, toolbox, agent, platforms, watching, control, running, chores
        )
    )
    register_commands(
        base, models, memory, toolbox, agent, pairing, status, gateway.request_restart
    )
    typed_keys.register(base.commands)
    return gateway
