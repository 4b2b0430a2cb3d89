"""Answers reach their chats in order and once, for any failure on the way to Telegram."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nanobot.testing import ScriptedModel, calls, says
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import OWNER, Writer, repeat, status_of
from tests.doubles.telegram import FakeTelegram
from tests.support import Gate, talking

OTHER = 8
PEOPLE = {"allow_from": [str(OTHER)]}
QUEUE = "queue"
TINY = 1e-9
"""Other sleeps take whole seconds."""


async def pass_retry(clock: WatchedClock) -> None:
    """Advance past the random pause before a part's second attempt."""
    await clock.until_asked_between(1.0 + TINY, 2.0 - TINY)
    await clock.advance(2.0)


async def pass_repetition(clock: WatchedClock) -> None:
    """Advance past the minute after which an unconfirmed part is repeated."""
    await clock.until_asked(60.0)
    await clock.advance(60.0)


async def test_a_flooded_chat_gets_its_answers_in_order_and_delays_no_other(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(
        tmp_path, telegram, model, clock=clock, settings=PEOPLE, NANOBOT_AGENT__ON_BUSY=QUEUE
    ):
        telegram.fail("sendMessage", 429, parameters={"retry_after": 40}, times=2, chat=OWNER)
        for text in ("one", "two"):
            telegram.say(text)
        await clock.until_asked(40.0)
        telegram.say("hello", user=OTHER)
        assert await telegram.receive(1, OTHER) == ["re: hello"]
        await clock.advance(40.0)
        await clock.until_asked(40.0, times=2)
        assert telegram.texts() == []
        await clock.advance(40.0)
        assert await telegram.receive(2) == ["re: one", "re: two"]
    assert telegram.violations == []


async def test_a_chat_whose_sends_hang_delays_no_other(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model, clock=clock, settings=PEOPLE):
        gate = telegram.hang("sendMessage", chat=OWNER)
        telegram.say("one")
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
        telegram.say("hello", user=OTHER)
        assert await telegram.receive(1, OTHER) == ["re: hello"]
        gate.set()
        assert await telegram.receive(1) == ["re: one"]


Pause = Callable[[WatchedClock], Awaitable[None]]
PASSING: dict[str, tuple[Callable[[FakeTelegram], object], Pause]] = {
    "500": (lambda telegram: telegram.fail("sendMessage", 500), pass_repetition),
    "502": (lambda telegram: telegram.fail("sendMessage", 502), pass_repetition),
    "a token refused once": (lambda telegram: telegram.fail("sendMessage", 401), pass_retry),
}


@pytest.mark.parametrize(("fault", "passed"), PASSING.values(), ids=PASSING)
async def test_what_passes_costs_a_pause_and_no_answer(
    tmp_path: Path,
    telegram: FakeTelegram,
    clock: WatchedClock,
    fault: Callable[[FakeTelegram], object],
    passed: Pause,
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        fault(telegram)
        telegram.say("one")
        await passed(clock)
        assert await telegram.receive(1) == ["re: one"]


async def test_a_telegram_that_is_gone_for_a_while_gets_the_answer_when_it_is_back(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    gate = Gate()
    model = ScriptedModel(author=repeat, hold=gate)
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.say("one")
        await gate.reached.wait()
        await telegram.wait_for(lambda: telegram.confirmed)
        await telegram.stop()
        gate.opened.set()
        await clock.until_asked_between(1.0 + TINY, 2.0 - TINY)
        await telegram.start()
        await clock.advance(2.0)
        assert await telegram.receive(1) == ["re: one"]
        while not telegram.polls:
            await clock.advance(1.0)
        telegram.say("two")
        assert await telegram.receive(2) == ["re: one", "re: two"]


async def test_a_send_without_an_answer_is_tried_once_more_and_then_left_to_a_person(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.cut("sendMessage", after="effect", times=2)
        telegram.say("one")
        await pass_repetition(clock)
        telegram.say("two")
        *answers, told = sorted(await telegram.receive(4))
        assert answers == ["re: one", "re: one", "re: two"]
        assert told.startswith("⚠️ A message that begins “re: one” may not have arrived here")
        assert (await status_of(tmp_path))["queue"]["dead"] == 1
    assert len(telegram.calls_of("sendMessage")) == 4


HTML = b"<h1>Bad Gateway</h1>"


UNCLEAR = (
    (500, b'{"ok": false, "error_code": 500, "description": "Internal Server Error: restart"}'),
    (502, HTML),
    (504, b" "),
    (302, HTML),
    (408, HTML),
    (409, HTML),
    (200, HTML),
    (200, b'{"ok": false}'),
    (200, b'{"ok": false, "error_code": 504}'),
)


async def test_what_telegram_took_without_saying_so_comes_twice_at_most(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    people = range(OTHER, OTHER + len(UNCLEAR))
    allowed = {"allow_from": [str(person) for person in people]}
    async with talking(
        tmp_path, telegram, ScriptedModel(author=repeat), clock=clock, settings=allowed
    ):
        for person, (status, body) in zip(people, UNCLEAR, strict=True):
            telegram.garble(
                "sendMessage", body, status=status, times=9, chat=person, after="effect"
            )
            telegram.say("one", user=person)
        await clock.until_asked(60.0, times=len(UNCLEAR))
        await clock.advance(60.0)  # the answers
        for person in people:
            await telegram.receive(3, person)
        for _ in range(20):
            await clock.advance(400.0)
        telegram.heal()
        for person in people:
            telegram.say("two", user=person)
        texts = [[text[:7] for text in await telegram.receive(5, person)] for person in people]
    assert texts == [["re: one"] * 2 + ["⚠️ A me", "re: two", "⚠️ A me"]] * len(UNCLEAR)


async def test_the_button_sends_it_again_once_however_often_it_is_pressed(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.fail("sendMessage", 504, times=2, after="effect")
        telegram.say("one")
        await pass_repetition(clock)
        await telegram.receive(3)
        press_again(telegram, times=2)
        assert sorted((await telegram.receive(6))[3:]) == [
            "I'm sending it again.",
            "It was already resent or dropped.",
            "re: one",
        ]
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.say("/resend out-1")
        assert (await telegram.receive(7))[-1] == "It was already resent or dropped."
        assert (await status_of(tmp_path))["queue"]["dead"] == 0


async def test_the_button_is_good_after_a_restart_and_what_dies_again_is_told_again(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    refusal = "Bad Request: not enough rights to send text messages to the chat"
    telegram.say("one")
    for times in (1, 2):
        telegram.fail("sendMessage", 400, refusal)
        async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
            while (await notices(tmp_path, telegram)) < times:
                pass
        press_again(telegram)
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        await telegram.wait_for(lambda: "re: one" in telegram.texts())


async def notices(home: Path, telegram: FakeTelegram) -> int:
    """Return the number of notices, once nothing is in flight."""
    pending = (await status_of(home))["queue"]["outbox_pending"]
    return 0 if pending else sum("⚠️" in text for text in telegram.texts())


def press_again(telegram: FakeTelegram, times: int = 1) -> None:
    """Press the button under the newest notice."""
    notice = [sent for sent in telegram.messages() if sent.labels][-1]
    for _ in range(times):
        telegram.press(notice.message_id, "Send again")


@pytest.mark.parametrize("seconds", [3, 8, 60])
async def test_a_network_that_resets_every_connection_for_a_while_costs_no_answer(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock, seconds: int
) -> None:
    gate = Gate()
    model = ScriptedModel(author=repeat, hold=gate)
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.say("one")
        await gate.reached.wait()
        for method in ("", "getUpdates"):
            telegram.cut(method, times=10_000)
        gate.opened.set()
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
        for _ in range(seconds):
            await clock.advance(1.0)
        telegram.heal()
        while not telegram.texts():
            await clock.advance(1.0)
        assert await telegram.receive(1) == ["re: one"]
        assert (await status_of(tmp_path))["queue"]["dead"] == 0
    assert len(telegram.calls_of("sendMessage")) == 2


async def test_who_blocked_the_bot_is_answered_again_once_they_are_back(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.fail("sendMessage", 403, "Forbidden: bot was blocked by the user")
        telegram.say("one")
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
        while (await status_of(tmp_path))["queue"]["dead"] == 0:
            pass
        telegram.say("two")
        answer, told = await telegram.receive(2)
        assert (answer, "“re: one” could not be delivered" in told) == ("re: two", True)


async def test_an_answer_to_a_topic_that_is_gone_goes_to_the_group(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    group = telegram.group(-1005, forum=True)
    topic = telegram.topic(group)
    gate = Gate()
    model = ScriptedModel(author=repeat, hold=gate)
    groups = {"groups": "open", "allow_groups": {str(group): ["*"]}}
    async with talking(tmp_path, telegram, model, clock=clock, settings=groups):
        telegram.say("one", chat=group, thread=topic)
        await gate.reached.wait()
        telegram.delete_topic(group, topic)
        gate.opened.set()
        assert await telegram.receive(1, group) == ["re: [from Robin]\none"]
    assert telegram.messages(group)[0].thread is None


async def test_a_long_answer_goes_on_after_a_restart_at_the_first_part_not_confirmed(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    long = "\n\n".join(f"{letter * 3000} {letter}" for letter in "abc")
    async with talking(tmp_path, telegram, ScriptedModel(says(long)), clock=clock):
        telegram.say("write a lot")
        gate = telegram.hang("sendMessage")
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
        telegram.fail("sendMessage", 500)
        gate.set()
        await clock.until_asked(60.0)
    async with talking(tmp_path, telegram, ScriptedModel(), clock=clock):
        await clock.until_asked(60.0, times=2)
        await clock.advance(60.0)
        texts = await telegram.receive(3)
    assert [text[0] for text in texts] == ["a", "b", "c"]
    assert len(telegram.calls_of("sendMessage")) == 4
    assert telegram.violations == []


async def test_an_answer_that_is_being_sent_when_it_stops_is_not_sent_twice(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model) as gateway:
        gate = telegram.hang("sendMessage")
        telegram.say("one")
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
        await telegram.wait_for(lambda: telegram.polls)
        gateway.request_stop()
        for _ in range(100):  # everything that can be aborted is
            await asyncio.sleep(0)
        gate.set()
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat)):
        telegram.say("two")
        assert await telegram.receive(2) == ["re: one", "re: two"]


async def test_what_the_message_tool_said_already_is_not_said_again(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(calls("message", text="*done*"), says("*done*"), says("hi"))
    async with talking(tmp_path, telegram, model, clock=clock, NANOBOT_AGENT__ON_BUSY=QUEUE):
        telegram.say("do it")
        await telegram.receive(1)
        telegram.say("hello")
        assert await telegram.receive(2) == ["done", "hi"]


async def test_no_draft_is_shown_after_the_answer(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    gate = Gate()
    async with talking(tmp_path, telegram, Writer(repeat, gate), clock=clock):
        telegram.say("one")
        await clock.until_asked(0.4)  # nothing is shown before
        await clock.advance(0.4)
        await telegram.wait_for(lambda: telegram.drafts(OWNER))
        held = telegram.hang("sendMessageDraft")
        for seconds in (0.5, 19.5):  # the pace of drafts, and the rest of its life
            await clock.until_asked(seconds)
            await clock.advance(seconds)
        await telegram.wait_for(lambda: len(telegram.calls_of("sendMessageDraft")) == 2)
        gate.opened.set()
        await clock.until_asked(1.0)  # hanging calls get a moment
        await clock.advance(1.0)
        assert await telegram.receive(1) == ["re: one"]
        held.set()
        await clock.advance(60.0)
        telegram.say("two")
        await telegram.receive(2)
    shown = [call.method for call in telegram.calls_of("sendMessageDraft", "sendMessage")]
    assert shown[:3] == ["sendMessageDraft", "sendMessageDraft", "sendMessage"]
