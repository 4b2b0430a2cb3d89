"""Whether a call may run: by itself, by the owner's word, or not at all. Pure.

Invariant: a call without a `Risk` runs; a call with one runs unasked only where the owner's setting
for its kind says so, and under `auto` only while nothing untrusted is in the conversation. After
that no words are compared: it makes no difference who may have written what the call passes on.

What the gate tells the audit log: decisions, the owner's answers, effects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nanobot.messages import ToolCall
from nanobot.security.audit import AuditLog, Value
from nanobot.security.names import printable
from nanobot.tooling.values import Arguments, Caller, Risk, RiskKind, Tool, ToolResult

Approval = Literal["auto", "ask", "allow", "never"]
"""For one kind of risk: `auto` asks once untrusted content is in the conversation, `ask` each time,
`allow` not at all, and `never` refuses."""

OWNER = "owner"
_SHOWN_ORIGINS = 5

_FOR_THE_OWNER: frozenset[RiskKind] = frozenset({"send", "exec", "mcp"})
"""What reaches beyond a person's own folder and chat: for anybody else the owner is asked."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not run; `reason` is told to the model."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The owner decides; `because` is a sentence for them and for the model."""

    risk: Risk
    because: str


Decision = Allowed | Denied | Ask


class Policy(Protocol):
    """Says whether a call may run, once its arguments are known to be valid."""

    def decide(
        self, tool: Tool, arguments: Arguments, caller: Caller, risk: Risk | None
    ) -> Decision:
        """Decide on one call. Raising means no."""
        ...


class AllowEverything:
    """The policy of an agent that has one person and no untrusted input."""

    def decide(
        self, tool: Tool, arguments: Arguments, caller: Caller, risk: Risk | None
    ) -> Decision:
        return Allowed()


@dataclass(frozen=True, slots=True)
class OwnersPolicy:
    """Decides by the owner's settings."""

    approval: Mapping[RiskKind, Approval] = field(default_factory=dict)

    def decide(
        self, tool: Tool, arguments: Arguments, caller: Caller, risk: Risk | None
    ) -> Decision:
        """See `Policy`."""
        if risk is None:
            return Allowed()
        setting = self.approval.get(risk.kind, "auto")
        if setting == "never":
            return Denied(f"the owner has turned this off (tools.approval.{risk.kind}: never)")
        if setting == "ask":
            return Ask(risk, "Each call of this kind needs the owner's word.")
        if caller.scope != OWNER and risk.kind in _FOR_THE_OWNER:
            return Ask(risk, "Somebody other than the owner wants this.")
        if setting == "allow":
            return Allowed()
        return self._auto(caller, risk)

    def _auto(self, caller: Caller, risk: Risk) -> Decision:
        origins = caller.origins()
        if not origins:
            return Allowed()
        named = ", ".join(map(printable, origins[:_SHOWN_ORIGINS]))
        return Ask(risk, f"Text from elsewhere is in the conversation ({named}).")


_NAMES = 80
_SHOWN_CHANGES = 20


class AuditedCalls:
    """Writes to `log`. See `nanobot.tooling.Audit`."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def decided(self, call: ToolCall, caller: Caller, decision: Decision) -> None:
        """See `Audit`."""
        who, outcome = _who("decided", call, caller), _outcome(decision)
        self._log.write({**who, **outcome, "arguments": call.arguments})

    def answered(self, call: ToolCall, caller: Caller, question: Ask, verdict: Decision) -> None:
        """See `Audit`."""
        self._log.write(
            {
                **_who("answered", call, caller),
                **_outcome(verdict),
                "risk": question.risk.kind,
                "asked": question.risk.what,
            }
        )

    def ended(self, call: ToolCall, caller: Caller, result: ToolResult) -> None:
        """See `Audit`."""
        record = _who("ended", call, caller) | {"outcome": "error" if result.is_error else "ok"}
        if result.changed:
            record["changed"] = " ".join(result.changed[:_SHOWN_CHANGES])
        if result.is_error:
            record["error"] = result.text
        self._log.write(record)


def _who(event: str, call: ToolCall, caller: Caller) -> dict[str, Value]:
    arguments = call.arguments.encode("utf-8", "surrogatepass")
    record: dict[str, Value] = {
        "event": event,
        "tool": call.name[:_NAMES],
        "call": call.id[:_NAMES],
        "arguments_sha256": hashlib.sha256(arguments).hexdigest(),
        "session": caller.session_key,
        "turn": caller.turn_id,
        "scope": caller.scope,
        "sender": caller.sender_id,
        "begun_by": caller.begun_by,
    }
    if caller.job:
        record["job"] = caller.job
    return record


def _outcome(decision: Decision) -> dict[str, Value]:
    match decision:
        case Allowed():
            return {"outcome": "allowed"}
        case Denied(reason=reason):
            return {"outcome": "denied", "because": reason}
        case Ask(risk=risk, because=because):
            return {
                "outcome": "asked",
                "because": because,
                "risk": risk.kind,
                "asked": risk.what,
                "details": risk.details,
            }
