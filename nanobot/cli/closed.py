"""Operations on a home where no gateway runs: on its files, by this process."""

from __future__ import annotations

import asyncio

from nanobot.app import about, make_home
from nanobot.bus.journal import Journal
from nanobot.clock import SystemClock
from nanobot.config.settings import Settings
from nanobot.errors import NanobotError
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.operations import Operations
from nanobot.session.manager import SessionManager


def operate(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    """Do one operation as the home's owner for that moment.

    Raises `HomeLocked` when a gateway runs after all, `NanobotError` for an unknown operation.
    """
    make_home(settings.home)
    with HomeLock(settings.home / "state"):
        return asyncio.run(_operate(settings, op, arguments))


async def _operate(settings: Settings, op: str, arguments: dict[str, object]) -> object:
    clock = SystemClock(settings.agent.timezone)
    journal = Journal(settings.home / "state" / "journal.db", clock)
    sessions = SessionManager(settings.home / "sessions", clock)
    await journal.open()
    try:
        table = Operations(about(settings), journal.database, sessions, None).table()
        if op not in table:
            raise NanobotError(f"there is no operation {op!r}")
        return await table[op](arguments)
    finally:
        await journal.close()
