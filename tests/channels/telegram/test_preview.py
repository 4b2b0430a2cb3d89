"""The preview during a turn: its frequency, its end, and its remains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.bus.events import (
    ModelUnreachable,
    Notice,
    Progress,
    PromptReading,
    TextDelta,
    Thinking,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.bus.split import utf16_length
from nanobot.errors import SendLater
from nanobot.testing import FakeClock
from tests.channels.telegram.sending import GROUP, PERSON, Rig, set_up_rig, start_rig, until
from tests.doubles.telegram import FakeTelegram

FIRST_PAUSE = 0.4


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with set_up_rig(tmp_path) as rig:
        rig.telegram.group(GROUP)
        yield rig


def start(turn: str = "t1", chat: int = PERSON) -> Progress:
    return TurnStarted("telegram", str(chat), turn)


def text(piece: str, turn: str = "t1", chat: int = PERSON, *, restart: bool = False) -> Progress:
    return TextDelta("telegram", str(chat), turn, piece, restart)


def tool(hint: str, turn: str = "t1", chat: int = PERSON) -> Progress:
    return ToolStarted("telegram", str(chat), turn, hint)


def reading(read: int) -> Progress:
    return PromptReading("telegram", str(PERSON), "t1", read, 2_750)


def end(turn: str = "t1", chat: int = PERSON) -> Progress:
    return TurnEnded("telegram", str(chat), turn, (), "done")


def notice(words: str, chat: int = PERSON) -> Progress:
    return Notice("telegram", str(chat), words)


async def show(rig: Rig, *events: Progress) -> None:
    """Report the events. A new turn then takes longer than an answer that needs no progress."""
    for event in events:
        await rig.previews.show_progress(event)
    if any(isinstance(event, TurnStarted) for event in events):
        await rig.clock.advance(FIRST_PAUSE)


async def at_rest(rig: Rig, chats: int = 1) -> None:
    """Wait until no call is in flight and every chat waits for the time to pass."""
    await rig.clock.until_sleeping(chats)


def drafts(rig: Rig, chat: int = PERSON) -> list[str]:
    return [draft.text for draft in rig.telegram.drafts(chat)]


async def wait_for_draft(rig: Rig, words: str, chat: int = PERSON) -> None:
    await rig.telegram.wait_for(lambda: drafts(rig, chat)[-1:] == [words])


async def wait_for_typing(rig: Rig, count: int) -> None:
    await rig.telegram.wait_for(lambda: len(rig.telegram.actions()) == count)


async def test_a_quick_answer_needs_no_progress(rig: Rig) -> None:
    for event in (start(), text("Hello")):
        await rig.previews.show_progress(event)
    await at_rest(rig)
    await rig.clock.advance(FIRST_PAUSE - 0.01)
    await show(rig, end())
    await rig.clock.advance(60)
    assert rig.telegram.calls == []


async def test_the_bot_types_every_four_seconds_until_text_flows(rig: Rig) -> None:
    await show(rig, start())
    for count in (1, 2, 3):
        await wait_for_typing(rig, count)
        await at_rest(rig)
        await rig.clock.advance(3.9)
        await at_rest(rig)
        assert rig.telegram.actions() == ["typing"] * count
        await rig.clock.advance(0.11)
    await wait_for_typing(rig, 4)
    await show(rig, text("Hello"))
    await wait_for_draft(rig, "Hello")
    await at_rest(rig)
    await rig.clock.advance(15)
    await at_rest(rig)
    assert rig.telegram.actions() == ["typing"] * 4


async def test_the_bot_stops_typing_when_the_turn_ends(rig: Rig) -> None:
    await show(rig, start())
    await rig.telegram.wait_for(rig.telegram.actions)
    await at_rest(rig)
    await show(rig, end())
    await rig.clock.advance(60)
    assert rig.telegram.actions() == ["typing"]


async def test_drafts_are_rendered_and_half_a_second_apart(rig: Rig) -> None:
    await show(rig, start(), text("**Hel"))
    await wait_for_draft(rig, "**Hel")
    await at_rest(rig)
    await show(rig, text("lo** you"))
    await rig.clock.advance(0.49)
    await at_rest(rig)
    assert drafts(rig) == ["**Hel"]
    await rig.clock.advance(0.01)
    await wait_for_draft(rig, "Hello you")
    first, second = rig.telegram.drafts()
    assert first.draft_id == second.draft_id
    assert [entity["type"] for entity in second.entities] == ["bold"]


async def test_what_a_tool_prints_stands_below_its_name_as_it_is(rig: Rig) -> None:
    printed = ToolOutput("telegram", str(PERSON), "t1", "**1** of 2\n")
    await show(rig, start(), text("I **build** it."), tool("exec make"), printed)
    await wait_for_draft(rig, "I build it.\n\nexec make\n**1** of 2")
    draft = rig.telegram.drafts()[-1]
    assert [entity["type"] for entity in draft.entities] == ["bold", "italic", "pre"]


async def test_the_end_of_a_tools_output_is_shown_until_the_turn_goes_on(rig: Rig) -> None:
    lines = "".join(f"line {number}\n" for number in range(500))
    outputs = [ToolOutput("telegram", str(PERSON), "t1", more) for more in (lines, "x" * 500)]
    await show(rig, start(), tool("exec make"), *outputs)
    last = "\n".join(f"line {number}" for number in range(495, 500))
    await wait_for_draft(rig, f"exec make\n{last}\n{'x' * 99}…")
    await at_rest(rig)
    await show(rig, text("It is built."))
    await rig.clock.advance(0.5)
    await wait_for_draft(rig, "It is built.")


async def test_a_turn_of_which_nothing_is_heard_is_given_up_after_an_hour(rig: Rig) -> None:
    await show(rig, start(chat=GROUP))
    for _ in range(900):
        await at_rest(rig)
        await rig.clock.advance(4)
    count = len(rig.telegram.actions(GROUP))
    await rig.clock.advance(60)
    assert len(rig.telegram.actions(GROUP)) == count <= 900


async def test_hundreds_of_pieces_a_second_cost_few_calls(rig: Rig) -> None:
    await show(rig, start())
    await rig.telegram.wait_for(rig.telegram.actions)
    for _ in range(8):
        await show(rig, *(text("word ") for _ in range(100)))
        await rig.clock.advance(0.25)
        await at_rest(rig)
    await rig.clock.advance(0.5)
    await rig.telegram.wait_for(lambda: drafts(rig)[-1].split() == ["word"] * 800)
    assert len(drafts(rig)) <= 6


async def test_of_a_long_reply_the_last_part_is_shown(rig: Rig) -> None:
    await show(rig, start(), text("🙂 first\n\n" + "word " * 3000 + "last"), tool("read notes"))
    shown = (await rig.telegram.wait_for(rig.telegram.drafts))[0].text
    assert utf16_length(shown) <= 4096
    assert shown.endswith("last\n\nread notes")


async def test_a_tool_is_an_italic_line_under_the_text_until_the_reply_goes_on(rig: Rig) -> None:
    await show(rig, start(), text("I look *it* up."), tool("read_file a_b_c.txt"))
    await wait_for_draft(rig, "I look it up.\n\nread_file a_b_c.txt")
    entities = rig.telegram.drafts()[-1].entities
    assert entities[-1] == {"type": "italic", "offset": 15, "length": 19}
    await show(rig, text("It says"))
    await at_rest(rig)
    await rig.clock.advance(0.5)
    await wait_for_draft(rig, "It says")


async def test_how_far_a_long_prompt_is_read_is_shown_until_the_reply_begins(rig: Rig) -> None:
    await show(rig, start(), reading(0))
    await at_rest(rig)
    assert drafts(rig) == []  # a short one is read by now
    await rig.clock.advance(1)
    await wait_for_draft(rig, "reading 0 of 2,750 tokens")
    await at_rest(rig)
    await show(rig, reading(1_900))
    await rig.clock.advance(2)
    await wait_for_draft(rig, "reading 1,900 of 2,750 tokens")
    await at_rest(rig)
    await show(rig, text("Hello"))
    await rig.clock.advance(1)
    await wait_for_draft(rig, "Hello")


async def test_when_the_prompt_is_read_the_bot_types_again(rig: Rig) -> None:
    await show(rig, start(), reading(1_900))
    await wait_for_typing(rig, 1)
    await at_rest(rig)
    await rig.clock.advance(1)
    await wait_for_draft(rig, "reading 1,900 of 2,750 tokens")
    await at_rest(rig)
    await rig.clock.advance(10)
    await at_rest(rig)
    assert rig.telegram.actions() == ["typing"]
    await show(rig, reading(2_750))
    await wait_for_typing(rig, 2)
    assert drafts(rig) == ["reading 1,900 of 2,750 tokens"]


async def test_a_restart_voids_what_came_before(rig: Rig) -> None:
    await show(rig, start(), text("wrong"), text("right", restart=True))
    await wait_for_draft(rig, "right")


async def test_a_draft_is_sent_again_before_telegram_lets_it_vanish(rig: Rig) -> None:
    await show(rig, start(), tool("a long one"))
    await wait_for_draft(rig, "a long one")
    await at_rest(rig)
    await rig.clock.advance(20)
    await rig.telegram.wait_for(lambda: drafts(rig) == ["a long one"] * 2)


async def test_a_flood_stops_previews_for_the_turn_and_for_as_long_as_told(rig: Rig) -> None:
    await show(rig, start())
    await rig.telegram.wait_for(rig.telegram.actions)
    await at_rest(rig)
    rig.telegram.flood(PERSON, 30)
    await show(rig, text("one"))
    await rig.telegram.wait_for(lambda: rig.telegram.calls_of("sendMessageDraft"))
    await show(rig, text("two"), end())
    await rig.previews.finish(str(PERSON))
    await show(rig, notice("waits as well"), start("t2"), text("three", "t2"))
    await at_rest(rig, 2)
    await rig.clock.advance(29)
    assert (len(rig.telegram.calls_of("sendMessageDraft")), rig.telegram.texts()) == (1, [])
    await rig.clock.advance(1)
    await wait_for_draft(rig, "three")
    assert await rig.telegram.receive(1) == ["waits as well"]


async def test_an_outage_and_thinking_are_shown_below_the_text_and_cleared_by_more_of_it(
    rig: Rig,
) -> None:
    place = ("telegram", str(PERSON), "t1")
    await show(rig, start(), ModelUnreachable(*place, "connection refused", 7, 3))
    await at_rest(rig)
    await rig.clock.advance(1.0)
    down = "model unreachable: connection refused, trying again"
    await wait_for_draft(rig, f"{down} in 7 s (3)")
    await at_rest(rig)
    await show(rig, ModelUnreachable(*place, "connection refused", 0, 3))
    await rig.clock.advance(2.0)
    await wait_for_draft(rig, f"{down} (3)")
    await at_rest(rig)
    await show(rig, text("Let me see."))
    await rig.clock.advance(0.5)
    await wait_for_draft(rig, "Let me see.")
    await at_rest(rig)
    await show(rig, Thinking(*place, 8))
    await rig.clock.advance(1.0)
    await wait_for_draft(rig, "Let me see.\n\nthinking 8 s")
    await at_rest(rig)
    await show(rig, text(" Yes."))
    await rig.clock.advance(0.5)
    await wait_for_draft(rig, "Let me see. Yes.")


async def test_the_seconds_of_a_wait_cost_a_call_every_two_seconds(rig: Rig) -> None:
    await show(rig, start())
    for tenth in range(100):
        await show(rig, Thinking("telegram", str(PERSON), "t1", tenth))
        await at_rest(rig)
        await rig.clock.advance(0.1)
    await at_rest(rig)
    assert 4 <= len(rig.telegram.calls_of("sendMessageDraft")) <= 5


async def test_a_flood_told_to_a_send_quiets_the_previews_too(rig: Rig) -> None:
    await show(rig, start())
    await rig.telegram.wait_for(rig.telegram.actions)
    await at_rest(rig)
    rig.telegram.fail("sendMessage", 429, parameters={"retry_after": 9})
    with pytest.raises(SendLater):
        await rig.send("hello")
    await show(rig, text("one"))
    await rig.clock.advance(60)
    assert len(rig.telegram.calls_of("sendMessageDraft", "sendChatAction")) == 1


async def test_drafts_that_fail_leave_typing(rig: Rig) -> None:
    rig.telegram.fail("sendMessageDraft", 500)
    await show(rig, start(), text("one"))
    await rig.telegram.wait_for(lambda: rig.telegram.calls_of("sendMessageDraft"))
    await wait_for_typing(rig, 1)
    await show(rig, text("two"))
    await at_rest(rig)
    await rig.clock.advance(4)
    await wait_for_typing(rig, 2)
    assert drafts(rig) == []


async def test_without_previews_there_is_typing_only(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path, previews=False) as rig:
        await show(rig, start(), text("one"))
        await rig.telegram.wait_for(rig.telegram.actions)
        await at_rest(rig)
        await rig.clock.advance(4)
        await wait_for_typing(rig, 2)
        assert drafts(rig) == []


async def test_in_a_group_there_is_typing_only(rig: Rig) -> None:
    await show(rig, start(chat=GROUP), text("one", chat=GROUP), tool("searching", chat=GROUP))
    await rig.telegram.wait_for(lambda: rig.telegram.actions(GROUP))
    await at_rest(rig)
    await rig.clock.advance(30)
    assert not rig.telegram.calls_of("sendMessage", "sendMessageDraft", "editMessageText")


async def test_nothing_is_shown_of_a_turn_that_is_over(rig: Rig) -> None:
    await show(rig, start(), text("one"))
    await wait_for_draft(rig, "one")
    await at_rest(rig)
    await show(rig, text(" two"), end(), text(" three"), tool("late"))
    await rig.send("one two three")
    calls = len(rig.telegram.calls)
    await rig.clock.advance(120)
    assert len(rig.telegram.calls) == calls
    assert drafts(rig) == ["one"]


async def test_a_draft_under_way_is_there_before_the_reply_and_not_after_it(rig: Rig) -> None:
    gate = rig.telegram.hang("sendMessageDraft")
    await show(rig, start(), text("one"))
    await rig.telegram.wait_for(lambda: rig.telegram.calls_of("sendMessageDraft"))
    await show(rig, end())
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.send("one"))
        await at_rest(rig)  # the send gives the draft a moment
        assert rig.telegram.texts() == []
        gate.set()
        await wait_for_draft(rig, "one")
        assert rig.telegram.texts() == []
    assert rig.telegram.texts() == ["one"]
    assert rig.clock.monotonic() == FIRST_PAUSE


async def test_a_draft_that_hangs_holds_the_reply_up_for_a_second_and_no_other_chat(
    rig: Rig,
) -> None:
    rig.telegram.person(8)
    rig.telegram.hang("sendMessageDraft", chat=PERSON)
    await show(rig, start(), text("one"), start("t2", 8), text("two", "t2", 8))
    await rig.telegram.wait_for(lambda: rig.telegram.calls_of("sendMessageDraft"))
    await wait_for_draft(rig, "two", 8)
    await show(rig, end(), end("t2", 8))
    await rig.send("two", chat=8)
    assert rig.telegram.texts(8) == ["two"]
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.send("one"))
        await at_rest(rig)
        await rig.clock.advance(1)
    assert rig.telegram.texts() == ["one"]


async def test_turns_one_after_the_other_have_drafts_of_their_own(rig: Rig) -> None:
    for turn in ("t1", "t2"):
        await show(rig, start(turn), text(turn, turn))
        await wait_for_draft(rig, turn)
        await show(rig, end(turn))
        await rig.send(turn)
        await rig.clock.advance(5)
    first, second = rig.telegram.drafts()
    assert first.draft_id != second.draft_id
    assert rig.telegram.texts() == ["t1", "t2"]


async def test_a_notice_is_said_once_a_minute(rig: Rig) -> None:
    await show(rig, notice("The *disk* is full."), notice("The *disk* is full."), notice("Really."))
    assert await rig.telegram.receive(2) == ["The disk is full.", "Really."]
    await rig.clock.advance(59)
    await show(rig, notice("Really."))
    await rig.clock.advance(1)
    await show(rig, notice("Really."))
    assert (await rig.telegram.receive(3))[2:] == ["Really."]


async def test_a_chat_that_refuses_us_is_shown_nothing(rig: Rig) -> None:
    rig.telegram.fail("sendChatAction", 403, "Forbidden: bot was blocked by the user")
    await show(rig, start())
    await until(lambda: rig.chats.is_unreachable(str(PERSON)))
    await show(rig, text("one"), notice("two"), end(), start("t2"))
    await rig.clock.advance(30)
    assert len(rig.telegram.calls) == 1


async def test_the_more_chats_show_text_the_slower_each_does(rig: Rig) -> None:
    chats = range(101, 116)
    for chat in chats:
        rig.telegram.person(chat)
    begun = [start(f"t{chat}", chat) for chat in chats]
    await show(rig, *begun, *(text("one", f"t{chat}", chat) for chat in chats))
    for chat in chats:
        await wait_for_draft(rig, "one", chat)
    await at_rest(rig, len(chats))
    for chat in chats:
        await show(rig, text(" two", f"t{chat}", chat))
    await rig.clock.advance(0.9)
    await at_rest(rig, len(chats))
    assert len(rig.telegram.calls_of("sendMessageDraft")) == len(chats)
    await rig.clock.advance(0.1)
    for chat in chats:
        await wait_for_draft(rig, "one two", chat)


class LingeringClock(FakeClock):
    """A clock whose cancelled sleeps take some time to end."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = asyncio.Event()
        self.may_stop = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        try:
            await super().sleep(seconds)
        except asyncio.CancelledError:
            self.stopping.set()
            await self.may_stop.wait()
            raise


async def test_a_reply_is_delivered_while_the_previews_close(tmp_path: Path) -> None:
    clock = LingeringClock()
    async with FakeTelegram() as telegram, start_rig(tmp_path, telegram, clock=clock) as rig:
        telegram.person(8)
        await show(rig, start())
        await wait_for_typing(rig, 1)
        await at_rest(rig)
        telegram.hang("sendChatAction", chat=8)
        await show(rig, start("t2", 8))
        await telegram.wait_for(lambda: len(telegram.calls_of("sendChatAction")) == 2)
        rig.showing.cancel()
        await clock.stopping.wait()
        await rig.send("hello", chat=8)
        await show(rig, text("one", "t2", 8))
        clock.may_stop.set()
        assert telegram.texts(8) == ["hello"]


async def test_a_chat_that_is_none_harms_nobody(rig: Rig) -> None:
    await show(rig, TurnStarted("telegram", "nowhere", "t1"), start("t2"))
    await rig.telegram.wait_for(rig.telegram.actions)
