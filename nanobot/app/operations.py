"""What can be asked of a running gateway over its socket, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from nanobot.app.about import prices
from nanobot.app.backups import Backups
from nanobot.app.base import Base
from nanobot.app.memory import Remembering
from nanobot.app.model import model_name
from nanobot.app.platforms import Platforms
from nanobot.app.toolbox import Toolbox
from nanobot.commands import CommandRegistry
from nanobot.cron.operations import CronOperations
from nanobot.gateway.control import Operation
from nanobot.gateway.lending import ChannelOperations
from nanobot.gateway.operations import Operations, Running
from nanobot.gateway.pairing import Pairing, PairingOperations
from nanobot.gateway.status import Status
from nanobot.memory.service.operations import MemoryOperations
from nanobot.skills import SkillsOperations
from nanobot.tools.mcp import McpOperations


def build_operations(
    base: Base,
    memory: Remembering,
    toolbox: Toolbox,
    platforms: Platforms,
    commands: CommandRegistry,
    *,
    status: Status,
    pairing: Pairing,
    backups: Backups,
) -> dict[str, Operation]:
    """All of them, each from the capability that owns it."""
    return {
        **status.table(),
        **_conversations(base, platforms).table(),
        **MemoryOperations(memory.service).table(),
        **PairingOperations(pairing).table(),
        **SkillsOperations(toolbox.around.skills.service).table(),
        **CronOperations(toolbox.around.cron, toolbox.job_chats, base.clock).table(),
        **McpOperations(toolbox.mcp).table(),
        **backups.table(),
        **ChannelOperations((), platforms.supervisor, base.background, base.clock).table(),
        "commands": partial(_command_list, commands),
    }


def _conversations(base: Base, platforms: Platforms) -> Operations:
    stores, settings = base.stores, base.settings
    return Operations(
        model_name(settings.model),
        prices(settings),
        stores.journal.database,
        stores.sessions,
        Running(resume=base.bus.deliver, resend=platforms.dispatcher.submit),
    )


async def _command_list(commands: CommandRegistry, _: Mapping[str, object]) -> list[dict[str, str]]:
    return [{"name": command.name, "summary": command.summary} for command in commands]
