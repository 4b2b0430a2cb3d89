"""Tools, who calls them, and the one gate that every call passes.

`values` says what a tool and its caller are, `policy` whether a call may run, `registry` is the
gate, which writes down what was decided and done, `approvals` asks the owner.
"""

from nanobot.tooling.policy import (
    Allowed,
    Approval,
    Ask,
    Decision,
    Denied,
    OwnersPolicy,
)
from nanobot.tooling.registry import MAX_RESULT, Approver, SpillFolder, ToolRegistry
from nanobot.tooling.values import (
    Arguments,
    OwnersOnly,
    Risk,
    RiskKind,
    Risky,
    RootsOf,
    Tool,
    ToolResult,
    TurnContext,
    Undisturbed,
    WithSchema,
)

__all__ = [
    "MAX_RESULT",
    "Allowed",
    "Approval",
    "Approver",
    "Arguments",
    "Ask",
    "Decision",
    "Denied",
    "OwnersOnly",
    "OwnersPolicy",
    "Risk",
    "RiskKind",
    "Risky",
    "RootsOf",
    "SpillFolder",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "TurnContext",
    "Undisturbed",
    "WithSchema",
]
