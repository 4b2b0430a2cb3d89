"""A nearly full disk: intake stops, and the owner is notified."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from errno import ENOTSUP
from pathlib import Path

import pytest

from nanobot.bus.queue import MessageBus
from nanobot.testing import FakeClock, ScriptedModel
from nanobot.testing.channel import FakeChannel
from nanobot.upkeep.retention import LOOK_SECONDS, DiskReserve, free_bytes, has_room
from tests.bus.support import make_message, open_journal
from tests.support import running

MEGABYTE = 1_000_000


class Disk:
    """A disk with a scripted free space, a bus, and the notices to the owner."""

    def __init__(self, home: Path, bus: MessageBus, clock: FakeClock) -> None:
        self.megabytes = 500
        self.told: list[str] = []
        self.names: list[str] = []
        self.bus, self.clock = bus, clock
        self.room = DiskReserve(home, 200, bus, clock, self._tell, self._free)

    async def _tell(self, text: str, name: str) -> None:
        self.told.append(text)
        self.names.append(name)

    def _free(self, _: Path) -> int:
        if self.megabytes < 0:
            raise OSError(ENOTSUP, os.strerror(ENOTSUP))
        return self.megabytes * MEGABYTE

    async def changes_to(self, megabytes: int) -> None:
        self.megabytes = megabytes
        await self.clock.until_sleeping()
        await self.clock.advance(LOOK_SECONDS)


@contextlib.asynccontextmanager
async def watch_disk(home: Path) -> AsyncIterator[Disk]:
    clock = FakeClock()
    async with open_journal(home / "journal.db", clock) as journal:
        bus = MessageBus(journal)
        disk = Disk(home, bus, clock)
        watching = asyncio.create_task(disk.room.run_forever())
        yield disk
        disk.room.stop()
        with pytest.raises(asyncio.CancelledError):
            await watching


async def test_below_the_reserve_messages_wait_until_there_is_room_again(tmp_path: Path) -> None:
    async with watch_disk(tmp_path) as disk:
        assert await disk.bus.publish("fake", [make_message("m1")]) == ("m1",)
        await disk.changes_to(199)
        assert disk.room.text
        waiting = asyncio.create_task(disk.bus.publish("fake", [make_message("m2")]))
        await disk.bus.publish_internal(make_message("from within"))  # running work continues
        assert "199 MB left" in str(disk.bus.hold_reason)
        await disk.changes_to(210)  # not enough: it would close again at once
        assert not waiting.done()
        await disk.changes_to(220)
        assert await waiting == ("m2",)
        assert disk.bus.hold_reason is None
        assert not disk.room.text


async def test_the_owner_is_told_once_that_it_began_and_that_it_is_over(tmp_path: Path) -> None:
    async with watch_disk(tmp_path) as disk:
        for megabytes in (100, 90, 80, 400, 500):
            await disk.changes_to(megabytes)
        assert [text.partition(" (")[0] for text in disk.told] == [
            "My disk is nearly full",
            "My disk has space again",
        ]
        assert disk.names == ["disk-low-260302-09", "disk-back-260302-09"]


async def test_a_disk_that_does_not_tell_its_room_changes_nothing(tmp_path: Path) -> None:
    async with watch_disk(tmp_path) as disk:
        await disk.changes_to(-1)
        assert not disk.room.text
        await disk.changes_to(100)
        await disk.changes_to(-1)
        assert disk.room.text


async def test_a_gateway_on_a_full_disk_lets_platforms_wait_and_tells_the_terminal(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    async with running(
        tmp_path,
        ScriptedModel(),
        channel,
        chores=True,
        NANOBOT_RETENTION__DISK_RESERVE_MEGABYTES="1000000000",
        NANOBOT_MODEL__PROVIDER="offline",
    ):
        saying = asyncio.create_task(channel.say("hello"))
        reader, writer = await asyncio.open_unix_connection(tmp_path / "state" / "gateway.sock")
        writer.write(b'{"op": "chat", "session": "cli:direct", "text": "hi", "id": "a1"}\n')
        assert b"disk is nearly full" in await reader.readline()
        assert not saying.done()
        writer.close()
        saying.cancel()


def test_a_file_system_that_tells_no_size_is_not_taken_for_a_full_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not supported"):
        free_bytes(Path("/proc"))
    assert has_room(Path("/proc"), 1)
    assert has_room(tmp_path, 1)
    assert not has_room(tmp_path, 2 * free_bytes(tmp_path))
