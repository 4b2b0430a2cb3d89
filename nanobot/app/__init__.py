"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nanobot.agent.hooks import AgentHook, Chronicle, Hooks
from nanobot.app.base import build_base, build_models
from nanobot.app.commands import TypedKeys, build_operations, register_commands
from nanobot.app.memory import build_memory
from nanobot.app.services import (
    build_agent,
    build_platforms,
    build_routines,
    build_upkeep,
    build_watching,
    clear_backup,
)
from nanobot.app.tools import build_toolbox
from nanobot.channel import Channel
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.gateway.control import ControlServer
from nanobot.gateway.gateway import Gateway, GatewayParts, Routine
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.pairing import Pairing
from nanobot.logs import Counted
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
    chronicle, counted = Chronicle(), Counted()
    hook = Hooks(base.screen, (chronicle, typed_keys, *hooks))
    agent = build_agent(base, models, memory, toolbox, hook)
    platforms, upkeep = build_platforms(base), build_upkeep(base)
    pairing = Pairing(base.access, base.notifier.say)
    owners = memory.memories.of(OWNER).store
    watching = build_watching(
        base, agent.turns, platforms.supervisor, upkeep, owners, chronicle, counted
    )
    operations = build_operations(
        base, memory, toolbox, platforms, upkeep, watching.status, pairing
    )
    jobs = build_routines(base, memory, toolbox)
    state = settings.home / "state"
    gateway = Gateway(
        GatewayParts(
            lock=HomeLock(state),
            journal=base.stores.journal,
            bus=base.bus,
            sessions=base.stores.sessions,
            loop=agent.loop,
            lanes=base.lanes,
            dispatcher=platforms.dispatcher,
            screen=base.screen,
            supervisor=platforms.supervisor,
            control=ControlServer(state, operations, base.cli.chat),
            on_open=(base.access.load, toolbox.mcp.load, models.load_ratio),
            closables=(*models.closables, platforms.web, counted, *toolbox.closables),
            memory=memory,
            consolidator=agent.parts.consolidator,
            helpers=toolbox.helpers,
            routines=(*watching.routines, *upkeep.routines, *jobs, *routines),
            systemd=watching.systemd,
            on_start=(counted.begin, partial(clear_backup, settings.home), toolbox.mcp.start),
            chores=chores,
            background=base.background,
            unhurried=base.unhurried,
            clock=base.clock,
            shutdown_grace=settings.agent.shutdown_grace_seconds,
        )
    )
    restart, status = gateway.request_restart, watching.status
    register_commands(base, models, memory, toolbox, agent, pairing, status, restart)
    typed_keys.register(base.commands)
    return gateway
