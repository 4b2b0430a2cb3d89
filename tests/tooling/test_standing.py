"""Standing approvals: only for the shown call, only for the owner.

Each attack must lead to a new question. The tool of the tests counts its calls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Address, ApprovalAnswer, Button
from nanobot.errors import NanobotError
from nanobot.messages import ToolCall
from nanobot.security.audit import AuditLog, newest_records
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock
from nanobot.tooling import (
    Arguments,
    OwnersPolicy,
    Repeatable,
    Risk,
    RiskKind,
    ToolResult,
    TurnContext,
)
from nanobot.tooling.approvals import Approvals, StandingApprovals
from nanobot.tooling.registry import ToolRegistry
from tests.doubles.state import MemoryState
from tests.support import Probe

ME = TurnContext("telegram", "7", "telegram:7", "t-1", "7")
ELSEWHERE = replace(ME, chat_id="8", session_key="telegram:8")
BY = "telegram:7"
KINDS: tuple[RiskKind, ...] = get_args(RiskKind)
EVENING = datetime(2026, 11, 25, 22, 0, tzinfo=timezone(timedelta(hours=-5)))
"""In New York. In UTC it is already the next day."""


@dataclass
class ToolState:
    """The current state of the tool."""

    kind: RiskKind = "mcp"
    state: str = "as it was described"
    own_results: str = "tool:probe"
    works_in_advance: bool = True


@dataclass(frozen=True)
class Switch(Probe):
    """A tool like that of an MCP server."""

    light: ToolState = field(default_factory=ToolState)

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return Risk(self.light.kind, "switch the light", "on")

    async def repeatable(self, arguments: Arguments, caller: TurnContext) -> Repeatable | None:
        if not self.light.works_in_advance:
            return None
        return Repeatable("mcp:home/light", self.light.state, "each call of light", "tool:probe")


class GateKit:
    """A gate with the tool behind it. `restart` opens the same home in a new process."""

    def __init__(
        self, folder: Path, state: MemoryState, clock: FakeClock, light: ToolState
    ) -> None:
        self.folder, self.state, self.clock, self.light = folder, state, clock, light
        self.sent: list[tuple[str, Sequence[Button]]] = []
        self.asked = asyncio.Event()
        self.tool = Switch(light=light, effects=True)
        audit = AuditLog(folder / "audit.jsonl", Redactor(), clock)
        codes, ids = itertools.count(), itertools.count(1)
        self.standing = StandingApprovals(state, audit, clock, lambda: f"id{next(ids)}")
        self.approvals = Approvals(
            self._send,
            self._pausing,
            clock,
            lambda: f"CODE{next(codes)}",
            standing=self.standing,
        )
        policy = OwnersPolicy(dict.fromkeys(KINDS, "ask"))
        self.gate = ToolRegistry(policy=policy, ask=self.approvals.ask, audit=audit)
        self.gate.register(self.tool)

    def restart(self) -> GateKit:
        return GateKit(self.folder, self.state, self.clock, self.light)

    async def _send(
        self, caller: TurnContext, code: str, text: str, buttons: Sequence[Button]
    ) -> Address:
        self.sent.append((text, buttons))
        self.asked.set()
        return caller.address

    @contextlib.asynccontextmanager
    async def _pausing(self, _: str) -> AsyncIterator[None]:
        yield

    def begin(self, caller: TurnContext = ME) -> asyncio.Task[ToolResult]:
        call = ToolCall("1", "probe", '{"text": "on"}')
        return asyncio.create_task(self.gate.call(call, caller))

    async def call(self, answer: ApprovalAnswer | str = "no", caller: TurnContext = ME) -> bool:
        """Call the tool and answer any question. Return True if there was one."""
        before, self.asked = len(self.sent), asyncio.Event()
        running = self.begin(caller)
        asked = asyncio.create_task(self.asked.wait())
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if len(self.sent) > before:
            await self.say(f"CODE{before}", answer, caller)
        await running
        return len(self.sent) > before

    async def say(self, code: str, answer: str, caller: TurnContext = ME) -> str:
        """Answer as the owner in the caller's chat."""
        while not any(  # noqa: ASYNC110  # it tells nobody
            one.shown.code == code for one in self.approvals.list_pending()
        ):
            await asyncio.sleep(0)
        given = next(one for one in get_args(ApprovalAnswer) if one == answer)
        return await self.approvals.answer(code, caller.address, given, BY)

    @property
    def labels(self) -> list[str]:
        """Return the buttons of the last question."""
        return [button.label for button in self.sent[-1][1]]

    def list_audited(self, outcome: str) -> list[tuple[object, ...]]:
        def is_such(record: object) -> bool:
            assert isinstance(record, dict)
            return (record["event"], record["outcome"]) == ("standing approval", outcome)

        found = newest_records(self.folder / "audit.jsonl", is_such, 100)
        return [(one["id"], one["subject"], one["lasts"], one["by"]) for one in found]


