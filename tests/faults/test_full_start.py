"""A nanobot starts on a full disk: it reports in the chat that it can't store, and works when there
is room."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.disks import SmallDisk, small_disk
from tests.doubles.telegram import FakeTelegram

pytestmark = pytest.mark.campaign


@asynccontextmanager
async def gateway(disk: SmallDisk, telegram: FakeTelegram, *, reserve: int) -> AsyncIterator[None]:
    """Run a gateway on the disk, with `reserve` megabytes kept free."""
    channel = {"enabled": True, "token": telegram.token, "base_url": telegram.base_url}
    environ = {
        "NANOBOT_HOME": f"{disk.path}/home",
        "NANOBOT_MODEL__PROVIDER": "offline",
        "NANOBOT_RETENTION__DISK_RESERVE_MEGABYTES": str(reserve),
        "NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0",
        "NANOBOT_OWNER__TELEGRAM": '["7"]',
        **{f"NANOBOT_CHANNELS__TELEGRAM__{k.upper()}": json.dumps(v) for k, v in channel.items()},
    }
    command = disk.command(sys.executable, "-m", "nanobot", "gateway")
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | environ)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_started_on_a_full_disk_it_says_so_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram:
        with small_disk(tmp_path / "disk") as disk:
            assert disk.nanobot("agent", "-m", "hello").returncode == 0
            disk.fill()
            for reserve in (0, 1):
                async with gateway(disk, telegram, reserve=reserve):
                    telegram.say(f"are you there {reserve}?")
                    assert "disk" in (await telegram.receive(1 + reserve))[-1]
            async with gateway(disk, telegram, reserve=0):
                disk.empty()
                telegram.say("my name is Ada, remember it")
                assert "Ada" in (await telegram.receive(5))[-1], "the others are answered first"
                assert "ok" in disk.nanobot("status", "--check").stdout
                assert "Ada" in disk.nanobot("memory", "show").stdout
            assert disk.nanobot("state", "show").returncode == 0


_ZERO_AN_INDEX = """
import contextlib, sqlite3, sys
with contextlib.closing(sqlite3.connect(sys.argv[1])) as db:
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'inbox_open'"
    (page,) = db.execute(query).fetchone()
with open(sys.argv[1], "r+b") as file:
    file.seek((page - 1) * 4096)
    file.write(bytes(4096))
"""


async def test_a_journal_that_cannot_be_rebuilt_on_a_full_disk_is_rebuilt_when_there_is_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        assert disk.nanobot("agent", "-m", "hello").returncode == 0
        state = f"{disk.path}/home/state"
        disk.run(sys.executable, "-c", _ZERO_AN_INDEX, f"{state}/journal.db")
        disk.fill()
        for _ in range(6):
            refused = disk.nanobot("agent", "-m", "hello")
            assert refused.returncode != 0
            assert "Traceback" not in refused.stderr
            assert "keeps getting damaged" not in refused.stderr
            assert "disk" in refused.stderr
        left = disk.run("ls", state).stdout
        assert "salvage" not in left
        assert "damaged" not in left
        disk.empty()
        assert disk.nanobot("agent", "-m", "hello").returncode == 0
        assert "Nothing was lost." in disk.nanobot("doctor").stdout
