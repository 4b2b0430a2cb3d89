"""Crashed channels are restarted and don't stop others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel import Channel, ChannelHost
from nanobot.errors import ChannelOff
from nanobot.gateway.channels import Supervisor
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from tests.gateway.core import host_parts


class EndingChannel(FakeChannel):
    """A channel whose `run` only calls `ends`, and counts its starts."""

    def __init__(self, ends: Callable[[], Awaitable[None]], name: str = "fake") -> None:
        super().__init__(name)
        self.ends = ends
        self.starts = 0

    async def run(self, host: ChannelHost) -> None:
        self.starts += 1
        await self.ends()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def supervise(clock: FakeClock, tmp_path: Path) -> Callable[..., Supervisor]:
    def make(*channels: Channel) -> Supervisor:
        journal = SqliteJournal(tmp_path / "journal.db", clock)
        parts = host_parts(journal, tmp_path, clock)
        return Supervisor({c.name: c for c in channels}, parts, Random(1))

    return make


async def endless() -> None:
    await asyncio.Event().wait()


async def crash() -> None:
    raise LookupError("broken pipe dream")


async def leave() -> None:
    raise SystemExit(3)


async def end() -> None:
    return None


async def cancel_oneself() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (crash, "LookupError: broken pipe dream"),
        (leave, "SystemExit"),
        (end, "it stopped unexpectedly"),
        (cancel_oneself, "was cancelled"),
    ],
)
async def test_a_channel_that_ends_is_started_again(
    supervise: Callable[..., Supervisor],
    clock: FakeClock,
    ending: Callable[[], Awaitable[None]],
    why: str,
) -> None:
    channel = EndingChannel(ending)
    supervisor = supervise(channel)
    supervisor.start()
    await clock.until_sleeping()
    state = supervisor.states["fake"]
    assert state.state == "backoff"
    assert why in state.detail
    await clock.advance(2.0)
    assert channel.starts == 2
    await supervisor.stop()
    assert state.state == "stopped"


TOKEN = "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("error", [OSError, ChannelOff])
async def test_why_a_channel_does_not_run_is_told_without_secrets(
    supervise: Callable[..., Supervisor], error: type[Exception]
) -> None:
    async def leak_token() -> None:
        raise error(f"GET https://api.example/bot{TOKEN}/getMe failed")

    supervisor = supervise(EndingChannel(leak_token))
    supervisor.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    state = supervisor.states["fake"]
    assert "getMe failed" in state.detail
    assert TOKEN not in state.detail
    supervisor.hosts["fake"].report_problem(f"bot{TOKEN} is refused")
    assert TOKEN not in state.detail
    await supervisor.stop()


async def test_the_pauses_grow_to_five_minutes_and_shrink_after_a_good_run(
    supervise: Callable[..., Supervisor], clock: FakeClock
) -> None:
    channel = EndingChannel(crash)
    supervisor = supervise(channel)
    supervisor.start()
    for _ in range(12):
        await clock.until_sleeping()
        await clock.advance(clock.slept[-1])
    assert clock.slept[0] <= 2
    assert all(
        earlier < later for earlier, later in zip(clock.slept[:6], clock.slept[2:8], strict=True)
    )
    assert 150 <= clock.slept[11] <= 300

    running = asyncio.Event()

    async def runs_well() -> None:
        running.set()
        await clock.sleep(61)
        raise LookupError("after a minute")

    channel.ends = runs_well
    await clock.until_sleeping()
    await clock.advance(300)
    assert running.is_set()
    assert clock.slept[13] == 61
    await clock.advance(61)
    assert clock.slept[14] <= 2
    await supervisor.stop()


async def test_a_crash_leaves_the_other_channels_alone(
    supervise: Callable[..., Supervisor], clock: FakeClock
) -> None:
    supervisor = supervise(EndingChannel(crash, "bad"), FakeChannel("good"))
    supervisor.start()
    await clock.until_sleeping()
    assert supervisor.states["bad"].state == "backoff"
    assert supervisor.states["good"].state == "running"
    await supervisor.stop()


async def test_stop_ends_intake_at_once(supervise: Callable[..., Supervisor]) -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    supervisor = supervise(EndingChannel(endless))
    supervisor.start()
    await asyncio.sleep(0)
    await asyncio.wait_for(supervisor.stop(), 5)
    assert ended.is_set()


async def test_one_that_only_a_person_can_mend_stays_off_and_says_why(
    clock: FakeClock, supervise: Callable[..., Supervisor]
) -> None:
    async def refuse() -> None:
        raise ChannelOff("the token was revoked", hint="Get a new one.")

    channel = EndingChannel(refuse)
    supervisor = supervise(channel)
    supervisor.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await clock.advance(10_000)
    state = supervisor.states["fake"]
    assert (channel.starts, state.state) == (1, "off")
    assert state.detail == "the token was revoked. Get a new one."
    await supervisor.stop()


async def test_the_trouble_that_a_channel_tells_is_seen_until_it_is_over(
    supervise: Callable[..., Supervisor],
) -> None:
    supervisor = supervise(EndingChannel(endless))
    supervisor.start()
    await asyncio.sleep(0)
    supervisor.hosts["fake"].report_problem("another poller runs")
    state = supervisor.states["fake"]
    assert (state.state, state.detail) == ("running", "another poller runs")
    supervisor.hosts["fake"].report_problem("")
    assert state.detail == ""
    await supervisor.stop()
