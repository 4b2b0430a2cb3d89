"""A person's message is marked as seen, in progress and done, and nothing waits for the marks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.bus.events import OutboundPart, TurnEnded, TurnStarted
from nanobot.channel import asks_to_keep
from nanobot_telegram import TelegramChannel
from nanobot_telegram.reactions import DONE, SEEN, WORKING
from tests.channels.telegram.support import RecordingHost, WatchedClock, running
from tests.doubles.telegram import FakeTelegram

PERSON, GROUP = 7, -42
DELAY = 0.6
PACE = 0.25


async def start_turn(channel: TelegramChannel, *events: int | str, chat: int = PERSON) -> None:
    ids = tuple(map(str, events))
    await channel.show_progress(TurnStarted("telegram", str(chat), "t1", ids))


async def end_turn(
    channel: TelegramChannel, *events: int | str, outcome: str = "done", chat: int = PERSON
) -> None:
    ids = tuple(map(str, events))
    event = TurnEnded("telegram", str(chat), "t1", ids, outcome)  # type: ignore[arg-type]
    await channel.show_progress(event)


def marks(telegram: FakeTelegram) -> list[str]:
    """Return every mark that was set in order, "" for a removed one."""
    reactions = [call.objects("reaction") for call in telegram.calls_of("setMessageReaction")]
    return [str(one[0]["emoji"]) if one else "" for one in reactions]


async def pass_delay(clock: WatchedClock, times: int = 1) -> None:
    """Let the time pass after which a message is marked, for the last of so many times."""
    await clock.until_asked(DELAY, times)
    await clock.advance(DELAY)


async def wait_for_marks(telegram: FakeTelegram, clock: WatchedClock, *wanted: str) -> None:
    """Wait until exactly these marks were set, and the pause after the last is over."""
    await pass_delay(clock, len(wanted))
    await telegram.wait_for(lambda: marks(telegram) == list(wanted))
    await clock.until_asked(PACE, len(wanted))
    await clock.advance(PACE)


async def test_a_message_is_seen_worked_on_and_done(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    async with running(telegram, RecordingHost(tmp_path, clock)) as channel:
        question = telegram.say("hello")
        await wait_for_marks(telegram, clock, SEEN)
        await start_turn(channel, question)
        await wait_for_marks(telegram, clock, SEEN, WORKING)
        await end_turn(channel, question)
        await wait_for_marks(telegram, clock, SEEN, WORKING, DONE)
        assert telegram.reactions() == {question: DONE}
    assert not telegram.violations


def test_no_mark_of_ours_is_a_wish_to_keep_a_message() -> None:
    assert not asks_to_keep((SEEN, WORKING, DONE))


async def test_a_quick_answer_has_only_its_last_mark(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host) as channel:
        question = telegram.say("hello")
        await clock.until_asked(DELAY)
        await start_turn(channel, question)
        await end_turn(channel, question)
        await wait_for_marks(telegram, clock, DONE)


async def test_nothing_is_seen_before_it_is_durable(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    host.gate.clear()
    async with running(telegram, host):
        telegram.say("hello")
        await host.until(lambda: host.published)
        assert marks(telegram) == []
        host.gate.set()
        await wait_for_marks(telegram, clock, SEEN)


@pytest.mark.parametrize(
    ("outcome", "last"), [("failed", ""), ("stopped", ""), ("waiting", SEEN), ("held", SEEN)]
)
async def test_only_what_was_done_is_marked_as_done(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path, outcome: str, last: str
) -> None:
    async with running(telegram, RecordingHost(tmp_path, clock)) as channel:
        question = telegram.say("hello")
        await wait_for_marks(telegram, clock, SEEN)
        await start_turn(channel, question)
        await wait_for_marks(telegram, clock, SEEN, WORKING)
        await end_turn(channel, question, outcome=outcome)
        await wait_for_marks(telegram, clock, SEEN, WORKING, last)


async def test_what_changes_while_a_call_is_under_way_is_not_caught_up_with(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    async with running(telegram, RecordingHost(tmp_path, clock)) as channel:
        gate = telegram.hang("setMessageReaction")
        question = telegram.say("hello")
        await pass_delay(clock)
        await telegram.wait_for(lambda: telegram.calls_of("setMessageReaction"))
        await start_turn(channel, question)
        await end_turn(channel, question)
        gate.set()
        await clock.until_asked(PACE)
        assert marks(telegram) == [SEEN]
        await clock.advance(PACE)
        await telegram.wait_for(lambda: marks(telegram) == [SEEN, DONE])


async def test_a_mark_that_hangs_holds_up_neither_a_reply_nor_the_next_message(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host) as channel:
        telegram.hang("setMessageReaction")
        question = telegram.say("hello")
        await pass_delay(clock)
        await telegram.wait_for(lambda: telegram.calls_of("setMessageReaction"))
        telegram.say("again")
        assert await host.texts(2) == ["hello", "again"]
        await channel.send(OutboundPart("k", "telegram", str(PERSON), "hi", reply_to=str(question)))
        assert telegram.texts() == ["hi"]


@pytest.mark.parametrize("chat", [PERSON, GROUP])
async def test_a_chat_that_takes_no_reactions_is_asked_once(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path, chat: int
) -> None:
    telegram.group(GROUP)
    telegram.forbid_reactions(chat)
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host) as channel:
        first = telegram.say("one", chat=chat)
        await wait_for_marks(telegram, clock, SEEN)
        await start_turn(channel, first, chat=chat)
        telegram.say("two", chat=chat)
        await host.texts(2)
        telegram.say("elsewhere", user=8)
        await wait_for_marks(telegram, clock, SEEN, SEEN)
        assert telegram.reactions(chat) == {}
        assert len(telegram.reactions(8)) == 1


async def test_a_message_that_is_gone_keeps_no_other_from_its_mark(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    telegram.delete(telegram.say("taken back"))
    async with running(telegram, RecordingHost(tmp_path, clock)):
        await wait_for_marks(telegram, clock, SEEN)
        other = telegram.say("stays")
        await wait_for_marks(telegram, clock, SEEN, SEEN)
        assert telegram.reactions() == {other: SEEN}


async def test_where_telegram_asks_to_wait_nothing_is_marked_meanwhile(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    telegram.fail("setMessageReaction", 429, parameters={"retry_after": 20})
    async with running(telegram, RecordingHost(tmp_path, clock)) as channel:
        question = telegram.say("hello")
        await pass_delay(clock)
        await clock.until_asked(20.0)
        await end_turn(channel, question)
        await clock.advance(19.0)
        assert marks(telegram) == [SEEN]
        await clock.advance(1.0)
        await telegram.wait_for(lambda: marks(telegram) == [SEEN, DONE])


async def test_commands_notes_and_pressed_buttons_are_not_marked(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host) as channel:
        command = telegram.say("/help")
        await host.texts(1)
        await start_turn(channel, "callback:9", "cron:job:1")
        await end_turn(channel, command, "callback:9")
        question = telegram.say("hello")
        await wait_for_marks(telegram, clock, SEEN)
        assert list(telegram.reactions()) == [question]


async def test_a_mark_from_before_a_restart_is_removed_after_a_turn_that_fails_at_once(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host):
        question = telegram.say("hello")
        await pass_delay(clock)
        await telegram.wait_for(lambda: telegram.reactions() == {question: SEEN})
    async with running(telegram, host) as channel:
        await telegram.wait_for(lambda: telegram.polls)
        await start_turn(channel, question)
        await end_turn(channel, question, outcome="failed")
        await pass_delay(clock, 2)
        await telegram.wait_for(lambda: marks(telegram) == [SEEN, ""])


async def test_a_mark_that_may_have_been_set_is_removed(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    async with running(telegram, RecordingHost(tmp_path, clock)) as channel:
        telegram.slow("setMessageReaction")
        question = telegram.say("hello")
        await pass_delay(clock)
        await telegram.wait_for(lambda: telegram.reactions() == {question: SEEN})
        await clock.advance(10)
        await clock.until_asked(PACE)
        await start_turn(channel, question)
        await end_turn(channel, question, outcome="failed")
        await clock.advance(PACE)
        await telegram.wait_for(lambda: marks(telegram) == [SEEN, ""])


async def test_after_a_restart_a_turn_that_goes_on_still_marks_its_message(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host):
        question = telegram.say("hello")
        await pass_delay(clock)
        await telegram.wait_for(lambda: telegram.reactions() == {question: SEEN})
    async with running(telegram, host) as channel:
        await telegram.wait_for(lambda: telegram.polls)
        await start_turn(channel, question)
        await pass_delay(clock, 2)
        await telegram.wait_for(lambda: telegram.reactions() == {question: WORKING})


async def test_switched_off_nothing_is_marked(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = RecordingHost(tmp_path, clock)
    async with running(telegram, host, reactions=False) as channel:
        question = telegram.say("hello")
        await host.texts(1)
        await start_turn(channel, question)
        await end_turn(channel, question)
        await asyncio.sleep(0)
        assert marks(telegram) == []
