"""The conversation with one helper, over its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from nanobot.errors import NanobotError, SendError, SendLater, SendRefused, SendUnknown
from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.linked.link import PING_SECONDS, BridgeLink, HelperFailed, greet
from nanobot_whatsapp.linked.process import SOCKET_NAME, accept, listen
from nanobot_whatsapp.linked.protocol import MAX_LINE, Event, Me, Qr, State, Welcome
from tests.channels.whatsapp.linked.helpers import US, FakeHelper, HelperPool, Line, play_helpers


class EventReceiver(Protocol):
    """A receiver of events."""

    async def ingest(self, events: Sequence[Event], me: Me | None) -> None: ...


@dataclass
class GatedReceiver:
    """Accepts events, one batch after the other while `gate` is set."""

    batches: list[list[int]] = field(default_factory=list)
    mine: list[Me | None] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def ingest(self, events: Sequence[Event], me: Me | None) -> None:
        self.batches.append([event.seq for event in events])
        self.mine.append(me)
        await self.gate.wait()


@dataclass
class Pair:
    """Both ends. `ended` is the reason of the daemon's end."""

    link: BridgeLink
    helper: FakeHelper
    pool: HelperPool
    ended: asyncio.Future[BaseException]

    async def failure(self) -> str:
        return str(await self.ended)


@contextlib.asynccontextmanager
async def open_link(
    folder: Path,
    clock: FakeClock,
    taker: EventReceiver | None = None,
    welcome: Welcome | None = None,
) -> AsyncIterator[Pair]:
    """Open a link to a welcomed helper."""
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        with listen(folder) as listener:
            coming = group.create_task(accept(listener))
            helper = pool.play(*await asyncio.open_unix_connection(folder / SOCKET_NAME))
            helper.greet()
            streams = await coming
        await greet(*streams, welcome or Welcome(), clock)
        link = BridgeLink(*streams, clock, taker.ingest if taker else None)
        ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                await link.run()
            except NanobotError as error:
                ended.set_result(error)

        running = group.create_task(run())
        try:
            yield Pair(link, helper, pool, ended)
        finally:
            running.cancel()


async def test_the_socket_is_ours_alone_and_gone_afterwards(folder: Path) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        with listen(folder) as listener:
            mode = (folder / SOCKET_NAME).stat().st_mode
            coming = group.create_task(accept(listener))
            pool.play(*await asyncio.open_unix_connection(folder / SOCKET_NAME))
            _, writer = await coming
        assert not (folder / SOCKET_NAME).exists()
        writer.close()
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_folder_with_a_path_too_long_for_a_socket_will_do(folder: Path) -> None:
    deep = folder / ("d" * 120)
    deep.mkdir()
    os.mknod(deep / SOCKET_NAME)  # left by a dead process
    with listen(deep):
        assert stat.S_ISSOCK((deep / SOCKET_NAME).stat().st_mode)


async def test_the_helper_is_told_how_to_work(folder: Path, clock: FakeClock) -> None:
    welcome = Welcome("code", "15550001111", read_receipts=False, online=True)
    async with open_link(folder, clock, welcome=welcome) as pair:
        await pair.helper.until(lambda: pair.helper.heard)
    assert pair.helper.heard[0] == {
        "type": "welcome",
        "protocol": 1,
        "pair": "code",
        "number": "15550001111",
        "read_receipts": False,
        "online": True,
    }


async def test_a_helper_of_another_version_is_sent_away(folder: Path, clock: FakeClock) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        with listen(folder) as listener:
            coming = group.create_task(accept(listener))
            helper = pool.play(*await asyncio.open_unix_connection(folder / SOCKET_NAME))
            helper.greet(protocol=2)
            reader, writer = await coming
        with pytest.raises(HelperFailed, match="version 2") as failure:
            await greet(reader, writer, Welcome(), clock)
        await helper.until(lambda: helper.all("goodbye"))
        writer.close()
    assert "channels login whatsapp" in failure.value.hint


async def test_what_becomes_known_comes_in_order(folder: Path, clock: FakeClock) -> None:
    async with open_link(folder, clock) as pair:
        pair.helper.state("connecting")
        pair.helper.say("later than this version")
        pair.helper.say("qr", data="2@x")
        changes = pair.link.changes()
        assert await anext(changes) == State("connecting", me=Me(**US))
        assert await anext(changes) == Qr("2@x")
        assert pair.link.me == Me(**US)
        await changes.aclose()


async def test_events_are_confirmed_when_they_are_taken_and_not_before(
    folder: Path, clock: FakeClock
) -> None:
    taker = GatedReceiver()
    async with open_link(folder, clock, taker) as pair:
        pair.helper.state("open")
        pair.helper.say("event", seq=4, event={})
        await pair.helper.until(lambda: taker.batches)
        pair.helper.say("event", seq=5, event={})
        pair.helper.say("event", seq=6, event={})
        pair.helper.say("reply", id=99, ok=True)  # answers no request
        await round_trip(pair)
        assert pair.helper.all("ack") == []
        taker.gate.set()
        await pair.helper.wait_for_ack(6)
    assert taker.batches == [[4], [5, 6]]
    assert [ack["seq"] for ack in pair.helper.all("ack")] == [4, 6]
    assert taker.mine[0] == Me(**US)