@pytest.fixture
def kit(tmp_path: Path) -> GateKit:
    return GateKit(tmp_path, MemoryState(), FakeClock(EVENING), ToolState())


ONCE_ONLY = ["Approve", "Deny"]
ALL = ["Approve", "Deny", "Always", "Today in this chat"]


async def test_always_is_asked_once_and_holds_in_every_chat_and_after_a_restart(
    kit: GateKit,
) -> None:
    assert await kit.call("always")
    assert kit.labels == ALL
    assert "This covers each call of light." in kit.sent[-1][0]
    assert not await kit.call()
    assert not await kit.call(caller=ELSEWHERE)
    await kit.clock.advance(timedelta(days=400).total_seconds())
    later = kit.restart()
    assert not await later.call()
    assert (kit.tool.called, later.tool.called) == (["on"] * 3, ["on"])
    assert kit.list_audited("given") == [("id1", "each call of light", "always", BY)]
    assert len(kit.list_audited("used")) == 3
    answers = newest_records(
        kit.folder / "audit.jsonl", lambda record: record["event"] == "answered", 9
    )
    assert answers[0]["by"] == BY
    assert {one["by"] for one in answers[1:]} == {f"{BY}, in advance (id1)"}


async def test_once_is_once(kit: GateKit) -> None:
    assert await kit.call("once")
    assert await kit.call("no")
    assert kit.tool.called == ["on"]
    assert kit.standing.entries() == ()


async def test_today_holds_in_its_chat_until_midnight_where_the_owner_is(kit: GateKit) -> None:
    assert await kit.call("chat_today")
    assert kit.list_audited("given") == [("id1", "each call of light", "on 2026-11-25", BY)]
    await kit.clock.advance(7_199)
    assert not await kit.call()
    assert await kit.call("no", caller=ELSEWHERE)
    assert await kit.call("no", caller=replace(ME, thread_id="3", session_key="telegram:7:3"))
    await kit.clock.advance(1)
    assert kit.standing.entries() == ()
    assert await kit.call("no")
    assert len(kit.tool.called) == 2


async def test_a_clock_that_is_set_back_brings_nothing_to_life(kit: GateKit) -> None:
    await kit.call("chat_today")
    earlier = GateKit(kit.folder, kit.state, FakeClock(EVENING - timedelta(hours=1)), kit.light)
    assert await earlier.call("no")


async def test_any_change_ends_it_also_one_that_is_taken_back(kit: GateKit) -> None:
    await kit.call("always")
    kit.light.state = "as an attacker describes it"
    assert await kit.call("no")
    kit.light.state = "as it was described"
    assert await kit.call("no")
    assert kit.standing.entries() == ()
    assert kit.list_audited("ended") == [("id1", "each call of light", "always", "it has changed")]
    assert kit.tool.called == ["on"]


@pytest.mark.parametrize(
    "stranger",
    [
        replace(ME, scope="people/telegram_8", sender_id="8"),
        replace(ME, scope="groups/telegram_-5"),
    ],
)
async def test_guests_and_groups_neither_give_one_nor_use_the_owners(
    kit: GateKit, stranger: TurnContext
) -> None:
    await kit.call("always")
    assert await kit.call("no", caller=stranger)
    assert kit.labels == ONCE_ONLY


@pytest.mark.parametrize("initiator", ["job", "heartbeat", "helper", "report"])
async def test_where_nobody_is_there_none_serves(kit: GateKit, initiator: str) -> None:
    await kit.call("always")
    refused = await kit.begin(replace(ME, initiator=initiator))
    assert "no one is there" in refused.text
    assert kit.tool.called == ["on"]


@pytest.mark.parametrize(
    "origins",
    [
        ("tool:web_fetch",),
        ("tool:probe", "forwarded"),
        ("helper:1a (tool:probe)",),
        ("tool:other",),
        ("tool:functions.probe",),
    ],
)
async def test_with_text_from_elsewhere_in_the_conversation_the_owner_is_asked_anew(
    kit: GateKit, origins: tuple[str, ...]
) -> None:
    await kit.call("always")
    assert await kit.call("no", caller=replace(ME, origins=lambda: origins))
    assert kit.labels == ONCE_ONLY
    assert kit.tool.called == ["on"]


