"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nanobot.agent.hooks import AgentHook, Chronicle, CompositeHook, ProgressHook, Tally
from nanobot.app.base import build_base, build_models
from nanobot.app.commands import TypedKeys, build_operations, register_commands
from nanobot.app.memory import build_memory
from nanobot.app.services import (
    build_agent,
    build_backups,
    build_platforms,
    build_routines,
    build_upkeep,
    build_watching,
    send_digest,
    send_held,
    send_trouble,
)
from nanobot.app.tools import build_toolbox
from nanobot.channel import Channel
from nanobot.clock import Clock
from nanobot.commands import CommandRegistry
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
        on_digest=partial(send_digest, base.courier),
        on_trouble=partial(send_trouble, base.courier),
        tell_held=partial(send_held, base.courier),
        quiet=base.processes.none_of,
    )
    toolbox = build_toolbox(base, models, memory, extra_tools)
    commands = CommandRegistry(
        is_owner=lambda message: base.scopes.is_owner(message.channel, message.sender_id)
    )
    typed_keys = TypedKeys(
        settings.home,
        base.stores.sessions,
        memory.service,
        base.courier,
        base.scopes,
        base.background,
    )
    tally, counted = Tally(), Counted()
    hook = CompositeHook((ProgressHook(base.screen), Chronicle(), tally, typed_keys, *hooks))
    agent = build_agent(
        base,
        models,
        memory,
        toolbox,
        hook=hook,
        commands=commands,
    )
    platforms = build_platforms(base, commands)
    pairing = Pairing(base.access, base.courier.say)
    upkeep, backups = build_upkeep(base), build_backups(base)
    concerns = (upkeep.concern, backups.concern)
    owners = memory.memories.of(OWNER).store
    watching = build_watching(base, agent, platforms.supervisor, tally, counted, owners, concerns)
    operations = build_operations(
        base,
        memory,
        toolbox,
        platforms,
        commands,
        status=watching.status,
        pairing=pairing,
        backups=backups,
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
            access=base.access,
            closables=(
                models.provider,
                platforms.web,
                counted,
                *toolbox.closables,
                *models.closables,
            ),
            memory=memory,
            consolidator=agent.consolidator,
            helpers=toolbox.helpers,
            routines=(*watching.routines, *upkeep.routines, *backups.routines, *jobs, *routines),
            notifier=watching.notifier,
            on_start=(counted.begin, backups.begin, toolbox.mcp.start),
            chores=chores,
            background=base.background,
            unhurried=base.unhurried,
            clock=base.clock,
            shutdown_grace=settings.agent.shutdown_grace_seconds,
        )
    )
    register_commands(
        commands,
        base,
        models,
        memory,
        toolbox,
        agent,
        gateway=gateway,
        status=watching.status,
        pairing=pairing,
    )
    typed_keys.register(commands)
    return gateway
