"""Calls that run by themselves, need approval, or never run."""

from __future__ import annotations

from typing import get_args

import pytest

from nanobot.tooling import (
    Allowed,
    Approval,
    Ask,
    Denied,
    OwnersPolicy,
    Risk,
    RiskKind,
    TurnContext,
)

KINDS: tuple[RiskKind, ...] = get_args(RiskKind)
CLEAN = TurnContext("telegram", "7", "telegram:7", "t-1", "7")
TAINTED = TurnContext(
    "telegram", "7", "telegram:7", "t-1", "7", origins=lambda: ("tool:web_fetch",)
)
GUEST = TurnContext("telegram", "8", "telegram:8", "t-2", "8", "people/telegram_8")


def decide(
    caller: TurnContext, kind: RiskKind, setting: Approval | None = None
) -> Allowed | Denied | Ask:
    policy = OwnersPolicy({kind: setting} if setting else {})
    return policy.decide(caller, Risk(kind, "do it", "all of it"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_owner_is_asked_once_foreign_text_is_there_and_not_before(kind: RiskKind) -> None:
    assert decide(CLEAN, kind) == Allowed()
    question = decide(TAINTED, kind)
    assert isinstance(question, Ask)
    assert "web_fetch" in question.because


def test_a_call_without_a_risk_always_runs() -> None:
    assert OwnersPolicy().decide(TAINTED, None) == Allowed()


@pytest.mark.parametrize("kind", KINDS)
def test_the_owners_settings_hold_for_each_kind(kind: RiskKind) -> None:
    assert isinstance(decide(CLEAN, kind, "ask"), Ask)
    assert decide(TAINTED, kind, "allow") == Allowed()
    refusal = decide(CLEAN, kind, "never")
    assert isinstance(refusal, Denied)
    assert f"tools.approval.{kind}" in refusal.reason


@pytest.mark.parametrize("kind", ["send", "exec", "mcp", "schedule"])
def test_what_reaches_beyond_a_guests_own_chat_needs_the_owner(kind: RiskKind) -> None:
    assert isinstance(decide(GUEST, kind), Ask)
    assert isinstance(decide(GUEST, kind, "allow"), Ask)
    assert isinstance(decide(GUEST, kind, "never"), Denied)


@pytest.mark.parametrize("approval", get_args(Approval))
def test_what_a_guest_would_leave_behind_is_refused_and_not_asked(approval: Approval) -> None:
    assert isinstance(decide(GUEST, "persist", approval), Denied)


def test_a_guest_may_fetch_as_the_owner_may() -> None:
    assert decide(GUEST, "fetch") == Allowed()
