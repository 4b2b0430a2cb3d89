"""The slash commands, each registered by the capability that owns it."""

from __future__ import annotations

import secrets
from functools import partial

import nanobot
from nanobot.agent.commands import ApprovalCommands, ConversationCommands
from nanobot.agent.messaging import SendCommand
from nanobot.app.agent import Agent
from nanobot.app.base import Base, Models
from nanobot.app.delivery import split_for
from nanobot.app.memory import Remembering
from nanobot.app.model import model_name
from nanobot.app.toolbox import Toolbox
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.cron.commands import CronCommand
from nanobot.gateway.gateway import Gateway
from nanobot.gateway.pairing import PairCommand, Pairing
from nanobot.gateway.status import Status
from nanobot.memory.scopes import Scopes
from nanobot.memory.service.commands import MemoryCommands
from nanobot.memory.service.confirming import Questions
from nanobot.memory.service.continuing import ContinueCommand
from nanobot.memory.service.discarding import DiscardCommand
from nanobot.security.paths import Root
from nanobot.skills import SkillsCommand
from nanobot.times import duration


def register_commands(
    commands: CommandRegistry,
    base: Base,
    models: Models,
    memory: Remembering,
    toolbox: Toolbox,
    agent: Agent,
    *,
    gateway: Gateway,
    status: Status,
    pairing: Pairing,
) -> None:
    """Add them all to `commands`."""
    default_model, around = model_name(base.settings.model), toolbox.around
    ConversationCommands(
        stopper=agent.loop,
        stops=(("helper", toolbox.helpers.stop), ("background command", around.processes.stop)),
        undo=base.stores.undo,
        status=partial(_status_text, status, default_model),
        restart=gateway.request_restart,
        default_model=default_model,
        served=models.served,
        seal=agent.consolidator.seal,
        background=base.unhurried,
        clock=base.clock,
    ).register(commands)
    MemoryCommands(
        service=memory.service,
        compactor=agent.consolidator,
        continuing=ContinueCommand(base.stores.sessions, base.scopes),
        discarding=DiscardCommand(memory.service, base.stores.undo, toolbox.registry.has_effects),
        scopes=base.scopes,
        usage=models.used,
        clock=base.clock,
        questions=Questions(
            Root(base.stores.state).place("questions.json"),
            base.clock,
            lambda: f"{secrets.randbelow(10_000):04}",
        ),
    ).register(commands)
    PairCommand(pairing).register(commands)
    ApprovalCommands(toolbox.approvals).register(commands)
    SkillsCommand(around.skills.service).register(commands)
    split = partial(split_for, base.outlets, base.stores.media)
    SendCommand(split, base.bus.send, base.bus.note, base.known, base.clock).register(commands)
    CronCommand(
        around.cron,
        partial(_scope_of, base.scopes),
        base.clock,
        runs=base.settings.cron.enabled,
    ).register(commands)


def _scope_of(scopes: Scopes, call: CommandCall) -> str:
    return scopes.serving(call.message, call.session.key, call.session.metadata)


async def _status_text(status: Status, default_model: str, call: CommandCall) -> str:
    """What `nanobot status` says, in a few lines for a chat."""
    brief, session = await status.brief(), call.session
    queue, waiting = brief.queue, brief.queue.received - 1  # less this command itself
    model = session.metadata.get("model") or default_model
    lines = [
        f"nanobot {nanobot.__version__}, up {duration(brief.uptime_seconds)}, model {model}",
        f"This conversation: {len(session.messages)} messages in view ({session.key})",
        f"Turns running: {brief.turns_running}; waiting: {waiting}; failed: {queue.failed};"
        f" replies to deliver: {queue.outbox_pending}",
        *(f"Not well: {concern.text}" for concern in brief.health.concerns),
    ]
    return "\n".join(lines)
