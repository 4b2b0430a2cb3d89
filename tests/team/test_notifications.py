"""Notifications between workers, of any length."""

from __future__ import annotations

import asyncio
import queue

import pytest
from loguru import logger

from nanobot.team.connection import DatabaseAddress
from nanobot.team.membership import Membership
from nanobot.team.notifications import Notifications
from tests.team.support import sql


@pytest.mark.parametrize("cut", [False, True], ids=["", "after the connection was cut"])
async def test_all_of_it_arrives_in_one_piece(team_database: str, cut: bool) -> None:
    address, heard = DatabaseAddress(team_database), asyncio.Queue[tuple[str, str]]()
    speaker = Notifications(address, lambda kind, name: None)
    listener = Notifications(address, lambda kind, name: heard.put_nowait((kind, name)))
    listener.start()
    assert await heard.get() == ("gone", "")
    if cut:
        speaker.tell("work", "first")
        assert await heard.get() == ("work", "first")
        await asyncio.to_thread(sql, team_database, _CUT)
    told = {("erased", "wörd \0 \ud800 " * 5_000), ("work", "people/x"), ("free", "a" * 40_000)}
    for kind, name in told:
        speaker.tell(kind, name)
    assert {await heard.get() for _ in told} == told
    await speaker.close()
    await listener.close()


_CUT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'SELECT pg_notify%'
    AND pid != pg_backend_pid()"""


async def test_what_is_said_of_a_database_that_is_away_holds_no_password() -> None:
    secret = "otter-4711"
    address = DatabaseAddress(f"postgresql://nanobot:{secret}@/db?host=/nowhere/{secret}")
    said = queue.SimpleQueue[str]()
    sink = logger.add(lambda message: said.put(str(message)), level="DEBUG", format="{message}")
    notifications = Notifications(address, lambda *_: None)
    notifications.start()
    notifications.tell("work", "a")
    await asyncio.to_thread(Membership(address, "w").leave)
    missing = {"not listening for other workers", "this worker stays listed for 6 seconds"}
    lines = set[str]()
    while missing:
        lines.add(line := await asyncio.to_thread(said.get, timeout=30))
        missing.discard(line.partition(":")[0])
    logger.remove(sink)
    await notifications.close()
    assert all(secret not in line.partition("connection is bad")[2] for line in lines)
    assert all("/nowhere/***" in line for line in lines)
