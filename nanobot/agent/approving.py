"""`/approve` and `/deny`: how the owner answers a question, by a button or by hand."""

from __future__ import annotations

from functools import partial

from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.tooling.approvals import Approvals


class ApprovalCommands:
    """Both commands are the owner's, and work while the turn that asked waits."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    def register(self, registry: CommandRegistry) -> None:
        """Add them to `registry`."""
        for name, summary, yes in (
            ("approve", "Allow what was asked for", True),
            ("deny", "Refuse what was asked for", False),
        ):
            run = partial(self._answer, yes=yes)
            registry.register(Command(name, summary, run, "[code]", "owner", immediate=True))

    async def _answer(self, call: CommandCall, *, yes: bool) -> Answer:
        message = call.message
        code = "".join(call.arguments.split()).upper()
        return Answer(self._approvals.answer(code, message.address, yes=yes))
