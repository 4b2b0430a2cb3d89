"""Audit records of the gate: each decision, answer of the owner, and effect."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanobot.errors import ToolError
from nanobot.messages import ToolCall
from nanobot.security.audit import AuditLog
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock
from nanobot.tooling import (
    Allowed,
    Arguments,
    Ask,
    Denied,
    OwnersPolicy,
    Risk,
    RiskKind,
    Tool,
    ToolResult,
    TurnContext,
)
from nanobot.tooling.registry import ToolRegistry

CALLER = TurnContext("cli", "direct", "cli:direct", "turn-1", "me")
TAINTED = TurnContext("cli", "direct", "cli:direct", "turn-1", "me", origins=lambda: ("tool:web",))
CALL = ToolCall("call-1", "post", '{"text": "hello"}')


class Words(Arguments, frozen=True):
    text: str


@dataclass
class Post(Tool):
    """Posts a text, or fails."""

    name = "post"
    description = "Post it."
    arguments = Words
    effects = True

    async def risk(self, arguments: Words, caller: TurnContext) -> Risk | None:
        return Risk("send", "post something", arguments.text)

    async def __call__(self, arguments: Words, caller: TurnContext) -> ToolResult:
        if arguments.text == "fail":
            raise ToolError("the other side is down")
        return ToolResult("posted", changed=("a.txt", "b.txt"))


@dataclass
class Owner:
    """Gives the same answer to every question."""

    says: Allowed | Denied

    async def ask(self, call: ToolCall, caller: TurnContext, question: Ask) -> Allowed | Denied:
        return self.says


@dataclass
class Gate:
    """A registry with the tool and its records."""

    path: Path

    async def call(
        self, call: ToolCall, caller: TurnContext, says: Allowed | Denied | None = None
    ) -> list[tuple[object, ...]]:
        registry = ToolRegistry(
            policy=OwnersPolicy(),
            ask=Owner(says).ask if says else None,
            audit=AuditLog(self.path, Redactor(), FakeClock()),
        )
        registry.register(Post())
        await registry.call(call, caller)
        return [(record["event"], record["outcome"]) for record in self.records()]

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "audit.jsonl")


async def test_a_call_that_runs_leaves_the_decision_and_the_effect(gate: Gate) -> None:
    assert await gate.call(CALL, CALLER) == [("decided", "allowed"), ("ended", "ok")]
    decided, ended = gate.records()
    for record in (decided, ended):
        assert (record["tool"], record["call"], record["turn"]) == ("post", "call-1", "turn-1")
        assert (record["session"], record["scope"], record["sender"]) == (
            "cli:direct", "owner", "me",
        )  # fmt: skip
        assert record["begun_by"] == "person"
    assert decided["arguments"] == CALL.arguments
    assert decided["arguments_sha256"] == ended["arguments_sha256"]
    assert ended["changed"] == "a.txt b.txt"


async def test_the_owners_word_is_recorded_with_what_was_asked(gate: Gate) -> None:
    assert await gate.call(CALL, TAINTED, Allowed()) == [
        ("decided", "asked"), ("answered", "allowed"), ("ended", "ok"),
    ]  # fmt: skip
    asked, answered, _ = gate.records()
    assert (asked["risk"], asked["asked"], asked["details"]) == ("send", "post something", "hello")
    assert "(from web)" in str(asked["because"])
    assert (answered["risk"], answered["asked"]) == ("send", "post something")


async def test_a_call_that_is_refused_leaves_the_reason_and_no_effect(gate: Gate) -> None:
    no = Denied("the owner said no")
    assert await gate.call(CALL, TAINTED, no) == [("decided", "asked"), ("answered", "denied")]
    assert gate.records()[1]["because"] == "the owner said no"


async def test_a_call_of_a_job_says_which_one_and_that_nobody_was_asked(gate: Gate) -> None:
    origins = TAINTED.origins
    job = TurnContext("cli", "1", "cron:j1", "t", initiator="job", job="j1", origins=origins)
    assert await gate.call(CALL, job, Allowed()) == [
        ("decided", "asked"),
        ("answered", "not asked"),
    ]
    assert {(record["begun_by"], record["job"]) for record in gate.records()} == {("job", "j1")}


async def test_a_question_that_was_withdrawn_is_recorded_as_no_answer(gate: Gate) -> None:
    log, asked = AuditLog(gate.path, Redactor(), FakeClock()), asyncio.Event()

    async def wait(call: ToolCall, caller: TurnContext, question: Ask) -> Allowed | Denied:
        asked.set()
        return await asyncio.Future[Allowed]()

    registry = ToolRegistry(policy=OwnersPolicy(), ask=wait, audit=log)
    registry.register(Post())
    call = asyncio.create_task(registry.call(CALL, TAINTED))
    await asked.wait()
    call.cancel()
    await asyncio.wait([call])
    assert [record["outcome"] for record in gate.records()] == ["asked", "withdrawn"]


async def test_an_effect_that_failed_says_why(gate: Gate) -> None:
    failing = ToolCall("call-1", "post", '{"text": "fail"}')
    assert await gate.call(failing, CALLER) == [("decided", "allowed"), ("ended", "error")]
    assert gate.records()[1]["error"] == "the other side is down"


async def test_a_policy_that_never_allows_a_kind_is_recorded_as_a_refusal(gate: Gate) -> None:
    kind: RiskKind = "send"
    log = AuditLog(gate.path, Redactor(), FakeClock())
    registry = ToolRegistry(policy=OwnersPolicy({kind: "never"}), audit=log)
    registry.register(Post())
    await registry.call(CALL, CALLER)
    (record,) = gate.records()
    assert (record["event"], record["outcome"]) == ("decided", "denied")
    assert "tools.approval.send: never" in str(record["because"])
