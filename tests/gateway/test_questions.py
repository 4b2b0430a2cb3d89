"""A question to the owner in a whole gateway: answered on the page or in its chat, closed
everywhere, and recorded in the audit log with the person."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from nanobot.bus.events import ApprovalAsked, ApprovalClosed
from nanobot.bus.rows import MOST_ASKED
from nanobot.channel import GatewayEvent, Operation, Overview
from nanobot.cli.gateway import operate
from nanobot.errors import NanobotError
from nanobot.security.audit import newest_records
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import Arguments, Repeatable, Risk, TurnContext
from tests.support import Probe, copy_running, running

BY = "the owner's page"


@dataclass(frozen=True)
class SendTool(Probe):
    """A tool that needs approval for each call."""

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return Risk("send", "say something", "to everybody")


@dataclass(frozen=True)
class SwitchTool(SendTool):
    """A tool that may be approved for longer, like a server's tool."""

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return Risk("mcp", "switch the light", "on")

    async def repeatable(self, arguments: Arguments, caller: TurnContext) -> Repeatable:
        return Repeatable("mcp:home/light", "as it is", "each call of light", f"tool:{self.name}")


class Page(FakeChannel):
    """A channel that shows the whole gateway."""

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """Store the overview."""
        self.overview = overview
        return {}

    async def operate(self, op: str, **given: object) -> Any:
        """Run one operation."""
        return await self.overview.operations[op](given)

    @contextlib.contextmanager
    def watching(self) -> Iterator[asyncio.Queue[GatewayEvent]]:
        """Collect the events of questions while inside."""
        seen: asyncio.Queue[GatewayEvent] = asyncio.Queue()

        def watcher(happening: GatewayEvent) -> None:
            if isinstance(happening.event, ApprovalAsked | ApprovalClosed):
                seen.put_nowait(happening)

        with self.overview.watch(watcher):
            yield seen


class QuestionScene(Struct):
    """The parts of a conversation with a question."""

    page: Page
    tool: SendTool
    model: ScriptedModel


def whole(home: Path, talk: QuestionScene) -> AbstractAsyncContextManager[object]:
    return running(
        *(home, talk.model, talk.page),
        tools=(talk.tool,),
        NANOBOT_TOOLS__APPROVAL__SEND="ask",
        NANOBOT_TOOLS__APPROVAL__MCP="ask",
    )


def build_asked() -> QuestionScene:
    return QuestionScene(
        Page(), SendTool(effects=True), ScriptedModel(calls("probe", text="hello"), says("done"))
    )


async def test_two_who_watch_see_it_come_and_one_answers_for_all(tmp_path: Path) -> None:
    talk = build_asked()
    page = talk.page
    async with whole(tmp_path, talk):
        with page.watching() as first, page.watching() as second:
            event_id = await page.say("go on")
            came = await first.get()
            assert came == await second.get()
            assert came.session_key == "fake:1"
            assert isinstance(came.event, ApprovalAsked)
            (waiting,) = (await page.operate("approvals.waiting"))["waiting"]
            assert waiting["code"] == came.event.code
            assert waiting["session"] == "fake:1"
            assert waiting["what"] == "say something"
            assert waiting["details"] == "to everybody"
            assert waiting["scope"] == "owner"
            assert 0 < waiting["seconds_left"] <= 600
            said = await page.operate(
                "approvals.answer", code=waiting["code"], answer="once", by=BY
            )
            assert said == {"text": "Approved: say something."}
            assert await page.answer_to(event_id) == "done"
            closed = await first.get()
            assert closed == await second.get()
            assert isinstance(closed.event, ApprovalClosed)
            assert (closed.event.code, closed.event.by) == (came.event.code, BY)
            assert await page.operate("approvals.waiting") == {"waiting": []}
            late = await page.ask(f"/approve {came.event.code}")
            assert "No such question is pending" in late
    assert talk.tool.called == ["hello"]
    shown = [part.content for part in page.sent if part.buttons]
    assert len(shown) == 1
    assert page.closed == {"1": f"Approved, by {BY}."}
    (answered,) = _read_audit(tmp_path, "answered")
    assert (answered["outcome"], answered["by"]) == ("allowed", BY)


async def test_an_answer_in_the_chat_says_which_account_gave_it(tmp_path: Path) -> None:
    talk = build_asked()
    async with whole(tmp_path, talk):
        event_id = await talk.page.say("go on")
        question = await talk.page.next_with_buttons()
        await talk.page.say(question.buttons[1].value)
        await talk.page.answer_to(event_id)
    assert talk.tool.called == []
    assert talk.page.closed == {"1": "Denied, by fake:person-1."}
    (answered,) = _read_audit(tmp_path, "answered")
    assert (answered["outcome"], answered["by"]) == ("denied", "fake:person-1")


async def test_a_question_that_a_stop_withdraws_loses_its_buttons(tmp_path: Path) -> None:
    talk = build_asked()
    async with whole(tmp_path, talk):
        await talk.page.say("go on")
        await talk.page.next_with_buttons()
    assert talk.page.closed == {"1": "No longer needed."}


async def test_one_that_a_crash_left_behind_loses_its_buttons_at_the_next_start(
    tmp_path: Path,
) -> None:
    talk = build_asked()
    async with whole(tmp_path / "home", talk):
        await talk.page.say("go on")
        await talk.page.next_with_buttons()
        await talk.page.ask("/status")  # sent after this was stored
        crashed = copy_running(tmp_path / "home", tmp_path / "crashed")
    for later, closed in (("next", {"1": "No longer needed."}), ("after", {})):
        page, model = Page(), ScriptedModel(author=lambda _: says("done"))
        async with running(
            *(crashed, model, page), tools=(talk.tool,), NANOBOT_TOOLS__APPROVAL__SEND="allow"
        ):
            await page.answer_to(await page.say("hello", event_id=later))
        assert page.closed == closed


