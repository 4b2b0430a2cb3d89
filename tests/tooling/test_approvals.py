"""Questions to the owner: answered once, in their chat, in time, and for one call only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import get_args

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Address, ApprovalAnswer, ApprovalAsked, ApprovalClosed, Button
from nanobot.errors import NanobotError, StorageError, TurnStopped
from nanobot.messages import ToolCall
from nanobot.testing import FakeClock
from nanobot.tooling import (
    Allowed,
    Arguments,
    Ask,
    Denied,
    OwnersPolicy,
    Risk,
    RiskKind,
    ToolResult,
    TurnContext,
)
from nanobot.tooling.approvals import (
    MOST_AN_HOUR,
    MOST_SHOWN,
    MOST_WAITING,
    WAIT_SECONDS,
    Approvals,
)
from nanobot.tooling.registry import ToolRegistry
from tests.support import Probe

OWNER = TurnContext("telegram", "7", "telegram:7", "t-1", "7")
HOME = Address("telegram", "7")
BY = "telegram:7"
CALL = ToolCall("c1", "exec", "{}")
RISK = Risk("exec", "run a command", "curl https://example.org")
QUESTION = Ask(RISK, "A page is in the conversation.")


@dataclass
class ApprovalsKit:
    """Approvals with their surroundings."""

    clock: FakeClock = field(default_factory=FakeClock)
    address: Address | None = HOME
    disk: StorageError | None = None
    sent: list[tuple[str, tuple[Button, ...]]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    paused: int = 0
    seen: list[tuple[str, ApprovalAsked | ApprovalClosed]] = field(default_factory=list)

    def __post_init__(self) -> None:
        codes = iter(f"CODE{number}" for number in range(100))
        self.approvals = Approvals(
            self._send,
            self._pausing,
            self.clock,
            lambda: next(codes),
            lambda key, event: self.seen.append((key, event)),
        )

    async def _send(
        self, caller: TurnContext, code: str, text: str, buttons: Sequence[Button]
    ) -> Address | None:
        if self.disk is not None:
            raise self.disk
        self.sent.append((text, tuple(buttons)))
        self.asked.set()
        return self.address

    @contextlib.asynccontextmanager
    async def _pausing(self, key: str) -> AsyncIterator[None]:
        self.paused += 1
        yield
        self.paused -= 1

    def ask(self, caller: TurnContext = OWNER, question: Ask = QUESTION) -> asyncio.Task[object]:
        return asyncio.create_task(self.approvals.ask(CALL, caller, question))

    async def asking(self, count: int = 1) -> None:
        while len(self.sent) < count or self.paused < count:
            self.asked.clear()
            await asyncio.sleep(0)

    async def answer(
        self, code: str = "CODE0", address: Address = HOME, *, yes: bool = True
    ) -> str:
        answer: ApprovalAnswer = "once" if yes else "no"
        try:
            return await self.approvals.answer(code, address, answer, BY)
        except NanobotError as error:
            return str(error)


async def test_a_call_runs_by_the_owners_yes_and_not_by_their_no() -> None:
    kit = ApprovalsKit()
    first, second = kit.ask(), kit.ask()
    await kit.asking(2)
    assert await kit.answer("CODE0") == "Approved: run a command."
    assert await kit.answer("CODE1", yes=False) == "Denied: run a command."
    assert await first == Allowed(BY)
    refusal = await second
    assert isinstance(refusal, Denied)
    assert "owner denied" in refusal.reason
    assert refusal.by == BY


@pytest.mark.parametrize(
    ("why", "outcome", "says"),
    [
        ("no", "denied", "owner denied"),
        ("late", "unanswered", "did not answer within 10 minutes"),
        ("no chat", "not asked", "no chat to ask them in"),
        ("unseen", "not asked", "no one was at the terminal"),
        ("too long", "not asked", "too long to be shown"),
        ("too many", "not asked", "already has"),
        ("too often", "not asked", "an hour"),
    ],
)
async def test_only_a_no_of_the_owners_counts_as_one(why: str, outcome: str, says: str) -> None:
    kit, caller, question = ApprovalsKit(), OWNER, QUESTION
    if why == "no chat":
        kit.address = None
    if why == "too long":
        question = Ask(replace(RISK, details="x" * (MOST_SHOWN + 1)), "")
    if why == "too often":
        caller = replace(OWNER, scope="people/telegram_8")
    before = {"too many": MOST_WAITING, "too often": MOST_AN_HOUR}.get(why, 0)
    callers = [replace(caller, session_key=f"telegram:{at}") for at in range(MOST_AN_HOUR)]
    others = [
        kit.ask(caller if why == "too many" else callers[at], question) for at in range(before)
    ]
    await kit.asking(before)
    asked = kit.ask(caller, question)
    if why in ("no", "unseen", "late"):
        await kit.asking()
    if why in ("no", "unseen"):
        await kit.approvals.answer("CODE0", HOME, why, BY)  # type: ignore[arg-type]
    if why == "late":
        await kit.clock.advance(WAIT_SECONDS)
    refusal = await asked
    assert isinstance(refusal, Denied)
    assert refusal.outcome == outcome
    assert says in refusal.reason
    assert ("owner denied" in refusal.reason) == (why == "no")
    for other in others:
        other.cancel()


async def test_an_answer_counts_once() -> None:
    kit = ApprovalsKit()
    first = kit.ask()
    await kit.asking()
    await kit.answer()
    assert "No such question is pending" in await kit.answer(yes=False)
    assert await first == Allowed(BY)
    again = kit.ask()
    await kit.asking(2 - 1)
    assert "No such question is pending" in await kit.answer("CODE0")
    again.cancel()


@pytest.mark.parametrize(
    ("code", "address"),
    [
        ("CODE9", HOME),
        ("CODE0", Address("telegram", "8")),
        ("CODE0", Address("whatsapp", "7")),
        ("CODE0", Address("telegram", "7", "3")),
        ("", Address("telegram", "8")),
    ],
)
async def test_a_wrong_code_or_another_chat_answers_nothing(code: str, address: Address) -> None:
    kit = ApprovalsKit()
    asked = kit.ask()
    await kit.asking()
    assert "No such question is pending" in await kit.answer(code, address)
    assert not asked.done()
    asked.cancel()


async def test_without_a_code_the_only_question_is_denied_and_none_approved() -> None:
    kit = ApprovalsKit()
    first = kit.ask()
    await kit.asking()
    assert "/approve CODE0: run a command" in await kit.answer("")
    second = kit.ask()
    await kit.asking(2)
    assert "/deny CODE1: run a command" in await kit.answer("", yes=False)
    await kit.answer("CODE0", yes=False)
    await first
    assert await kit.answer("", yes=False) == "Denied: run a command."
    await second


async def test_others_get_only_so_many_questions_an_hour_and_the_owner_any_number() -> None:
    kit = ApprovalsKit(address=None)
    bob = replace(OWNER, session_key="telegram:8", scope="people/telegram_8")
    for _ in range(MOST_AN_HOUR + 1):
        await kit.approvals.ask(CALL, bob, QUESTION)
        await kit.approvals.ask(CALL, OWNER, QUESTION)
    assert len(kit.sent) == 2 * MOST_AN_HOUR + 1
    await kit.clock.advance(3_600)
    await kit.approvals.ask(CALL, bob, QUESTION)
    assert len(kit.sent) == 2 * MOST_AN_HOUR + 2


async def test_no_answer_in_time_means_no_and_a_late_one_nothing() -> None:
    kit = ApprovalsKit()
    asked = kit.ask()
    await kit.asking()
    await kit.clock.until_sleeping()
    await kit.clock.advance(WAIT_SECONDS)
    refusal = await asked
    assert isinstance(refusal, Denied)
    assert "did not answer" in refusal.reason
    assert "No such question is pending" in await kit.answer()


async def test_a_stopped_turn_takes_its_question_back() -> None:
    kit = ApprovalsKit()
    asked = kit.ask()
    await kit.asking()
    asked.cancel()
    await asyncio.wait({asked})
    assert "No such question is pending" in await kit.answer()


async def test_where_the_owner_cannot_be_asked_the_answer_is_no() -> None:
    refusal = await ApprovalsKit(address=None).approvals.ask(CALL, OWNER, QUESTION)
    assert isinstance(refusal, Denied)
    assert "no chat to ask them in" in refusal.reason


async def test_where_the_question_cannot_be_stored_the_turn_waits() -> None:
    kit = ApprovalsKit(disk=StorageError("the journal", "it is full"))
    gate = ToolRegistry(policy=ALWAYS, ask=kit.approvals.ask)
    gate.register(Risky())
    with pytest.raises(TurnStopped) as stopped:
        await gate.call(ToolCall("c1", "probe", '{"text": "x"}'), OWNER)
    assert stopped.value.__cause__ is kit.disk


async def test_the_question_shows_all_that_would_happen_and_hides_nothing() -> None:
    kit = ApprovalsKit()
    details = "echo ok\u202e\u200b # ```\nApproved already: /approve X"
    asked = kit.ask(question=replace(QUESTION, risk=replace(RISK, details=details)))
    await kit.asking()
    text, buttons = kit.sent[0]
    assert "**Run a command?**" in text
    assert "````\necho ok\\u202e\\u200b # ```\nApproved already: /approve X\n````" in text
    assert "A page is in the conversation." in text
    assert [(button.label, button.value) for button in buttons] == [
        ("Approve", "/approve CODE0"),
        ("Deny", "/deny CODE0"),
    ]
    asked.cancel()


async def test_what_is_too_long_to_be_judged_is_refused_without_a_question() -> None:
    kit = ApprovalsKit()
    long = replace(QUESTION, risk=replace(RISK, details="x" * (MOST_SHOWN + 1)))
    assert isinstance(await kit.approvals.ask(CALL, OWNER, long), Denied)
    assert kit.sent == []


async def test_while_it_waits_a_turn_takes_up_no_place() -> None:
    kit = ApprovalsKit()
    asked = kit.ask()
    await kit.asking()
    assert kit.paused == 1
    await kit.answer()
    await asked
    assert kit.paused == 0


async def test_on_the_owners_page_a_question_is_seen_and_answered_wherever_it_was_asked() -> None:
    kit = ApprovalsKit(address=Address("whatsapp", "7"))
    asked = kit.ask()
    await kit.asking()
    await kit.clock.advance(60)
    (question,) = kit.approvals.list_pending()
    assert (question.shown.code, question.caller) == ("CODE0", OWNER)
    assert (question.shown.what, question.shown.details) == (RISK.what, RISK.details)
    assert question.shown.because == QUESTION.because
    assert question.shown.answers == ("once", "no")
    assert question.seconds_left == WAIT_SECONDS - 60
    said = await kit.approvals.answer("CODE0", None, "once", "web:owner")
    assert said == "Approved: run a command."
    assert kit.approvals.list_pending() == ()
    assert "No such question is pending" in await kit.answer(address=Address("whatsapp", "7"))
    assert await asked == Allowed("web:owner")


async def test_on_the_page_as_well_a_question_is_answered_once_and_by_its_own_code() -> None:
    kit = ApprovalsKit()
    asked = kit.ask()
    await kit.asking()
    with pytest.raises(NanobotError, match="No such question is pending"):
        await kit.approvals.answer("CODE1", None, "once", "web:owner")
    with pytest.raises(NanobotError, match="can only be approved once"):
        await kit.approvals.answer("CODE0", None, "always", "web:owner")
    await kit.answer()
    with pytest.raises(NanobotError, match="No such question is pending"):
        await kit.approvals.answer("CODE0", None, "no", "web:owner")
    assert await asked == Allowed(BY)


async def test_who_watches_sees_each_question_come_and_go() -> None:
    kit = ApprovalsKit()
    answered, expired, stopped = kit.ask(), kit.ask(), kit.ask()
    await kit.asking(3)
    assert [key for key, _ in kit.seen] == ["telegram:7"] * 3
    first = kit.seen[0][1]
    assert isinstance(first, ApprovalAsked)
    assert (first.channel, first.chat_id, first.turn_id) == ("telegram", "7", "t-1")
    assert (first.code, first.details) == ("CODE0", RISK.details)
    await kit.approvals.answer("CODE0", None, "no", "web:owner")
    await answered
    stopped.cancel()
    await asyncio.wait({stopped})
    await kit.clock.until_sleeping()
    await kit.clock.advance(WAIT_SECONDS)
    await expired
    closed = [event for _, event in kit.seen[3:]]
    assert [
        (event.code, event.outcome, event.by)
        for event in closed
        if isinstance(event, ApprovalClosed)
    ] == [("CODE0", "no", "web:owner"), ("CODE2", "withdrawn", ""), ("CODE1", "expired", "")]


async def test_a_question_that_could_not_be_asked_is_never_seen() -> None:
    kit = ApprovalsKit(address=None)
    await kit.approvals.ask(CALL, OWNER, QUESTION)
    assert (kit.seen, kit.approvals.list_pending()) == ([], ())


@dataclass(frozen=True)
class Risky(Probe):
    """A tool whose every call is a risk."""

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return RISK


KINDS: tuple[RiskKind, ...] = get_args(RiskKind)
ALWAYS = OwnersPolicy(dict.fromkeys(KINDS, "ask"))


async def test_characters_that_are_written_out_count_as_they_are_shown() -> None:
    kit = ApprovalsKit()
    long = replace(QUESTION, risk=replace(RISK, details="\u200b" * (MOST_SHOWN // 5)))
    assert isinstance(await kit.approvals.ask(CALL, OWNER, long), Denied)
    assert kit.sent == []


async def test_nothing_is_pushed_out_of_sight() -> None:
    kit = ApprovalsKit()
    gaps = ("\n" * 2_000, " " * 900, " \t" * 400, "\n\u3000\n" + "  \n" * 90)
    details = "ls{}x{}y{}z{}curl evil".format(*gaps)
    asked = kit.ask(question=replace(QUESTION, risk=replace(RISK, details=details)))
    await kit.asking()
    assert (
        "ls\n[1999 empty lines]\nx[900 blanks]y[800 blanks]z\n\\u3000\n[90 empty lines]\ncurl evil"
    ) in kit.sent[0][0]
    asked.cancel()


@pytest.mark.parametrize("initiator", ["job", "heartbeat", "helper", "report"])
async def test_where_nobody_is_there_the_gate_refuses_without_asking(initiator: str) -> None:
    kit, tool = ApprovalsKit(), Risky()
    gate = ToolRegistry(policy=ALWAYS, ask=kit.approvals.ask)
    gate.register(tool)
    caller = replace(OWNER, initiator=initiator)
    result = await gate.call(ToolCall("1", "probe", '{"text": "a"}'), caller)
    assert result.is_error
    assert "no one is there" in result.text
    assert (kit.sent, tool.called) == ([], [])


async def test_a_tool_starts_only_once_it_is_approved() -> None:
    kit, tool = ApprovalsKit(), Risky()
    gate = ToolRegistry(policy=ALWAYS, ask=kit.approvals.ask)
    gate.register(tool)
    started: list[bool] = []

    async def starting() -> None:
        started.append(True)

    call = gate.call(ToolCall("1", "probe", '{"text": "a"}'), OWNER, starting)
    running = asyncio.create_task(call)
    await kit.asking()
    assert (started, tool.called) == ([], [])
    await kit.answer()
    assert await running == ToolResult("a")
    assert (started, tool.called) == ([True], ["a"])
