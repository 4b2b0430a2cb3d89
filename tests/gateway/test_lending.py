"""A sign-in borrows the channel exclusively, and the channel returns by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel import ChannelHost
from nanobot.errors import ChannelOff, NanobotError
from nanobot.gateway.channels import LEASE_SECONDS, Supervisor
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from tests.gateway.core import host_parts

NOBODY = {"who": "", "heard_seconds": None}


class Account(FakeChannel):
    """A channel that counts the users of its account."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.users = self.starts = 0
        self.trouble: ChannelOff | None = None

    async def run(self, host: ChannelHost) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.starts += 1
        self.users += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.users -= 1


class LendingKit:
    """A supervisor with one channel, and its operations."""

    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.channel = Account()
        self.told: list[tuple[str, str]] = []
        parts = host_parts(
            SqliteJournal(home / "journal.db", self.clock),
            home,
            self.clock,
            warn=lambda name, why: self.told.append((name, why)),
        )
        self.supervisor = Supervisor({"fake": self.channel}, parts, Random(1))
        self.operations = self.supervisor.table()

    async def ask(self, operation: str, **arguments: object) -> object:
        """Run one operation, and let its tasks begin."""
        data = await self.operations[operation](arguments)
        await asyncio.sleep(0)
        return data

    async def close(self) -> None:
        """End everything."""
        await self.supervisor.stop()


async def test_a_borrowed_channel_rests_until_it_is_given_back(tmp_path: Path) -> None:
    kit = LendingKit(tmp_path)
    kit.supervisor.start()
    await asyncio.sleep(0)
    assert kit.channel.users == 1
    kit.supervisor.hosts["fake"].report_connected("@bot")
    assert await kit.ask("channels.borrow", name="fake") == {"lent": True}
    assert kit.channel.users == 0
    assert await kit.ask("channels.status") == {
        "running": True,
        "channels": [
            {"name": "fake", "state": "lent", "detail": "someone is signing in", **NOBODY}
        ],
    }
    await kit.ask("channels.return", name="fake")
    assert (kit.channel.users, kit.channel.starts) == (1, 2)
    await kit.close()


async def test_one_that_is_not_given_back_is_started_again(tmp_path: Path) -> None:
    kit = LendingKit(tmp_path)
    kit.supervisor.start()
    await kit.ask("channels.borrow", name="fake")
    await kit.clock.advance(LEASE_SECONDS - 1)
    assert kit.channel.users == 0
    await kit.clock.advance(1)
    assert kit.channel.users == 1
    await kit.ask("channels.return", name="fake")  # too late, and no harm
    assert kit.channel.users == 1
    await kit.close()


async def test_one_that_is_given_back_while_it_ends_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = LendingKit(tmp_path)
    may_end, run = asyncio.Event(), kit.channel.run

    async def ends_slowly(host: ChannelHost) -> None:
        try:
            await run(host)
        finally:
            kit.channel.users += 1
            await may_end.wait()
            kit.channel.users -= 1

    monkeypatch.setattr(kit.channel, "run", ends_slowly)
    kit.supervisor.start()
    await asyncio.sleep(0)
    asked = [
        asyncio.create_task(kit.ask(f"channels.{word}", name="fake"))
        for word in ("borrow", "return")
    ]
    done, _ = await asyncio.wait(asked, timeout=0.05)
    assert not done  # not lent while it ends
    may_end.set()
    await asyncio.wait(asked)
    await kit.clock.advance(LEASE_SECONDS)
    assert (kit.channel.users, kit.supervisor.states["fake"].state) == (1, "running")
    await kit.close()


async def test_two_do_not_sign_in_at_the_same_time(tmp_path: Path) -> None:
    kit = LendingKit(tmp_path)
    kit.supervisor.start()
    await kit.ask("channels.borrow", name="fake")
    with pytest.raises(NanobotError, match="someone else is signing in to fake"):
        await kit.ask("channels.borrow", name="fake")
    assert kit.channel.users == 0
    await kit.ask("channels.return", name="fake")
    assert kit.channel.users == 1
    await kit.close()


async def test_a_channel_that_does_not_run_need_not_be_borrowed(tmp_path: Path) -> None:
    kit = LendingKit(tmp_path)
    assert await kit.ask("channels.borrow", name="other") == {"lent": False}
    with pytest.raises(NanobotError, match="needs text in 'name'"):
        await kit.ask("channels.borrow")


async def test_that_one_stays_off_is_told_once(tmp_path: Path) -> None:
    kit = LendingKit(tmp_path)
    kit.channel.trouble = ChannelOff("the device was unlinked", hint="Link it again.")
    kit.supervisor.start()
    await kit.ask("channels.status")
    await kit.clock.advance(1_000)
    assert kit.told == [
        ("fake", "The channel fake is off: the device was unlinked. Link it again.")
    ]
    await kit.close()


async def test_a_channel_that_another_worker_runs_is_lent_there(tmp_path: Path) -> None:
    """In a team only one worker runs it, and this one may run it later."""
    kit = LendingKit(tmp_path)
    kit.supervisor.start(but=("fake",))
    with pytest.raises(NanobotError, match="another worker runs fake"):
        await kit.ask("channels.borrow", name="fake")
    kit.supervisor.start_one("fake")
    assert await kit.ask("channels.borrow", name="fake") == {"lent": True}
    await kit.supervisor.stop_one("fake")
    assert kit.supervisor.states["fake"].state == "stopped"
    with pytest.raises(NanobotError, match="another worker runs fake"):
        await kit.ask("channels.borrow", name="fake")
    await kit.close()