async def test_an_event_that_was_taken_is_confirmed_again_and_not_taken_again(
    folder: Path, clock: FakeClock
) -> None:
    taker = GatedReceiver()
    taker.gate.set()
    async with open_link(folder, clock, taker) as pair:
        pair.helper.say("event", seq=4, event={})
        await pair.helper.wait_for_ack(4)
        pair.helper.say("event", seq=4, event={})
        await pair.helper.until(lambda: len(pair.helper.all("ack")) == 2)
    assert taker.batches == [[4]]


async def test_without_a_taker_events_stay_in_the_spool(folder: Path, clock: FakeClock) -> None:
    async with open_link(folder, clock) as pair:
        for seq in range(200):
            pair.helper.say("event", seq=seq, event={})
        await round_trip(pair)
    assert pair.helper.all("ack") == []


@pytest.mark.parametrize(
    ("code", "kind"), [("later", SendLater), ("refused", SendRefused), ("unknown", SendUnknown)]
)
async def test_a_request_that_fails_says_what_to_do_about_it(
    folder: Path, clock: FakeClock, code: str, kind: type[SendError]
) -> None:
    async with open_link(folder, clock) as pair, asyncio.TaskGroup() as group:
        asked = group.create_task(outcome(pair.link))
        pair.helper.fail(await pair.helper.request("send"), code, "no such group", 7.0)
        error = await asked
    assert type(error) is kind
    assert str(error) == "no such group"
    assert not isinstance(error, SendLater) or error.retry_after == 7.0


async def test_answers_find_their_requests_in_any_order(folder: Path, clock: FakeClock) -> None:
    async with open_link(folder, clock) as pair, asyncio.TaskGroup() as group:
        asked = [group.create_task(pair.link.request("send", {"n": n})) for n in range(3)]
        requests = [await pair.helper.request("send") for _ in asked]
        for request in reversed(requests):
            pair.helper.answer(request, n=request["params"]["n"])
        assert [(await task)["n"] for task in asked] == [0, 1, 2]


async def test_a_request_that_is_never_answered_ends_as_unknown(
    folder: Path, clock: FakeClock
) -> None:
    async with open_link(folder, clock) as pair, asyncio.TaskGroup() as group:
        asked = group.create_task(outcome(pair.link, patience=30.0))
        await pair.helper.request("send")
        for pings in range(2, 4):
            await clock.until_sleeping()
            await clock.advance(PING_SECONDS)
            await pings_of(pair.helper, pings)
        assert isinstance(await asked, SendUnknown)
        assert not pair.ended.done()


async def test_when_the_helper_ends_what_was_asked_is_unknown_and_what_is_asked_comes_later(
    folder: Path, clock: FakeClock
) -> None:
    async with open_link(folder, clock) as pair, asyncio.TaskGroup() as group:
        asked = group.create_task(outcome(pair.link))
        await pair.helper.request("send")
        pair.pool.close()
        assert isinstance(await asked, SendUnknown)
        assert isinstance(await outcome(pair.link), SendLater)
        await clock.until_sleeping(2)
        await clock.advance(2.0)
        assert "closed the connection" in await pair.failure()


async def test_a_helper_that_answers_no_pings_has_failed_after_a_minute(
    folder: Path, clock: FakeClock
) -> None:
    async with open_link(folder, clock) as pair:
        pair.helper.deaf = True
        for _ in range(3):
            assert not pair.ended.done()
            await clock.until_sleeping()
            await clock.advance(PING_SECONDS)
        assert "does not answer" in await pair.failure()


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        '{"type":"event"}',
        '{"type":"hello","protocol":1,"pid":1}',
        '{"type":"qr","data":"' + "x" * MAX_LINE + '"}',
    ],
    ids=["no JSON", "half an event", "hello again", "too long"],
)
async def test_a_helper_that_does_not_keep_to_the_protocol_has_failed(
    folder: Path, clock: FakeClock, line: str
) -> None:
    async with open_link(folder, clock) as pair:
        pair.helper.write(line)
        assert "the WhatsApp helper" in await pair.failure()


async def test_a_helper_that_does_not_wait_for_confirmation_has_failed(
    folder: Path, clock: FakeClock
) -> None:
    async with open_link(folder, clock, GatedReceiver()) as pair:
        for seq in range(200):
            pair.helper.say("event", seq=seq, event={})
        assert "too many unconfirmed" in await pair.failure()


async def test_a_fault_of_the_core_ends_the_link_and_confirms_nothing(
    folder: Path, clock: FakeClock
) -> None:
    class Broken(GatedReceiver):
        async def ingest(self, events: Sequence[Event], me: Me | None) -> None:
            raise NanobotError("the core is broken")

    async with open_link(folder, clock, Broken()) as pair:
        pair.helper.say("event", seq=1, event={})
        assert await pair.failure() == "the core is broken"
        await pair.helper.until(lambda: pair.helper.ended)
    assert pair.helper.all("ack") == []


async def round_trip(pair: Pair) -> None:
    """Wait until each end has received all earlier lines of the other."""
    async with asyncio.TaskGroup() as group:
        group.create_task(pair.link.request("typing", {}))
        pair.helper.answer(await pair.helper.request("typing"))


async def pings_of(helper: FakeHelper, number: int) -> None:
    """Wait for this many pings."""
    await helper.until(lambda: len(helper.all("ping")) == number)


async def outcome(link: BridgeLink, patience: float = 60.0) -> SendError | Line:
    """Return the outcome of a request."""
    try:
        return dict(await link.request("send", {}, patience))
    except SendError as error:
        return error
