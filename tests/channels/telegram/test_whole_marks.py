"""A whole nanobot marks received messages, and shows a report in the form that the server
supports."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.testing import ScriptedModel, says
from nanobot_telegram.markdown import render
from nanobot_telegram.reactions import DONE, SEEN, WORKING
from tests.channels.telegram.whole import repeat
from tests.doubles.telegram import FakeTelegram
from tests.support import Gate, talking

REPORT = "# Weather\n\n| day | °C |\n|---|---|\n| Monday | 12 |\n\nTake a **coat**."


def marks(telegram: FakeTelegram, message_id: int) -> list[str]:
    """Return every mark of a message in order, "" for a removed one."""
    calls = telegram.calls_of("setMessageReaction")
    reactions = [c.objects("reaction") for c in calls if c.number("message_id") == message_id]
    return [str(one[0]["emoji"]) if one else "" for one in reactions]


@pytest.mark.parametrize("has_rich", [True, False])
async def test_a_report_is_shown_in_the_form_that_the_server_has(
    tmp_path: Path, has_rich: bool
) -> None:
    without = () if has_rich else ("sendRichMessage",)
    async with (
        FakeTelegram(without=without) as telegram,
        talking(tmp_path, telegram, ScriptedModel(says(REPORT), says("Bye."))),
    ):
        sent = await telegram.answer_to(telegram.say("weather?"))
        await telegram.answer_to(telegram.say("thanks"))
        assert len(telegram.messages()) == 2
        if has_rich:
            assert [block["type"] for block in sent.blocks] == ["heading", "table", "paragraph"]
        else:
            assert (sent.kind, sent.text) == ("text", render(REPORT).text)
        assert not telegram.violations


async def test_a_message_is_marked_from_the_disk_to_its_answer(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    gate = Gate()
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat, hold=gate)):
        question = telegram.say("hello")
        await gate.reached.wait()
        await telegram.wait_for(lambda: telegram.reactions() == {question: WORKING})
        gate.opened.set()
        await telegram.wait_for(lambda: telegram.reactions() == {question: DONE})
        assert marks(telegram, question) == [WORKING, DONE]  # it is worked on at once


async def test_what_is_stopped_loses_its_mark_whether_it_was_begun_or_waited(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    gate = Gate()
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat, hold=gate)):
        begun = telegram.say("hello")
        await gate.reached.wait()
        waits = telegram.say("and this")
        await telegram.wait_for(lambda: telegram.reactions() == {begun: WORKING, waits: SEEN})
        telegram.say("/stop")
        await telegram.wait_for(lambda: telegram.reactions() == {begun: "", waits: ""})
    assert not telegram.violations