async def test_what_the_tool_itself_answered_is_nothing_new(kit: GateKit) -> None:
    answered = replace(ME, origins=lambda: ("tool:probe",))
    assert await kit.call("always", caller=answered)
    assert not await kit.call(caller=answered)


@pytest.mark.parametrize("kind", ["exec", "send", "fetch", "persist", "schedule"])
async def test_only_a_tool_of_an_mcp_server_is_ever_allowed_in_advance(
    kit: GateKit, kind: RiskKind
) -> None:
    await kit.call("always")
    kit.light.kind = kind
    assert await kit.call("no")
    assert kit.labels == ONCE_ONLY
    assert kit.tool.called == ["on"]


async def test_always_is_no_answer_where_it_was_not_offered(kit: GateKit) -> None:
    kit.light.works_in_advance = False
    running = kit.begin()
    await kit.asked.wait()
    for answer in ("always", "chat_today"):
        with pytest.raises(NanobotError, match="only be approved once"):
            await kit.say("CODE0", answer)
    await kit.say("CODE0", "no")
    assert (await running).is_error
    assert kit.standing.entries() == ()


async def test_a_code_that_was_made_up_or_is_from_before_the_restart_gives_nothing(
    kit: GateKit,
) -> None:
    running = kit.begin()
    await kit.asked.wait()
    with pytest.raises(NanobotError, match="No such question is pending"):
        await kit.approvals.answer("CODE9", ME.address, "always", BY)
    running.cancel()
    later = kit.restart()
    with pytest.raises(NanobotError, match="No such question is pending"):
        await later.approvals.answer("CODE0", ME.address, "always", BY)
    assert later.standing.entries() == ()


async def test_an_answer_that_cannot_be_stored_allows_nothing_and_can_be_given_again(
    kit: GateKit,
) -> None:
    running = kit.begin()
    await kit.asked.wait()
    kit.state.refuses = True
    with pytest.raises(NanobotError):
        await kit.say("CODE0", "always")
    assert not running.done()
    kit.state.refuses = False
    await kit.say("CODE0", "once")
    assert await running == ToolResult("on")
    assert kit.standing.entries() == ()


ENTRY = {
    "id": "id1",
    "key": "mcp:home/light",
    "fingerprint": "as it was described",
    "subject": "each call of light",
    "given_by": BY,
    "given_at": "2026-11-20T10:00:00+00:00",
    "session": "",
    "day": None,
}


def document(*entries: object, version: object = 1) -> str:
    return json.dumps({"version": version, "approvals": entries})


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        document(ENTRY, version=2),
        document(ENTRY | {"more": 1}),
        document(ENTRY | {"given_at": "2026-11-20T10:00:00"}),
        document(ENTRY | {"session": "telegram:7"}),
        document(ENTRY | {"day": "2026-11-25"}),
        document(ENTRY | {"fingerprint": ""}),
        document(ENTRY, ENTRY),
        document(ENTRY | {"id": "id2", "day": 5}),
    ],
)
async def test_a_damaged_document_allows_nothing_and_is_kept_aside(
    kit: GateKit, damaged: str
) -> None:
    kit.state.put("approvals", damaged)
    assert await kit.call("no")
    assert list(kit.state.aside.values()) == [damaged.encode()]
    assert "ask for these approvals again" in kit.standing.problem


async def test_a_whole_one_is_read(kit: GateKit) -> None:
    kit.state.put("approvals", document(ENTRY))
    assert not await kit.call()


async def test_one_that_is_revoked_is_gone_at_once(kit: GateKit) -> None:
    await kit.call("always")
    assert kit.standing.revoke("id1", "the command line").subject == "each call of light"
    assert await kit.call("no")
    with pytest.raises(NanobotError, match="no standing approval"):
        kit.standing.revoke("id1", "the command line")
    assert kit.list_audited("revoked") == [
        ("id1", "each call of light", "always", "the command line")
    ]


async def test_one_for_today_stands_beside_one_for_always(kit: GateKit) -> None:
    await kit.call("chat_today")
    await kit.call("always", caller=ELSEWHERE)
    assert [one.session for one in kit.standing.entries()] == ["telegram:7", ""]
    kit.standing.revoke("id2", BY)
    assert not await kit.call()
    assert await kit.call("no", caller=ELSEWHERE)
