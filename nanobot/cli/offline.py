"""Operations on a home where no gateway runs: on its files, by this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random

from nanobot.agent.media import MediaStore
from nanobot.agent.notifier import KnownChats, MessageSplitter, remind
from nanobot.app.base import (
    EmbeddedJournal,
    Stores,
    about,
    build_access,
    build_journal,
    build_provider,
    build_scopes,
    make_home,
    model_name,
    prices,
    secret_values,
)
from nanobot.app.memory import Remembering
from nanobot.app.tools import build_mcp, build_skills
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock, SystemClock
from nanobot.commands import Operation
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.cron.job import JobStore
from nanobot.cron.service import CronService
from nanobot.cron.tool import CronOperations
from nanobot.errors import NanobotError
from nanobot.gateway.channels import ChannelOperations
from nanobot.gateway.lock import home_lock
from nanobot.gateway.operations import Operations
from nanobot.gateway.pairing import Pairing
from nanobot.gateway.status import Status
from nanobot.logs import log_to_console
from nanobot.security.paths import Root
from nanobot.security.redaction import Redactor
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.mcp.servers import McpOperations
from nanobot.upkeep.snapshot import BackupOperations


def operate(home: Path, op: str, arguments: dict[str, object]) -> object:
    """Do one operation as the home's owner for that moment.

    Raises `HomeLocked` when a gateway runs after all, `NanobotError` for an unknown operation.
    """
    settings = load_settings(home)
    # Why an MCP server does not start is the answer: it need not be logged beside it.
    level = "error" if op.startswith("mcp.") else "warning"
    log_to_console(level, Redactor(secret_values(settings)), settings.agent.timezone)
    return operate_with(settings, op, arguments)


def operate_with(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    """As `operate`."""
    make_home(settings.home)
    with home_lock(settings.home / "state"):
        return asyncio.run(_operate(settings, op, arguments))


async def _operate(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    async with AsyncExitStack() as stack:
        table = await _operations(settings, op.partition(".")[0], stack)
        if op not in table:
            raise NanobotError(f"there is no operation {op!r}")
        return await table[op](arguments)


async def _operations(
    settings: Settings, room: str, stack: AsyncExitStack
) -> Mapping[str, Operation]:
    """The operations of one room, over what it needs, which the stack closes."""
    clock = SystemClock(settings.agent.timezone)
    state = build_journal(settings.home, clock).state
    match room:
        case "channels":
            enabled = sorted(name for name, one in settings.channels.items() if one.enabled)
            return ChannelOperations(enabled, None, Background(), clock).table()
        case "pair":
            return Pairing(build_access(settings, state, clock)).table()
        case "skills":
            workspace = Root(settings.home / "workspace")
            return build_skills(settings, workspace, state, clock).table()
        case "mcp":
            servers = build_mcp(settings, ToolRegistry(), state, clock)
            stack.push_async_callback(servers.close)
            servers.load()
            return McpOperations(servers).table()
        case "memory":
            return await _on_memory(settings, clock, stack)
        case _:
            journal = build_journal(settings.home, clock)
            await journal.open()
            stack.push_async_callback(journal.close)
            return _on_journal(settings, room, clock, journal)


async def _on_memory(
    settings: Settings, clock: Clock, stack: AsyncExitStack
) -> Mapping[str, Operation]:
    stores = Stores(settings.home, clock)
    provider = build_provider(settings.model, clock, Random())  # noqa: S311 - spreads retries
    scopes = build_scopes(settings, build_access(settings, stores.journal.state, clock))
    memory = Remembering(settings, stores, provider, clock, scopes)
    await stores.journal.open()
    for part in (stores.journal, stores.sessions, provider, memory):
        stack.push_async_callback(part.close)
    await memory.recover()
    return memory.service.table()


def _on_journal(
    settings: Settings, room: str, clock: Clock, journal: EmbeddedJournal
) -> Mapping[str, Operation]:
    if room == "backup":
        return BackupOperations(settings.home, journal, clock, live=False).table()
    sessions = SessionManager.in_folder(settings.home / "sessions", clock)
    if room == "cron":
        return _on_cron(settings, clock, journal, sessions)
    model, cost = model_name(settings.model), prices(settings)
    status = Status(about(settings), journal, sessions, cost, clock, None)
    queue = Operations(model, cost, journal, sessions, None)
    return {**status.table(), **queue.table()}


def _on_cron(
    settings: Settings, clock: Clock, journal: EmbeddedJournal, sessions: SessionManager
) -> Mapping[str, Operation]:
    access = build_access(settings, journal.state, clock)
    channels = [name for name, channel in settings.channels.items() if channel.enabled]
    known = KnownChats(sessions, build_scopes(settings, access), access, channels)

    bus = MessageBus(journal)
    bus.connect(lambda _: None, lambda _: None)  # it stays in the journal
    whole = MessageSplitter({}, MediaStore(settings.home / "media"))
    service = CronService(
        JobStore(journal.state), bus.note, clock, remind=partial(remind, bus, whole)
    )
    return CronOperations(service, known, clock, runs=False).table()
