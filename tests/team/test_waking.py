"""What one worker tells the others, whatever its length."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.team.connection import DatabaseAddress
from nanobot.team.waking import Waking
from tests.team.support import sql


@pytest.mark.parametrize("cut", [False, True], ids=["", "after the connection was cut"])
async def test_all_of_it_arrives_in_one_piece(team_database: str, cut: bool) -> None:
    address, heard = DatabaseAddress(team_database), asyncio.Queue[tuple[str, str]]()
    speaker = Waking(address, lambda kind, name: None)
    listener = Waking(address, lambda kind, name: heard.put_nowait((kind, name)))
    listener.start()
    assert await heard.get() == ("free", "")
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
