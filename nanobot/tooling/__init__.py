"""Tools, who calls them, and the one gate that every call passes.

`values` says what a tool and its caller are, `policy` whether a call may run, `registry` is the
gate, `approvals` asks the owner, `auditing` writes down what was decided and done.
"""

from nanobot.tooling.policy import (
    Allowed,
    AllowEverything,
    Approval,
    Ask,
    Decision,
    Denied,
    OwnersPolicy,
    Policy,
)
from nanobot.tooling.registry import MAX_RESULT, Approver, Audit, Overflow, ToolRegistry
from nanobot.tooling.values import (
    Arguments,
    Caller,
    OwnersOnly,
    Risk,
    RiskKind,
    Risky,
    RootsOf,
    Tool,
    ToolResult,
    Undisturbed,
    WithSchema,
)

__all__ = [
    "MAX_RESULT",
    "AllowEverything",
    "Allowed",
    "Approval",
    "Approver",
    "Arguments",
    "Ask",
    "Audit",
    "Caller",
    "Decision",
    "Denied",
    "Overflow",
    "OwnersOnly",
    "OwnersPolicy",
    "Policy",
    "Risk",
    "RiskKind",
    "Risky",
    "RootsOf",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "Undisturbed",
    "WithSchema",
]
