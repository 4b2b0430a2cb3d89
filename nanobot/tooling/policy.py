"""Whether a call may run: by itself, by the owner's word, or not at all. Pure.

Invariant: a call without a `Risk` runs; a call with one runs unasked only where the owner's setting
for its kind says so, and under `auto` only while nothing untrusted is in the conversation. After
that no words are compared: it makes no difference who may have written what the call passes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nanobot.text import printable
from nanobot.tooling.values import Risk, RiskKind, TurnContext

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


@dataclass(frozen=True, slots=True)
class OwnersPolicy:
    """Decides by the owner's settings."""

    approval: Mapping[RiskKind, Approval] = field(default_factory=dict)

    def decide(self, caller: TurnContext, risk: Risk | None) -> Decision:
        """Whether a call may run, once its arguments are known to be valid. Raising means no."""
        if risk is None:
            return Allowed()
        setting = self.approval.get(risk.kind, "auto")
        if setting == "never":
            return Denied(f"the owner has turned this off (tools.approval.{risk.kind}: never)")
        if setting == "ask":
            return Ask(risk, "Each call of this kind needs the owner's word.")
        if caller.scope != OWNER and risk.kind in _FOR_THE_OWNER:
            return Ask(risk, "Somebody other than the owner wants this.")
        origins = caller.origins() if setting == "auto" else ()
        if not origins:
            return Allowed()
        named = ", ".join(map(printable, origins[:_SHOWN_ORIGINS]))
        return Ask(risk, f"Text from elsewhere is in the conversation ({named}).")
