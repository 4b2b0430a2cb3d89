"""Answers to approval questions: `/approve` and `/deny` in the chat of a question, and the
operations `approvals.…` for the owner's page and the control socket. `/approvals` lists the pending
questions and the standing approvals, and revokes standing approvals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import get_args

from nanobot.bus.events import ApprovalAnswer
from nanobot.channel import Operation
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry, text_argument
from nanobot.errors import NanobotError
from nanobot.text import capitalize, one_line
from nanobot.tooling.approvals import Approvals, Question, Standing, StandingApprovals

_ANSWERS: tuple[ApprovalAnswer, ...] = get_args(ApprovalAnswer)
_HOW_LONG: Mapping[str, ApprovalAnswer] = {
    "once": "once",
    "today": "chat_today",
    "always": "always",
}
_LONGEST_NAME = 80
_COMMAND_LINE = "the command line"
_NONE = "No questions are pending, and there are no standing approvals."


class ApprovalCommands:
    """Commands, which work while the asking turn waits, and operations, which only the owner can
    reach."""

    def __init__(self, approvals: Approvals, standing: StandingApprovals) -> None:
        self._approvals, self._standing = approvals, standing

    def register(self, registry: CommandRegistry) -> None:
        listing = "List pending questions and standing approvals"
        approve = partial(self._answer_question, _HOW_LONG, "once")
        deny = partial(self._answer_question, {"unseen": "unseen"}, "no")
        for name, summary, run, usage in (
            ("approve", "Approve a tool call", approve, "[code] [today | always]"),
            ("deny", "Deny a tool call", deny, "[code]"),
            ("approvals", listing, self._run, "[revoke ID]"),
        ):
            registry.register(Command(name, summary, run, usage, "owner", immediate=True))

    def table(self) -> Mapping[str, Operation]:
        return {
            "approvals.waiting": self.waiting,
            "approvals.answer": self.answer,
            "approvals.list": self.list,
            "approvals.revoke": self.revoke,
        }

    async def waiting(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the pending questions, without the standing approvals."""
        return {"waiting": self.pending()}

    def pending(self) -> Sequence[dict[str, object]]:
        """Return the pending questions of all conversations, oldest first."""
        return [_question_fields(one) for one in self._approvals.list_pending()]

    async def answer(self, given: Mapping[str, object]) -> dict[str, object]:
        """Answer the question `code` with `answer`. `by` names the person and the place."""
        code, by = text_argument(given, "code").upper(), text_argument(given, "by")
        answer = next((one for one in _ANSWERS if one == given.get("answer")), None)
        if answer is None:
            raise NanobotError(f"'answer' must be one of: {', '.join(_ANSWERS)}")
        by = one_line(by, _LONGEST_NAME)
        return {"text": await self._approvals.answer(code, None, answer, by)}

    async def list(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the pending questions and the standing approvals, oldest first."""
        entries = await asyncio.to_thread(self._standing.entries)
        approvals = [_standing_fields(one) for one in entries]
        return {
            "waiting": self.pending(),
            "approvals": approvals,
            "trouble": self._standing.problem,
        }

    async def revoke(self, given: Mapping[str, object]) -> dict[str, object]:
        """Revoke the standing approval `id`. `by` names the person and the place."""
        by = given.get("by")
        by = one_line(by, _LONGEST_NAME) if isinstance(by, str) and by.strip() else _COMMAND_LINE
        return {"text": await self._revoke_approval(text_argument(given, "id"), by)}

    async def _answer_question(
        self, endings: Mapping[str, ApprovalAnswer], plain: ApprovalAnswer, call: CommandCall
    ) -> Answer:
        """Answer a question by its code and, optionally, one of the `endings`."""
        words = call.arguments.split()
        answer = endings.get(words[-1].lower()) if words else None
        code = "".join(words[:-1] if answer else words).upper()
        here, by = call.message.address, _account(call)
        return Answer(await self._approvals.answer(code, here, answer or plain, by))

    async def _run(self, call: CommandCall) -> Answer:
        if call.message.is_group:
            return Answer("Other people can read this chat. Send /approvals in a private chat.")
        match call.arguments.split():
            case []:
                entries = await asyncio.to_thread(self._standing.entries)
                lines = []
                for one in self._approvals.list_pending():
                    minutes, code = math.ceil(one.seconds_left / 60), one.shown.code
                    lines.append(
                        f"- {capitalize(one.shown.what)}? Send `/approve {code}` or `/deny {code}`"
                        f" in {one.shown.address.key}. Requested in {one.caller.session_key};"
                        f" {minutes} min left."
                    )
                for entry in entries:
                    known = f"{entry.subject}, {_lasts(entry)}, approved by {entry.given_by}"
                    lines.append(f"- `{entry.id}`: {known}")
                parts = [self._standing.problem, *(lines or [_NONE])]
                return Answer("\n".join(filter(None, parts)))
            case ["revoke", id]:
                return Answer(await self._revoke_approval(id, _account(call)))
        return Answer("Usage: /approvals or /approvals revoke ID")

    async def _revoke_approval(self, id: str, by: str) -> str:
        ended = await asyncio.to_thread(self._standing.revoke, id, by)
        return f"Revoked: {ended.subject}."


def _account(call: CommandCall) -> str:
    return f"{call.message.channel}:{call.message.sender_id}"


def _lasts(one: Standing) -> str:
    return f"on {one.day} in {one.session}" if one.day else "always"


def _standing_fields(one: Standing) -> dict[str, object]:
    """Return a standing approval as JSON fields. `session` and `day` are empty if it holds
    permanently in all conversations of the owner."""
    return {
        "id": one.id,
        "subject": one.subject,
        "session": one.session,
        "given_by": one.given_by,
        "given_at": one.given_at.isoformat(timespec="seconds"),
        "day": str(one.day or ""),
        "lasts": _lasts(one),
    }


def _question_fields(question: Question) -> dict[str, object]:
    shown, caller = question.shown, question.caller
    return {
        "code": shown.code,
        "asked_in": shown.address.key,
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
