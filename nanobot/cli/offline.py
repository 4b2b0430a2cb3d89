"""Operations on a home where no gateway runs: on its files, by this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

from nanobot.agent.notifier import KnownChats, remind
from nanobot.app.base import (
    about,
    build_access,
    build_provider,
    build_scopes,
    build_stores,
    make_home,
    model_name,
    prices,
    secret_values,
)
from nanobot.app.memory import build_memory
from nanobot.app.tools import build_mcp, build_skills
from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.sqlite_journal import SqliteJournal, documents_of
from nanobot.clock import SystemClock
from nanobot.commands import Operation
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.cron.job import JobStore
from nanobot.cron.service import CronService
from nanobot.cron.tool import CronOperations
from nanobot.errors import NanobotError
from nanobot.gateway.channels import ChannelOperations
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.operations import Operations
from nanobot.gateway.pairing import Pairing
from nanobot.gateway.status import Status
from nanobot.logs import log_to_console
from nanobot.memory.service.operations import memory_operations
from nanobot.security.paths import Root
from nanobot.security.redaction import Redactor
from nanobot.session.manager import SessionManager
from nanobot.skills import SkillsOperations
from nanobot.tasks import Background
from nanobot.tooling import ToolRegistry
from nanobot.tools.mcp import McpOperations
from nanobot.upkeep.snapshot import BackupOperations

Table = Mapping[str, Operation]


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
    with HomeLock(settings.home / "state"):
        return asyncio.run(_operate(settings, op, arguments))


async def _operate(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    room = op.partition(".")[0]
    operations = _ROOMS.get(room, _on_the_rest)
    async with operations(settings) as table:
        if op not in table:
            raise NanobotError(f"there is no operation {op!r}")
        return await table[op](arguments)


@asynccontextmanager
async def _on_the_rest(settings: Settings) -> AsyncIterator[Table]:
    clock = SystemClock(settings.agent.timezone)
    journal = SqliteJournal(settings.home / "state" / "journal.db", clock)
    sessions = SessionManager(settings.home / "sessions", clock)
    await journal.open()
    try:
        model, cost = model_name(settings.model), prices(settings)
        status = Status(about(settings), journal.reports, sessions, cost, clock, None)
        queue = Operations(model, cost, journal.reports, sessions, None)
        yield {**status.table(), **queue.table()}
    finally:
        await journal.close()


@asynccontextmanager
async def _on_backup(settings: Settings) -> AsyncIterator[Table]:
    clock = SystemClock(settings.agent.timezone)
    journal = SqliteJournal(settings.home / "state" / "journal.db", clock)
    await journal.open()
    try:
        yield BackupOperations(settings.home, journal.database, clock, live=False).table()
    finally:
        await journal.close()


@asynccontextmanager
async def _on_memory(settings: Settings) -> AsyncIterator[Table]:
    clock = SystemClock(settings.agent.timezone)
    stores = build_stores(settings.home, clock)
    provider = build_provider(settings.model, clock, Random())  # noqa: S311 - spreads retries
    access = build_access(settings, stores.journal.state, clock)
    memory = build_memory(settings, stores, provider, clock, access=access)
    await stores.journal.open()
    try:
        await memory.recover()
        yield memory_operations(memory.service)
    finally:
        await memory.close()
        await provider.close()
        await stores.sessions.close()
        await stores.journal.close()


@asynccontextmanager
async def _on_access(settings: Settings) -> AsyncIterator[Table]:
    access = build_access(
        settings, documents_of(settings.home / "state"), SystemClock(settings.agent.timezone)
    )
    yield Pairing(access).table()


@asynccontextmanager
async def _on_skills(settings: Settings) -> AsyncIterator[Table]:
    clock = SystemClock(settings.agent.timezone)
    skills = build_skills(
        settings, Root(settings.home / "workspace"), documents_of(settings.home / "state"), clock
    )
    yield SkillsOperations(skills.service).table()


@asynccontextmanager
async def _on_cron(settings: Settings) -> AsyncIterator[Table]:
    clock = SystemClock(settings.agent.timezone)
    journal = SqliteJournal(settings.home / "state" / "journal.db", clock)
    sessions = SessionManager(settings.home / "sessions", clock)
    access = build_access(settings, journal.state, clock)
    channels = [name for name, channel in settings.channels.items() if channel.enabled]
    known = KnownChats(sessions, build_scopes(settings, access), access, channels)

    async def publish(message: InboundMessage) -> None:
        await journal.receive(message.channel, (message,))

    async def send(turn_id: str, outgoing: Outgoing) -> None:
        await journal.send(turn_id, outgoing)

    service = CronService(
        JobStore(journal.state),
        publish,
        clock,
        remind=partial(remind, send, publish, lambda message: (message,)),
    )
    await journal.open()
    try:
        yield CronOperations(service, known, clock, runs=False).table()
    finally:
        await journal.close()


@asynccontextmanager
async def _on_mcp(settings: Settings) -> AsyncIterator[Table]:
    clock = SystemClock(settings.agent.timezone)
    servers = build_mcp(settings, ToolRegistry(), documents_of(settings.home / "state"), clock)
    servers.load()
    try:
        yield McpOperations(servers).table()
    finally:
        await servers.close()


@asynccontextmanager
async def _on_channels(settings: Settings) -> AsyncIterator[Table]:
    enabled = sorted(name for name, channel in settings.channels.items() if channel.enabled)
    clock = SystemClock(settings.agent.timezone)
    yield ChannelOperations(enabled, None, Background(), clock).table()


_ROOMS = {
    "backup": _on_backup,
    "channels": _on_channels,
    "mcp": _on_mcp,
    "memory": _on_memory,
    "pair": _on_access,
    "skills": _on_skills,
    "cron": _on_cron,
}
