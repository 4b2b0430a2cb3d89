"""Operations on the files of a home, in this process, if no gateway runs."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, nullcontext
from pathlib import Path

from msgspec.structs import replace

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
from nanobot.app.operations import build_conversations
from nanobot.app.tools import Toolbox
from nanobot.channel import Operation
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.cron.tool import CronOperations
from nanobot.errors import NanobotError
from nanobot.gateway import SOCKET_NAME
from nanobot.gateway.channels import ChannelState
from nanobot.gateway.lock import LOCK_NAME, home_lock
from nanobot.gateway.operations import Operations
from nanobot.gateway.pairing import Pairing
from nanobot.gateway.status import Status
from nanobot.io import storage_errors
from nanobot.logs import log_to_console
from nanobot.security.redaction import Redactor
from nanobot.text import clean
from nanobot.upkeep.snapshot import BackupOperations

READING = frozenset({
    "approvals.list", "approvals.waiting", "channels.status", "conversations.list",
    "conversations.search", "conversations.versions", "cron.list", "mcp.list",
    "mcp.waiting", "memory.forget_plan", "memory.log", "memory.pending", "memory.recent",
    "memory.scope_of", "memory.search", "memory.show", "memory.versions", "memory.why",
    "pair.list", "queue.list", "skills.file", "skills.list", "skills.show", "status", "turn.show",
    "turns.list",
})  # fmt: skip
"""Operations that change nothing. They work on a full or read-only disk."""


def operate(home: Path, op: str, arguments: dict[str, object]) -> object:
    """Run one operation as the temporary owner of the home.

    Raises `HomeLocked` if a gateway runs after all, `NanobotError` for an unknown operation."""
    settings = load_settings(home)
    _log(settings, "error" if op.startswith("mcp.") else "warning")
    if op in READING and (refusal := _refusal(settings.home)):
        return _look(settings, op, arguments, refusal)
    return operate_with(settings, op, arguments)


def try_server(settings: Settings, name: str) -> Sequence[str]:
    """Return the tool names of an MCP server that is not set up yet. Raises `NanobotError`."""
    make_home(settings.home)
    _log(settings, "error")
    return asyncio.run(tools.try_server(settings, name, SystemClock()))


def _log(settings: Settings, level: str) -> None:
    """Log to the console. Level `error` leaves out why an MCP server does not start, because the
    answer includes it."""
    log_to_console(level, Redactor(secret_values(settings)), settings.agent.timezone)


def operate_with(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    """Run one operation as `operate` does, with these settings."""
    make_home(settings.home)
    # These need the team's files, not only its database.
    if settings.team.shared and op.startswith(("conversations.", "memory.", "skills.")):
        raise NanobotError(
            "only a running worker can use the team's files, and none is running here",
            hint=(
                "Start one with `nanobot gateway`, or run this command on the machine of a "
                "worker (`nanobot team status` lists them)."
            ),
        )
    with home_lock(settings.home / "state", "ending"):  # so that others wait a moment
        return asyncio.run(_operate(settings, op, arguments))


_LEAST_ROOM = 8_000_000  # free bytes needed to open a journal and its caches


def _refusal(home: Path) -> str:
    """Return the reason why the disk rejects files, empty if it accepts them or there is no
    home."""
    state = home / "state"
    if not state.is_dir():
        return ""
    try:
        with tempfile.TemporaryFile(dir=state) as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 16)  # fails if a quota is exceeded
        disk = os.statvfs(state)
        is_full, why = disk.f_bavail * disk.f_frsize < _LEAST_ROOM, os.strerror(errno.ENOSPC)
    except OSError as error:
        is_full, why = True, error.strerror or str(error)
    return f"nanobot cannot write to {home} ({why})" if is_full else ""


_COPIED = ("journal.db", "index.db", "catalogue.db")
_OWN = (".lock", "-shm")  # suffixes of files that each process creates for itself


def _look(settings: Settings, op: str, arguments: dict[str, object], refusal: str) -> object:
    """Run an operation that changes nothing on a mirror of the home in memory, because the disk
    rejects files (`refusal`)."""
    home, state = settings.home, settings.home / "state"
    with ExitStack() as stack:
        if (state / LOCK_NAME).exists():
            stack.enter_context(home_lock(state))
        sys.stderr.write(clean(f"note: {refusal}. The output shows the state on the disk.\n"))
        memory = Path("/dev/shm")  # noqa: S108 - holds a new private folder
        folder = memory if os.access(memory, os.W_OK) else None
        with storage_errors(folder or "the folder for temporary files"):
            mirror = stack.enter_context(tempfile.TemporaryDirectory(prefix="nanobot-", dir=folder))
            # Fill it with links to the home's files, and with copies of its databases.
            for entry in (*home.iterdir(), *state.iterdir()):
                target = Path(mirror, entry.relative_to(home))
                target.parent.mkdir(mode=0o700, exist_ok=True)
                if entry.parent == state and entry.name.removesuffix("-wal") in _COPIED:
                    shutil.copyfile(entry, target)
                elif entry not in (state, state / SOCKET_NAME) and not entry.name.endswith(_OWN):
                    target.symlink_to(entry)
        # Hide messages about the mirror.
        log_to_console("critical", Redactor(()), settings.agent.timezone)
        mirrored = replace(settings, home=Path(mirror))
        return asyncio.run(_operate(mirrored, op, arguments, shown=home))


async def _operate(
    settings: Settings, op: str, arguments: dict[str, object], *, shown: Path | None = None
) -> object:
    """Run an operation with only the parts of a gateway that it needs. Without channels and
    background work, messages and replies stay in the journal for the next gateway. In a mirror of
    the home `shown`, nothing is finished or recorded."""
    base = Base(settings, None, (), admit_everyone=False, has_channels=False)
    stores, clock, journal = base.stores, base.clock, base.stores.journal
    models = Models(base, None, None)
    memory = MemoryParts(base, models.learner)
    is_mirror, known = shown is not None, about(settings)
    if is_mirror:
        known = {**known, "home": str(shown)}
        memory.memories.share(lambda _: nullcontext(), lambda _: False)
    toolbox = Toolbox(base, models, memory, ())

    async def channels_at_rest(_: Mapping[str, object]) -> Mapping[str, object]:
        states = (ChannelState(name, "stopped", "no gateway is running") for name in base.reachable)
        return {"running": False, "channels": [state.as_json(0.0) for state in states]}

    table: dict[str, Operation] = {
        "status": Status(known, journal, stores.sessions, clock, None).status,
        **build_conversations(base, memory),
        **Operations(settings.chat_model, journal, stores.sessions, None).table(),
        "dialects.replace": models.replace_dialects,
        **memory.service.table(),
        **Pairing(base.access).table(),
        **toolbox.skills.table(),
        **CronOperations(toolbox.cron, base.known_chats, clock, runs=False).table(),
        **toolbox.mcp.table(),
        **toolbox.approval_commands.table(),
        **BackupOperations(settings.home, journal, clock, live=False).table(),
        "channels.status": channels_at_rest,
    }
    if op not in table:
        hint = "Start it with `nanobot gateway`."
        raise NanobotError("this requires a running gateway", hint=hint)
    async with AsyncExitStack() as stack:
        await journal.open()
        own: tuple[Closable, ...] = (journal, stores.sessions, memory)
        for part in (*own, *models.closables, *toolbox.closables):
            stack.push_async_callback(part.close)
        base.access.load()
        toolbox.mcp.load()
        if op.startswith("memory.") and not is_mirror:
            await memory.recover()
        return await table[op](arguments)
