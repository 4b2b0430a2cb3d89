"""How the owner answers questions about calls: `/approve` and `/deny` in the chat where one was
asked, and the operations `approvals.…`, which their page and the control socket use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import get_args

from nanobot.bus.events import ApprovalAnswer
from nanobot.channel import Operation
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry, text_argument
from nanobot.errors import NanobotError
from nanobot.text import one_line
from nanobot.tooling.approvals import Approvals, Question

_ANSWERS: tuple[ApprovalAnswer, ...] = get_args(ApprovalAnswer)
_LONGEST_NAME = 80


class Approving:
    """The commands work while the turn that asked waits. The operations act for the owner, who
    alone reaches them."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    def register(self, registry: CommandRegistry) -> None:
        """Add the commands."""
        commands: tuple[tuple[str, str, ApprovalAnswer], ...] = (
            ("approve", "Allow what was asked for", "once"),
            ("deny", "Refuse what was asked for", "no"),
        )
        for name, summary, answer in commands:
            run = partial(self._answer, answer=answer)
            registry.register(Command(name, summary, run, "[code]", "owner", immediate=True))

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket."""
        return {"approvals.waiting": self.waiting, "approvals.answer": self.answer}

    async def waiting(self, _: Mapping[str, object]) -> dict[str, object]:
        """The questions that can be answered now, the oldest first."""
        return {"waiting": [_question_fields(one) for one in self._approvals.waiting()]}

    async def answer(self, given: Mapping[str, object]) -> dict[str, object]:
        """Answer the question `code` with `answer`; `by` names who does so, and where."""
        code, by = text_argument(given, "code").upper(), text_argument(given, "by")
        answer = next((one for one in _ANSWERS if one == given.get("answer")), None)
        if answer is None:
            raise NanobotError(f"the operation needs an 'answer': {', '.join(_ANSWERS)}")
        return {"text": self._approvals.answer_anywhere(code, answer, one_line(by, _LONGEST_NAME))}

    async def _answer(self, call: CommandCall, *, answer: ApprovalAnswer) -> Answer:
        code, message = "".join(call.arguments.split()).upper(), call.message
        by = f"{message.channel}:{message.sender_id}"
        return Answer(self._approvals.answer_in_chat(code, message.address, answer, by))


def _question_fields(question: Question) -> dict[str, object]:
    """A question, for machines."""
    shown, caller = question.shown, question.caller
    return {
        "code": shown.code,
        "session": caller.session_key,
        "turn": caller.turn_id,
        "scope": caller.scope,
        "what": shown.what,
        "details": shown.details,
        "because": shown.because,
        "asked_at": shown.asked_at.isoformat(timespec="seconds"),
        "seconds_left": round(question.seconds_left),
        "answers": list(shown.answers),
    }
