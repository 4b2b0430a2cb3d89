"""A question loses its buttons once it is closed, wherever it was answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.bus.events import Button, OutboundPart
from nanobot.cli.gateway import operate
from nanobot.testing import ScriptedModel, calls, says
from nanobot_telegram.markdown import TEXT_LIMIT
from tests.channels.telegram.sending import PERSON, Rig, set_up_rig
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import OWNER
from tests.doubles.telegram import FakeTelegram
from tests.gateway.test_questions import SendTool
from tests.support import talking

BUTTONS = (Button("Approve", "/approve X", id="b1"), Button("Deny", "/deny X", id="b2"))
OUTCOME = "Approved, by the owner's page."


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with set_up_rig(tmp_path) as rig:
        yield rig


def part(text: str) -> OutboundPart:
    return OutboundPart("ask-X/reply/0", "telegram", str(PERSON), text, buttons=BUTTONS)


async def test_a_closed_question_has_no_buttons_and_says_how_it_ended(rig: Rig) -> None:
    receipt = await rig.outbound.send(part("**May I?**"))
    await rig.outbound.close_choices(part("**May I?**"), receipt, OUTCOME)
    (sent,) = rig.telegram.messages()
    assert sent.text == f"May I?\n\n{OUTCOME}"
    assert [entity["type"] for entity in sent.entities] == ["bold"]
    assert sent.buttons == ()


async def test_a_question_that_was_closed_before_is_closed(rig: Rig) -> None:
    for question in (part("May I?"), part("x" * TEXT_LIMIT)):
        receipt = await rig.outbound.send(question)
        for _ in range(2):
            await rig.outbound.close_choices(question, receipt, OUTCOME)
    assert [sent.buttons for sent in rig.telegram.messages()] == [(), ()]


async def test_where_there_is_no_room_for_the_line_the_buttons_go_all_the_same(rig: Rig) -> None:
    long = part("x" * TEXT_LIMIT)
    receipt = await rig.outbound.send(long)
    await rig.outbound.close_choices(long, receipt, OUTCOME)
    (sent,) = rig.telegram.messages()
    assert (sent.text, sent.buttons) == (long.content, ())


async def test_what_is_answered_elsewhere_is_gone_in_the_chat(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    tool = SendTool(effects=True)
    model = ScriptedModel(calls("probe", text="hello"), says("done"))
    async with talking(
        tmp_path, telegram, model, clock=clock, tools=(tool,), NANOBOT_TOOLS__APPROVAL__SEND="ask"
    ):
        telegram.say("go on", chat=OWNER)
        await telegram.receive(1, OWNER)
        (question,) = telegram.messages()
        code = question.text.partition("/approve ")[2].split()[0]
        assert len(question.buttons) == 2
        given = {"code": code, "answer": "once", "by": "the owner's page"}
        await asyncio.to_thread(operate, tmp_path, "approvals.answer", **given)
        await telegram.receive(2, OWNER)
        async with asyncio.timeout(10):
            while telegram.messages()[0].buttons:  # noqa: ASYNC110  # the edit tells nobody
                await asyncio.sleep(0.01)
        assert telegram.messages()[0].text.endswith(OUTCOME)
    assert tool.called == ["hello"]
