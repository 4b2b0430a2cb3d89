"""What the gate tells the audit log: decisions, the owner's answers, effects."""

from __future__ import annotations

import hashlib

from nanobot.messages import ToolCall
from nanobot.security.audit import AuditLog, Value
from nanobot.tooling.policy import Allowed, Ask, Decision, Denied
from nanobot.tooling.values import Caller, ToolResult

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
