"""Who signs in at a platform has the channel to themselves, and it comes back by itself."""

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
    """A channel that counts who uses its account."""

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


class Office:
    """A supervisor with one channel, and what is asked of it."""

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
        """Do one operation, and let what it starts begin."""
        data = await self.operations[operation](arguments)
        await asyncio.sleep(0)
        return data

    async def close(self) -> None:
        """End everything."""
        await self.supervisor.stop()


async def test_a_borrowed_channel_rests_until_it_is_given_back(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.supervisor.start()
    await asyncio.sleep(0)
    assert office.channel.users == 1
    office.supervisor.hosts["fake"].report_connected("@bot")
    assert await office.ask("channels.borrow", name="fake") == {"lent": True}
    assert office.channel.users == 0
    assert await office.ask("channels.status") == {
        "running": True,
        "channels": [
            {"name": "fake", "state": "lent", "detail": "someone is signing in", **NOBODY}
        ],
    }
    await office.ask("channels.return", name="fake")
    assert (office.channel.users, office.channel.starts) == (1, 2)
    await office.close()


async def test_one_that_is_not_given_back_is_started_again(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.supervisor.start()
    await office.ask("channels.borrow", name="fake")
    await office.clock.advance(LEASE_SECONDS - 1)
    assert office.channel.users == 0
    await office.clock.advance(1)
    assert office.channel.users == 1
    await office.ask("channels.return", name="fake")  # too late, and no harm
    assert office.channel.users == 1
    await office.close()


async def test_one_that_is_given_back_while_it_ends_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(tmp_path)
    may_end, run = asyncio.Event(), office.channel.run

    async def ends_slowly(host: ChannelHost) -> None:
        try:
            await run(host)
        finally:
            office.channel.users += 1
            await may_end.wait()
            office.channel.users -= 1

    monkeypatch.setattr(office.channel, "run", ends_slowly)
    office.supervisor.start()
    await asyncio.sleep(0)
    asked = [
        asyncio.create_task(office.ask(f"channels.{word}", name="fake"))
        for word in ("borrow", "return")
    ]
    done, _ = await asyncio.wait(asked, timeout=0.05)
    assert not done  # nobody has it while it ends
    may_end.set()
    await asyncio.wait(asked)
    await office.clock.advance(LEASE_SECONDS)
    assert (office.channel.users, office.supervisor.states["fake"].state) == (1, "running")
    await office.close()


async def test_two_do_not_sign_in_at_the_same_time(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.supervisor.start()
    await office.ask("channels.borrow", name="fake")
    with pytest.raises(NanobotError, match="someone else is signing in to fake"):
        await office.ask("channels.borrow", name="fake")
    assert office.channel.users == 0
    await office.ask("channels.return", name="fake")
    assert office.channel.users == 1
    await office.close()


async def test_a_channel_that_does_not_run_need_not_be_borrowed(tmp_path: Path) -> None:
    office = Office(tmp_path)
    assert await office.ask("channels.borrow", name="other") == {"lent": False}
    with pytest.raises(NanobotError, match="needs a text in 'name'"):
        await office.ask("channels.borrow")


async def test_that_one_stays_off_is_told_once(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.channel.trouble = ChannelOff("the device was unlinked", hint="Link it again.")
    office.supervisor.start()
    await office.ask("channels.status")
    await office.clock.advance(1_000)
    assert office.told == [
        ("fake", "The channel fake is off: the device was unlinked. Link it again.")
    ]
    await office.close()


async def test_a_channel_that_another_worker_runs_is_lent_there(tmp_path: Path) -> None:
    """In a team only one worker runs it, and it may be this one's turn later."""
    office = Office(tmp_path)
    office.supervisor.start(but=("fake",))
    with pytest.raises(NanobotError, match="another worker runs fake"):
        await office.ask("channels.borrow", name="fake")
    office.supervisor.start_one("fake")
    assert await office.ask("channels.borrow", name="fake") == {"lent": True}
    await office.supervisor.stop_one("fake")
    assert office.supervisor.states["fake"].state == "stopped"
    with pytest.raises(NanobotError, match="another worker runs fake"):
        await office.ask("channels.borrow", name="fake")
    await office.close()