async def test_no_crash_while_one_waits_counts_against_its_message(tmp_path: Path) -> None:
    talk = build_asked()
    for number in range(MOST_ASKED + 2):
        talk.page = Page()
        async with whole(tmp_path / str(number), talk):
            if not number:
                await talk.page.say("go on", event_id="e")
            question = await talk.page.next_with_buttons()
            if number > MOST_ASKED:
                await talk.page.say(question.buttons[0].value, event_id="yes")
                assert await talk.page.answer_to("e") == "done"
                break
            await talk.page.answer_to(await talk.page.say("/status", event_id=f"s{number}"))
            copy_running(tmp_path / str(number), tmp_path / str(number + 1))
    assert talk.tool.called == ["hello"]


async def test_no_operation_answers_with_another_code_or_in_nobodys_name(tmp_path: Path) -> None:
    talk = build_asked()
    async with whole(tmp_path, talk):
        await talk.page.say("go on")
        question = await talk.page.next_with_buttons()
        code = question.buttons[0].value.split()[1]
        for given in (
            {"code": "AAAAAAAA", "answer": "once", "by": BY},
            {"code": code, "answer": "always", "by": BY},
            {"code": code, "answer": "yes", "by": BY},
            {"code": code, "answer": "once"},
        ):
            with pytest.raises(NanobotError):
                await talk.page.operate("approvals.answer", **given)
    assert talk.tool.called == []


async def test_always_is_said_with_a_button_listed_and_taken_back(tmp_path: Path) -> None:
    turns = [reply for _ in range(3) for reply in (calls("probe", text="on"), says("done"))]
    talk = QuestionScene(Page(), SwitchTool(effects=True), ScriptedModel(*turns))
    page = talk.page
    async with whole(tmp_path, talk):
        event_id = await page.say("light on")
        question = await page.next_with_buttons()
        always, today = question.buttons[2:]
        assert (always.label, today.label) == ("Always", "Today in this chat")
        answer = await page.ask(always.value)
        assert answer.startswith("Approved: switch the light. This covers each call of")
        await page.answer_to(event_id)
        assert await page.ask("light on") == "done"
        (given,) = (await page.operate("approvals.list"))["approvals"]
        assert (given["subject"], given["lasts"]) == ("each call of light", "always")
        assert given["given_by"] == "fake:person-1"
        assert given["id"] in await page.ask("/approvals")
        printed = await asyncio.to_thread(operate, tmp_path, "approvals.list")
        assert printed == {"waiting": [], "approvals": [given], "trouble": ""}
        said = await page.operate("approvals.revoke", id=given["id"], by=BY)
        assert said == {"text": "Revoked: each call of light."}
        assert "No questions are pending" in await page.ask("/approvals")
        event_id = await page.say("light on")
        question = await page.next_with_buttons()
        await page.say(question.buttons[1].value)
        await page.answer_to(event_id)
    assert talk.tool.called == ["on", "on"]
    assert list(page.closed.values()) == [
        "Approved permanently, by fake:person-1.",
        "Denied, by fake:person-1.",
    ]
    changes = [(one["outcome"], one["by"]) for one in _read_audit(tmp_path, "standing approval")]
    assert changes == [("given", "fake:person-1"), ("used", "fake:person-1"), ("revoked", BY)]


async def test_a_question_that_waits_is_listed_in_the_status_and_in_other_chats(
    tmp_path: Path,
) -> None:
    talk = build_asked()
    page = talk.page
    async with whole(tmp_path, talk):
        event_id = await page.say("go on")
        question = await page.next_with_buttons()
        code = question.buttons[0].value.split()[1]
        (pending,) = (await page.operate("status"))["pending_approvals"]
        assert (pending["code"], pending["asked_in"]) == (code, "fake:1")
        assert (await page.operate("approvals.list"))["waiting"][0]["code"] == code
        listed = await page.answer_to(await page.say("/approvals", "2"), "2")
        assert f"`/approve {code}` or `/deny {code}` in fake:1" in listed
        assert "Waiting for your approval: 1" in await page.answer_to(
            await page.say("/status", "2"), "2"
        )
        await page.say(question.buttons[1].value)
        await page.answer_to(event_id)
        assert (await page.operate("status"))["pending_approvals"] == []


async def test_in_a_group_nobody_is_shown_what_the_owner_allowed(tmp_path: Path) -> None:
    talk = build_asked()
    async with whole(tmp_path, talk):
        event_id = await talk.page.say("/approvals", "g", is_group=True)
        assert "in a private chat" in await talk.page.answer_to(event_id, "g")


async def test_the_typed_forms_say_how_long(tmp_path: Path) -> None:
    turns = [reply for _ in range(2) for reply in (calls("probe", text="on"), says("done"))]
    talk = QuestionScene(Page(), SwitchTool(effects=True), ScriptedModel(*turns))
    async with whole(tmp_path, talk):
        event_id = await talk.page.say("light on")
        code = (await talk.page.next_with_buttons()).buttons[0].value.split()[1]
        answer = await talk.page.ask(f"/approve {code[:4].lower()} {code[4:]} Today")
        assert "This covers each call of light in this chat until midnight." in answer
        await talk.page.answer_to(event_id)
        assert await talk.page.ask("light on") == "done"
        wrong = await talk.page.ask("/approvals revoke nothing")
        assert "no standing approval" in wrong
    assert talk.tool.called == ["on", "on"]


def _read_audit(home: Path, event: str) -> list[Mapping[str, object]]:
    path = home / "logs" / "audit.jsonl"
    return list(newest_records(path, lambda record: record["event"] == event, 100))
