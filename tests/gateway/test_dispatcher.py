"""Delivery: in order within each chat, with retries, and never needlessly twice."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nanobot.agent.session_queue import Screen
from nanobot.bus.events import (
    Media,
    OutboundMessage,
    OutboundPart,
    TextDelta,
)
from nanobot.bus.journal import MOST_DOUBTS, Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.bus.split import split_message
from nanobot.bus.sql_journal import Journal
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel import WRITING, Channel, Limits
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown, StorageError
from nanobot.gateway.delivery import LEFTOVERS, MOST_ATTEMPTS, Dispatcher
from nanobot.tasks import Background
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from tests.bus.support import make_message, no_file_may_grow_beyond, open_journal, reply, rows


class Delivery:
    """A journal and a dispatcher of one process."""

    def __init__(self, journal: Journal, clock: FakeClock, *channels: Channel) -> None:
        outlets = {channel.name: channel for channel in channels}
        self.journal = journal
        self.screen = Screen(outlets)
        bus = MessageBus(journal)
        self.dispatcher = Dispatcher(bus, outlets, journal, self.screen, clock, Random(1))

    async def send(self, turn_id: str, *texts: str, chat_id: str = "1") -> None:
        self.dispatcher.submit(
            await self.journal.add_outgoing(turn_id, reply(*texts, chat_id=chat_id))
        )

    async def resume(self) -> None:
        self.dispatcher.resume((await self.journal.leftovers()).parts)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@contextlib.asynccontextmanager
async def process(path: Path, clock: FakeClock, *channels: Channel) -> AsyncIterator[Delivery]:
    """Run a process from start to end. Undelivered parts are left for the next one."""
    async with open_journal(path, clock) as journal:
        delivery = Delivery(journal, clock, *channels)
        reader = Background()
        reader.start(delivery.dispatcher.run())
        yield delivery
        await delivery.dispatcher.drain(0)
        await reader.drain(0)
        await delivery.screen.close()


@pytest.fixture
async def delivery(path: Path, clock: FakeClock, channel: FakeChannel) -> AsyncIterator[Delivery]:
    async with process(path, clock, channel) as delivery:
        yield delivery


def states(path: Path) -> list[tuple[object, ...]]:
    return rows(path, "SELECT state, attempts FROM outbox ORDER BY id")


def fails(*errors: Exception | None) -> Callable[[OutboundPart], Exception | None]:
    """Reject the first deliveries with these errors, then accept everything."""
    left = list(errors)
    return lambda _: left.pop(0) if left else None


async def test_a_chat_gets_its_parts_in_order(delivery: Delivery, channel: FakeChannel) -> None:
    for number in range(20):
        await delivery.send(f"t{number}", f"{number}a", f"{number}b")
    expected = [f"{number}{part}" for number in range(20) for part in "ab"]
    assert await channel.receive(40) == expected


async def test_what_the_platform_accepted_is_marked_with_its_id(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await delivery.dispatcher.drain(5)
    assert rows(path, "SELECT state, platform_id, payload FROM outbox") == [("sent", "1", None)]


async def test_a_slow_chat_does_not_delay_another(delivery: Delivery, channel: FakeChannel) -> None:
    gate = asyncio.Event()

    async def hold(part: OutboundPart) -> None:
        if part.chat_id == "slow":
            await gate.wait()

    channel.hold = hold
    await delivery.send("t1", "slow", chat_id="slow")
    await delivery.send("t2", "quick", chat_id="quick")
    assert await channel.receive(1, "quick") == ["quick"]
    gate.set()
    assert await channel.receive(1, "slow") == ["slow"]


async def test_many_waiting_chats_do_not_delay_another(
    delivery: Delivery, channel: FakeChannel
) -> None:
    async def hold(part: OutboundPart) -> None:
        if part.chat_id != "quick":
            await asyncio.Event().wait()

    channel.hold = hold
    sent = await asyncio.gather(
        *(delivery.journal.add_outgoing(f"t{n}", reply("x", chat_id=str(n))) for n in range(1_500))
    )
    delivery.dispatcher.submit([part for parts in sent for part in parts])
    await delivery.send("quick", "quick", chat_id="quick")
    assert await asyncio.wait_for(channel.receive(1, "quick"), 10) == ["quick"]


async def test_a_rate_limit_is_waited_out_exactly_and_order_is_kept(
    delivery: Delivery, channel: FakeChannel, clock: FakeClock
) -> None:
    channel.refuse = fails(SendLater("flood", retry_after=37.5))
    await delivery.send("t1", "first", "second")
    await clock.until_sleeping()
    assert clock.slept == [37.5]
    await delivery.send("t2", "elsewhere", chat_id="2")
    assert await channel.receive(1, "2") == ["elsewhere"]
    assert await channel.receive(0) == []
    await clock.advance(37.4)
    assert await channel.receive(0) == []
    await clock.advance(0.1)
    assert await channel.receive(2) == ["first", "second"]


async def test_a_rate_limit_that_does_not_end_is_met_less_and_less_often_and_then_told(
    path: Path, channel: FakeChannel
) -> None:
    clock = FakeClock(auto=True)
    refusals = [SendLater("flood", retry_after=10.0)] * MOST_ATTEMPTS
    channel.refuse = fails(*refusals)
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "patience")
        (told,) = await channel.receive(1)
    assert "“patience” could not be delivered here: flood" in told
    assert clock.slept[:3] == [10.0] * 3
    assert 150 <= min(clock.slept[10:]) <= max(clock.slept) <= 300
    assert states(path)[0] == ("dead", MOST_ATTEMPTS)


async def test_a_rate_limit_without_a_time_is_no_reason_to_hurry(
    path: Path, channel: FakeChannel
) -> None:
    clock = FakeClock(auto=True)
    channel.refuse = fails(SendLater("flood", retry_after=0.0))
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await channel.receive(1)
    assert clock.slept[0] >= 1.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SendUnknown("timed out"), "timed out"),
        (SendError("timed out"), "timed out"),
        (LookupError("at https://api.example.org/bot-token/"), "the channel failed (LookupError)"),
    ],
)
async def test_a_send_that_may_have_arrived_is_tried_once_more_then_told(
    path: Path, channel: FakeChannel, error: Exception, reason: str
) -> None:
    tried: Counter[str] = Counter()

    def refuse(part: OutboundPart) -> Exception | None:
        tried[part.content] += 1
        return error if part.content == "lost" else None

    channel.refuse = refuse
    async with process(path, FakeClock(auto=True), channel) as delivery:
        await delivery.send("t1", "lost", "next")
        told, told_of_loss = await channel.receive(2)
        await delivery.dispatcher.drain(5)
    assert told == "next"
    assert f"“lost” may not have arrived here: {reason}. To resend it" in told_of_loss
    assert "To resend it, send /resend out-1" in told_of_loss
    assert (tried["lost"], tried["next"]) == (2, 1)
    assert states(path) == [("dead", 2), ("sent", 1), ("sent", 1)]


class ReachableChannel(FakeChannel):
    """A channel that can check whether its platform is reachable. The first `out` checks fail."""

    def __init__(self, out: int) -> None:
        super().__init__()
        self.out, self.asked = out, 0

    async def reach(self) -> None:
        self.asked += 1
        if self.asked <= self.out:
            raise SendUnknown("connection reset")


async def test_the_one_repetition_waits_until_the_platform_is_there(path: Path) -> None:
    clock, channel = FakeClock(auto=True), ReachableChannel(out=5)
    channel.refuse = fails(SendUnknown("connection reset"))
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello", "more")
        assert await channel.receive(2) == ["hello", "more"]
    assert channel.asked == 6
    assert clock.slept[0] == 60


async def test_without_a_way_to_ask_the_one_repetition_is_not_rushed(
    path: Path, channel: FakeChannel
) -> None:
    clock = FakeClock(auto=True)
    channel.refuse = fails(SendUnknown("connection reset"))
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        assert await channel.receive(1) == ["hello"]
    assert clock.slept == [60]


async def test_a_doubt_outlives_the_process(path: Path, clock: FakeClock) -> None:
    channel = FakeChannel()
    channel.refuse = lambda part: SendUnknown("reset") if part.content == "hello" else None
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await clock.until_sleeping()
    async with process(path, FakeClock(auto=True), channel) as delivery:
        await delivery.resume()
        assert "may not have arrived" in (await channel.receive(1))[0]
    assert states(path) == [("dead", 2), ("sent", 1)]


async def test_what_was_being_sent_when_the_process_died_is_in_doubt(
    path: Path, clock: FakeClock
) -> None:
    sending = asyncio.Event()

    async def hold(_: OutboundPart) -> None:
        sending.set()
        await asyncio.Event().wait()

    channel = ReachableChannel(out=0)
    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await sending.wait()
    assert (states(path), channel.asked) == ([("sending", 1)], 0)
    channel.hold = None
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        assert await channel.receive(1) == ["hello"]
    assert channel.asked == 1


async def test_what_two_processes_died_over_is_not_sent_a_third_time(
    path: Path, clock: FakeClock
) -> None:
    sending = asyncio.Event()

    async def hold(part: OutboundPart) -> None:
        if part.content == "hello":
            sending.set()
            await asyncio.Event().wait()

    channel = ReachableChannel(out=0)
    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello", "more")
        await sending.wait()
    sending.clear()
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        await sending.wait()
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        more, told = await channel.receive(2)
        await delivery.dispatcher.drain(5)
    assert (more, "“hello” may not have arrived here" in told) == ("more", True)
    assert states(path) == [("dead", 2), ("sent", 1), ("sent", 1)]


async def test_a_notice_is_sent_twice_at_most_the_second_time_when_something_else_has_arrived(
    path: Path, channel: FakeChannel
) -> None:
    tried: Counter[str] = Counter()

    def refuse(part: OutboundPart) -> Exception | None:
        tried[part.key] += 1
        return SendUnknown("timed out") if "lost" in part.content else None

    channel.refuse = refuse
    async with process(path, FakeClock(auto=True), channel) as delivery:
        await delivery.send("t1", "lost")
        for number in range(1, 6):
            await delivery.send(f"more-{number}", "more")
            await channel.receive(number)
        await delivery.dispatcher.drain(5)
    assert (tried["t1/reply/0"], tried["undelivered-t1/reply/0"]) == (2, 2)


async def die_in_a_send(
    path: Path,
    clock: FakeClock,
    channel: FakeChannel,
    writing: ContextVar[Callable[[], None]] | None = None,
) -> None:
    """Run a process that resumes all work and dies while it sends a part, or also writes it."""
    sending = asyncio.Event()

    async def hold(_: OutboundPart) -> None:
        if writing is not None:
            writing.get()()
        sending.set()
        await asyncio.Event().wait()

    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        await sending.wait()
    channel.hold = None


async def test_a_channel_that_shows_a_part_once_gets_it_as_often_as_it_takes(
    path: Path, clock: FakeClock
) -> None:
    channel = FakeChannel(limits=Limits(shown_once=True))
    async with open_journal(path, clock) as journal:
        await journal.add_outgoing("t1", reply("hello"))
    for _ in range(6):
        await die_in_a_send(path, clock, channel)
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        assert await channel.receive(1) == ["hello"]


@pytest.mark.parametrize("is_writing", [False, True])
async def test_a_part_that_was_not_written_when_the_process_died_is_in_no_doubt(
    path: Path, clock: FakeClock, is_writing: bool
) -> None:
    channel = FakeChannel(limits=Limits(tells_writing=True))
    async with open_journal(path, clock) as journal:
        await journal.add_outgoing("t1", reply("hello"))
    for number in range(2):
        await die_in_a_send(path, clock, channel, WRITING if is_writing else None)
        async with open_journal(path, clock) as journal:
            (part,) = (await journal.leftovers()).parts
        assert part.doubts == (number + 1 if is_writing else 0)


async def test_a_stop_does_not_wait_for_a_part_that_waits_for_a_connection(
    path: Path, clock: FakeClock
) -> None:
    waiting, connected = asyncio.Event(), asyncio.Event()

    async def hold(_: OutboundPart) -> None:
        waiting.set()
        await connected.wait()

    channel = FakeChannel(limits=Limits(tells_writing=True))
    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello", "more")
        await waiting.wait()
        delivery.dispatcher.begin_stop(0.1)
        await delivery.send("t2", "later")
        await asyncio.wait_for(delivery.dispatcher.drain(3_600), 10)
    connected.set()
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        assert await channel.receive(3) == ["hello", "more", "later"]


async def test_a_part_that_is_being_written_when_a_stop_begins_is_waited_for(
    path: Path, clock: FakeClock
) -> None:
    writing = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hold(_: OutboundPart) -> None:
        WRITING.get()()
        answered = asyncio.Event()
        loop.call_later(0.2, answered.set)
        writing.set()
        await answered.wait()

    channel = FakeChannel(limits=Limits(tells_writing=True))
    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await writing.wait()
        delivery.dispatcher.begin_stop(0.1)
        await delivery.dispatcher.drain(10)
    assert states(path) == [("sent", 1)]


async def test_a_voice_message_in_whose_send_processes_died_is_told_by_its_first_words(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    async with open_journal(path, clock) as journal:
        voice = OutboundMessage("fake", "1", "", media=(Media.to_speak("word " * 500),))
        (part,) = await journal.add_outgoing("t1", Outgoing("voice", (voice,)))
        for doubts in range(MOST_DOUBTS):
            journal.mark_sending(replace(part, doubts=doubts))
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        (told,) = await channel.receive(1)
    assert told.startswith("⚠️ A voice message that begins “word word ")
    assert len(told) < 300


async def test_a_start_sends_few_leftovers_at_once_and_holds_up_no_other_chat(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    gate, sending = asyncio.Event(), set[str]()

    async def hold(part: OutboundPart) -> None:
        if part.chat_id != "new":
            sending.add(part.chat_id)
            await gate.wait()

    channel.hold = hold
    async with open_journal(path, clock) as journal:
        for number in range(30):
            await journal.add_outgoing(f"t{number}", reply("a", "b", chat_id=str(number)))
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        await delivery.send("new", "hello", chat_id="new")
        assert await channel.receive(1, "new") == ["hello"]
        assert len(sending) == LEFTOVERS
        await clock.advance(6)  # the slow sends delay no others
        assert len(sending) == 2 * LEFTOVERS
        gate.set()
        for number in range(30):
            assert await channel.receive(2, str(number)) == ["a", "b"]


async def test_where_a_repetition_does_not_show_no_doubt_gives_a_part_up(path: Path) -> None:
    channel = FakeChannel(limits=Limits(shown_once=True))
    channel.refuse = fails(
        SendUnknown("reset"), LookupError("down"), SendLater("off"), SendUnknown("reset")
    )
    async with process(path, FakeClock(auto=True), channel) as delivery:
        await delivery.send("t1", "hello")
        assert await channel.receive(1) == ["hello"]


@pytest.mark.parametrize("shown_once", [True, False])
async def test_only_a_part_that_may_repeat_is_followed_before_its_mark_is_stored(
    path: Path, clock: FakeClock, *, shown_once: bool
) -> None:
    channel, gate = FakeChannel(limits=Limits(shown_once=shown_once)), asyncio.Event()
    channel.hold = lambda _: gate.wait()
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "a", "b")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")  # as a slow disk
            gate.set()
            if shown_once:
                assert await channel.receive(2) == ["a", "b"]
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(channel.receive(2), 0.2)
            assert ("sent",) not in db.execute("SELECT state FROM outbox").fetchall()
        await delivery.dispatcher.drain(10)
    assert rows(path, "SELECT state, platform_id FROM outbox") == [("sent", "1"), ("sent", "2")]


async def test_a_rejected_notice_goes_out_after_a_part_that_may_repeat(
    path: Path, clock: FakeClock
) -> None:
    channel = FakeChannel(limits=Limits(shown_once=True))
    channel.refuse = fails(SendRefused("gone"), SendRefused("gone"))  # and of its notice
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "lost")
        await delivery.dispatcher.drain(5)
    async with process(path, clock, channel) as delivery:
        await delivery.send("t2", "hello")
        first, told = await channel.receive(2)
    assert first == "hello"
    assert "“lost” could not be delivered here: gone" in told


async def test_a_refused_file_is_told_where_its_turn_was_asked_for(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    channel.refuse = lambda part: SendRefused("too large") if part.media else None
    report = Media("media/x", name="report.pdf")
    async with process(path, clock, channel) as delivery:
        asked = replace(make_message("m9", "send Bob the report", chat_id="7"), thread_id="3")
        (entry,) = await delivery.journal.receive("fake", (asked,))
        delivery.journal.claim("t1", asked.session_key, (entry.id,), at_once=True)
        to_bob = OutboundMessage("fake", "bob", "", media=(report,))
        parts = await delivery.journal.add_outgoing("t1", Outgoing("call-1", (to_bob,)))
        delivery.dispatcher.submit(parts)
        (told,) = await channel.receive(1, "7")
    assert told.startswith("⚠️ The file report.pdf could not be delivered to fake:bob: too large.")
    assert channel.sent[0].thread_id == "3"


async def test_a_loss_is_told_once_for_each_message_and_never_of_what_tells_it(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    tried: list[str] = []

    def refuse(part: OutboundPart) -> Exception:
        tried.append(part.content)
        return SendRefused("the chat is gone")

    channel.refuse = refuse
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "a", "b", "c")
        await delivery.dispatcher.drain(5)
    assert tried[:3] == ["a", "b", "c"]
    assert len(tried) == 4
    channel.refuse = fails()
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        await delivery.send("t2", "back again")
        first, told = await channel.receive(2)
    assert first == "back again"
    assert "“a” could not be delivered here: the chat is gone" in told
    assert states(path) == [("dead", 1)] * 3 + [("sent", 2), ("sent", 1)]


async def test_earlier_failures_do_not_take_the_second_try_away(
    path: Path, channel: FakeChannel
) -> None:
    flood = SendLater("flood", retry_after=1.0)
    channel.refuse = fails(flood, SendLater("offline"), flood, SendUnknown("timed out"))
    async with process(path, FakeClock(auto=True), channel) as delivery:
        await delivery.send("t1", "hello")
        assert await channel.receive(1) == ["hello"]


async def test_a_refused_part_is_dead_at_once_and_the_next_still_goes(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    channel.refuse = fails(SendRefused("blocked"))
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "refused", "next")
        assert await channel.receive(1) == ["next"]
        await delivery.dispatcher.drain(5)
    assert rows(path, "SELECT state, reason FROM outbox WHERE turn_id = 't1' ORDER BY id") == [
        ("dead", "blocked"),
        ("sent", ""),
    ]
    assert clock.slept == []


async def cancel_oneself() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def test_a_channel_that_cancels_itself_is_tried_again(
    path: Path, channel: FakeChannel
) -> None:
    steps = [cancel_oneself]

    async def hold(_: OutboundPart) -> None:
        if steps:
            await steps.pop()()

    channel.hold = hold
    async with process(path, FakeClock(auto=True), channel) as delivery:
        await delivery.send("t1", "a", "b")
        assert await channel.receive(2) == ["a", "b"]


async def test_pauses_grow_to_five_minutes_and_after_a_day_a_person_decides(
    path: Path, channel: FakeChannel
) -> None:
    clock = FakeClock(auto=True)
    channel.refuse = lambda _: SendLater("down")
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await delivery.dispatcher.drain(30)
    assert 1.0 <= clock.slept[0] <= 2.0
    assert max(clock.slept) <= 300.0
    first_day = clock.slept[: MOST_ATTEMPTS - 1]
    assert 0.4 * 86_400 < sum(first_day) < 86_400
    assert states(path)[0] == ("dead", MOST_ATTEMPTS)


async def test_the_next_process_goes_on_at_the_first_part_that_was_not_confirmed(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    async def hold(part: OutboundPart) -> None:
        if part.content == "b":
            await asyncio.Event().wait()

    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "a", "b", "c")
        await channel.receive(1)
    channel.hold = None
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        assert await channel.receive(3) == ["a", "b", "c"]


async def test_a_rate_limit_outlives_a_restart(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    channel.refuse = fails(SendLater("flood", retry_after=100.0))
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await clock.until_sleeping()
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        await clock.until_sleeping()
        assert clock.slept == [100.0, 100.0]
        await clock.advance(100)
        assert await channel.receive(1) == ["hello"]


async def test_a_clock_that_was_set_back_delays_a_part_by_an_hour_at_most(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    channel.refuse = fails(SendLater("flood", retry_after=100.0))
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await clock.until_sleeping()
    clock.jump(-365 * 86_400)
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        await clock.until_sleeping()
        assert clock.slept[-1] == 3600


async def test_a_channel_that_is_off_keeps_its_parts(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    async with process(path, clock) as delivery:
        await delivery.send("t1", "hello")
        await delivery.dispatcher.drain(5)
    assert states(path) == [("pending", 0)]
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        assert await channel.receive(1) == ["hello"]


async def test_while_the_disk_refuses_the_mark_nothing_more_goes_to_the_chat(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    async with process(path, clock, channel) as delivery:
        parts = await delivery.journal.add_outgoing("t1", reply("a", "b"))
        await delivery.journal.add_outgoing("filler", reply("x" * 500_000, channel="off"))
        with no_file_may_grow_beyond(200_000):
            delivery.dispatcher.submit(parts)
            await channel.receive(1)
            with pytest.raises(StorageError):
                await delivery.journal.receive("fake", (), "7")
            assert await channel.receive(1) == ["a"]
        await delivery.journal.receive("fake", (), "7")
        assert await channel.receive(2) == ["a", "b"]


async def test_progress_of_a_chat_is_shown_before_its_reply(
    delivery: Delivery, channel: FakeChannel
) -> None:
    seen: list[TextDelta] = []

    async def hold(_: OutboundPart) -> None:
        seen.extend(event for event in channel.shown if isinstance(event, TextDelta))

    channel.hold = hold
    for _ in range(5):
        delivery.screen.show_progress(TextDelta("fake", "1", "t1", "x"))
    await delivery.send("t1", "xxxxx")
    await channel.receive(1)
    assert "".join(event.text for event in seen) == "xxxxx"


async def test_whether_a_worker_may_send_is_asked_after_its_progress_was_shown(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    """Showing progress takes up to two seconds, in which another worker may have taken over."""
    shown_before: list[int] = []

    class JournalWithCheck(SqliteJournal):
        async def may_act(self) -> None:
            shown_before.append(len(channel.shown))

    journal = JournalWithCheck(path, clock)
    await journal.open()
    delivery = Delivery(journal, clock, channel)
    delivery.screen.show_progress(TextDelta("fake", "1", "t1", "x"))
    await delivery.send("t1", "x")
    assert await channel.receive(1) == ["x"]
    assert shown_before == [1]
    await journal.close()


async def test_the_parts_of_a_long_text_arrive_with_only_the_last_marked(
    delivery: Delivery, channel: FakeChannel
) -> None:
    outgoing = reply("word " * 100)
    parts = split_message(outgoing.parts[0], Limits(text=200))
    delivery.dispatcher.submit(
        await delivery.journal.add_outgoing("t1", type(outgoing)("reply", parts, ("m1",)))
    )
    await channel.receive(3)
    assert [part.last for part in channel.sent] == [False, False, True]
    assert {part.event_ids for part in channel.sent} == {("m1",)}
    assert len({part.key for part in channel.sent}) == 3


async def test_a_stop_waits_for_sends_under_way_and_begins_none_that_waits(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def hold(part: OutboundPart) -> None:
        begun.set()
        if part.content == "under way":
            await gate.wait()

    channel.hold = hold
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "under way", "behind it")
        await begun.wait()
        delivery.dispatcher.begin_stop(20)
        draining = asyncio.create_task(delivery.dispatcher.drain(20))
        await delivery.send("t2", "new, in a chat with one that waits")
        await delivery.send("t3", "new", chat_id="2")
        assert await channel.receive(1, "2") == ["new"]
        gate.set()
        await draining
    assert [part.content for part in channel.sent] == ["new", "under way"]
    assert states(path) == [("sent", 1), ("pending", 0), ("pending", 0), ("sent", 1)]
    async with process(path, clock, channel) as delivery:
        await delivery.resume()
        waited = ["behind it", "new, in a chat with one that waits"]
        assert (await channel.receive(3))[1:] == waited


async def test_a_stop_begins_no_new_part_that_has_no_time_to_arrive(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    async with process(path, clock, channel) as delivery:
        delivery.dispatcher.begin_stop(0)
        await delivery.send("t1", "too late")
        await delivery.dispatcher.drain(5)
    assert states(path) == [("pending", 0)]


async def test_a_stop_does_not_wait_for_a_part_that_failed(
    path: Path, clock: FakeClock, channel: FakeChannel
) -> None:
    failed = asyncio.Event()

    def refuse(_: OutboundPart) -> Exception:
        failed.set()
        return SendLater("flood", retry_after=600)

    channel.refuse = refuse
    async with process(path, clock, channel) as delivery:
        await delivery.send("t1", "hello")
        await failed.wait()
        delivery.dispatcher.begin_stop(20)
        await asyncio.wait_for(delivery.dispatcher.drain(20), 5)
    assert states(path) == [("pending", 1)]
