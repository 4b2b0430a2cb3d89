"""Operations on a home where no gateway runs: on its files, by this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from nanobot.app import tools
from nanobot.app.base import (
    Base,
    Closable,
    Models,
    about,
    make_home,
    secret_values,
)
from nanobot.app.memory import MemoryParts
from nanobot.app.tools import Toolbox
from nanobot.channel import Operation
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.cron.tool import CronOperations
from nanobot.errors import NanobotError
from nanobot.gateway.channels import ChannelState
from nanobot.gateway.lock import home_lock
from nanobot.gateway.operations import Operations
from nanobot.gateway.pairing import Pairing
from nanobot.gateway.status import Status
from nanobot.logs import log_to_console
from nanobot.security.redaction import Redactor
from nanobot.upkeep.snapshot import BackupOperations


def operate(home: Path, op: str, arguments: dict[str, object]) -> object:
    """Do one operation as the home's owner for that moment.

    Raises `HomeLocked` when a gateway runs after all, `NanobotError` for an unknown operation.
    """
    settings = load_settings(home)
    _log(settings, "error" if op.startswith("mcp.") else "warning")
    return operate_with(settings, op, arguments)


def try_server(settings: Settings, name: str) -> Sequence[str]:
    """The names of the tools of an MCP server that is not set up yet. Raises `NanobotError`."""
    make_home(settings.home)
    _log(settings, "error")
    return asyncio.run(tools.try_server(settings, name, SystemClock()))


def _log(settings: Settings, level: str) -> None:
    """Why an MCP server does not start is the answer: `error` does not log it beside that."""
    log_to_console(level, Redactor(secret_values(settings)), settings.agent.timezone)


def operate_with(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    """As `operate`."""
    make_home(settings.home)
    if settings.team.shared and op.startswith(_ON_FILES):
        raise NanobotError(
            "no worker runs here, and only a worker may use the files of a team",
            hint="Start one with `nanobot gateway`, or give this where one runs: `nanobot team"
            " status` lists them.",
        )
    with home_lock(settings.home / "state"):
        return asyncio.run(_operate(settings, op, arguments))


_ON_FILES = ("memory.", "skills.")
"""How the operations begin that use more than the journal and the documents."""


async def _channels_at_rest(names: Sequence[str], _: Mapping[str, object]) -> Mapping[str, object]:
    states = (ChannelState(name, "stopped", "no gateway runs") for name in names)
    return {"running": False, "channels": [state.as_json(0.0) for state in states]}


async def _operate(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    """The parts of a gateway that operations need, without its channels and what runs by itself:
    messages and replies stay in the journal for the next gateway."""
    base = Base(settings, None, (), admit_everyone=False, has_channels=False)
    stores, clock, journal = base.stores, base.clock, base.stores.journal
    models = Models(base, None, None)
    memory = MemoryParts(base, models.learner)
    toolbox = Toolbox(base, models, memory, ())
    table: dict[str, Operation] = {
        **Status(about(settings), journal, stores.sessions, clock, None).table(),
        **Operations(settings.chat_model, journal, stores.sessions, None).table(),
        **models.table(),
        **memory.service.table(),
        **Pairing(base.access).table(),
        **toolbox.skills.table(),
        **CronOperations(toolbox.cron, base.known_chats, clock, runs=False).table(),
        **toolbox.mcp.table(),
        **toolbox.approving.table(),
        **BackupOperations(settings.home, journal, clock, live=False).table(),
        "channels.status": partial(_channels_at_rest, base.reachable),
    }
    if op not in table:
        raise NanobotError(f"there is no operation {op!r}")
    base.bus.connect(lambda _: None, lambda _: None)
    async with AsyncExitStack() as stack:
        await journal.open()
        own: tuple[Closable, ...] = (journal, stores.sessions, memory)
        for part in (*own, *models.closables, *toolbox.closables):
            stack.push_async_callback(part.close)
        base.access.load()
        toolbox.mcp.load()
        if op.startswith("memory."):
            await memory.recover()
        return await table[op](arguments)
