"""Approvals by the owner: questions for single calls, and standing approvals.

Invariants of questions:

- A question shows everything that decides the effect. Code writes it from the parsed arguments that
  will run; the model words nothing.
- An answer counts only for the call that asked, through an unguessable code, in the chat of the
  question or on the owner's page, while the call waits. Nothing is on disk: after a restart, a stop
  or ten minutes an answer finds no question.
- Viewers see each question, and once that it is closed.
- An approval names its code, so it is for the question that was read.

Invariants of standing approvals:

- One covers exactly its `fingerprint`: an MCP tool as its server describes it, with the server's
  program. Any change ends it, even if it is reverted. Commands have none, because the files that a
  command will read are unknown.
- It serves only the owner's attended conversations without untrusted content (`may_repeat`), except
  results of this very tool if the tool allows that.
- "For this chat today" ends at midnight in the owner's time zone.
- A document with any unreadable detail allows nothing.
- The audit log has each grant, use, end and revocation, with the person."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import date, datetime
from typing import Literal

from loguru import logger
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from nanobot.bus.events import Address, ApprovalAnswer, ApprovalAsked, ApprovalClosed, Button
from nanobot.bus.state import Document, InvalidDocument, StateStore, decode_versioned
from nanobot.clock import Clock, with_timeout
from nanobot.errors import NanobotError, StorageError
from nanobot.messages import ToolCall
from nanobot.security.audit import AuditLog
from nanobot.text import capitalize, escape_for_review, escape_invisible
from nanobot.tooling import OWNER, Allowed, Ask, Denied, Repeatable, TurnContext, deny_unasked

MOST_STANDING = 200
"""Maximum number of standing approvals."""

_VERSION = 1
_ADVICE = "nanobot will ask for these approvals again."


class Standing(Struct, frozen=True, forbid_unknown_fields=True):
    """A standing approval. `key`, `fingerprint` and `subject` come from its `Repeatable`. `session`
    is its only conversation (empty: all of the owner's), `day` its only day in the owner's time
    zone. `given_at` is aware."""

    id: str
    key: str
    fingerprint: str
    subject: str
    given_by: str
    given_at: datetime
    session: str = ""
    day: date | None = None

    def holds(self, session: str, now: datetime) -> bool:
        """Check whether it is valid now in this conversation. A clock set back ends it as well."""
        is_here = self.session in ("", session)
        return is_here and self.given_at <= now and self.day in (None, now.date())


Entries = tuple[Standing, ...]


class StandingApprovals:
    """The document `approvals`. All methods but `find_valid` block. `new_id` returns unused ids."""

    def __init__(
        self, store: StateStore, audit: AuditLog, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._audit, self._clock, self._new_id = audit, clock, new_id
        self._document: Document[Entries] = Document(
            store, "approvals", decode_approvals, encode_approvals, (), _ADVICE
        )

    @property
    def problem(self) -> str:
        """Fault of the document, or an empty text."""
        return self._document.problem

    def entries(self) -> Entries:
        """Return the valid approvals, the oldest first. Raise `StorageError`."""
        now = self._clock.now()
        return tuple(one for one in self._document.load() if one.holds(one.session, now))

    def give(
        self, what: Repeatable, caller: TurnContext, answer: ApprovalAnswer, by: str
    ) -> Standing:
        """Store an approval for this conversation today, or for always. Raise `NanobotError` if
        nothing is allowed."""
        if answer not in {"chat_today", "always"}:  # the others end with their call
            raise ValueError(f"{answer} is not a standing approval")
        now, today = self._clock.now(), answer == "chat_today"
        given = Standing(
            *(self._new_id(), what.key, what.fingerprint, what.subject, by, now),
            session=caller.session_key if today else "",
            day=now.date() if today else None,
        )

        def add_given(entries: Entries) -> Entries:
            kept = [
                one
                for one in entries
                if one.holds(one.session, now)
                and (one.key, one.session) != (given.key, given.session)
            ]
            if len(kept) >= MOST_STANDING:
                raise NanobotError(
                    f"the limit of {MOST_STANDING} standing approvals has been reached",
                    hint="To list and revoke them, send /approvals.",
                )
            return (*kept, given)

        self._document.change(add_given)
        self._record("given", given, by, caller)
        return given

    async def find_valid(self, question: Ask, caller: TurnContext) -> Standing | None:
        """Return the approval that allows this call, or None, and log its use. Approvals of a
        changed subject are ended. If the document is unreadable, nothing is allowed."""
        what = question.repeatable
        if what is None:
            return None
        try:
            mine = await asyncio.to_thread(self._end_stale, what, caller)
        except StorageError as error:
            logger.warning("standing approvals cannot be used: {}", error)
            return None
        now = self._clock.now()
        found = next((one for one in mine if one.holds(caller.session_key, now)), None)
        if found is not None:
            self._record("used", found, found.given_by, caller)
        return found

    def _end_stale(self, what: Repeatable, caller: TurnContext) -> Sequence[Standing]:
        """End the approvals with an old fingerprint and return the others for this key."""
        stale: list[Standing] = []

        def without_stale(entries: Entries) -> Entries:
            mine = (one for one in entries if one.key == what.key)
            stale[:] = (one for one in mine if one.fingerprint != what.fingerprint)
            return tuple(one for one in entries if one not in stale)

        entries = self._document.change(without_stale)  # also the read: one lock for both
        for one in stale:
            self._record("ended", one, "it has changed", caller)
        return [one for one in entries if one.key == what.key]

    def revoke(self, id: str, by: str) -> Standing:
        """Remove an approval. Raise `NanobotError` if none has this id."""
        found = next((one for one in self._document.load() if one.id == id), None)
        if found is None:
            raise NanobotError(
                f"there is no standing approval {id!r:.40}", hint="To list them, send /approvals."
            )
        self._document.change(lambda entries: tuple(one for one in entries if one.id != id))
        self._record("revoked", found, by)
        return found

    def _record(
        self, outcome: str, standing: Standing, by: str, caller: TurnContext | None = None
    ) -> None:
        place = {"session": caller.session_key, "turn": caller.turn_id} if caller else {}
        lasts = f"on {standing.day}" if standing.day else "always"
        self._audit.write(
            {
                "event": "standing approval",
                "outcome": outcome,
                "id": standing.id,
                "subject": standing.subject,
                "lasts": lasts,
                "by": by,
                **place,
            }
        )


class _File(Struct, forbid_unknown_fields=True):
    version: int
    approvals: list[Standing]


def encode_approvals(entries: Entries) -> bytes:
    content = to_builtins(_File(_VERSION, list(entries)))
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def decode_approvals(content: bytes) -> Entries:
    entries = convert(decode_versioned(content, _VERSION), _File).approvals
    for one in entries:
        if one.given_at.tzinfo is None:
            raise InvalidDocument("a time has no time zone")
        if not (one.id and one.key and one.fingerprint):
            raise InvalidDocument("an entry has no id, key, or fingerprint")
        if bool(one.session) != (one.day is not None):
            raise InvalidDocument("an entry has a chat without a day, or a day without a chat")
    if len({one.id for one in entries}) < len(entries):
        raise InvalidDocument("two entries have the same id")
    return tuple(entries)


WAIT_SECONDS = 600.0
"""Without an answer after this time, the call is denied."""

MOST_SHOWN = 6_000
"""Characters of details in a question. Longer details can't be judged in a chat."""

MOST_WAITING = 10
"""Pending questions of one conversation."""

MOST_AN_HOUR = 20
"""Questions to the owner from any other scope."""

_HOUR = 3_600.0


Send = Callable[[TurnContext, str, str, Sequence[Button]], Awaitable[Address | None]]
"""Sends a question: its caller, code, text and buttons. Returns the chat, or None if the owner has
no chat."""

Pause = Callable[[str], AbstractAsyncContextManager[None]]
"""Inside this context the turn of a conversation (its key) does not occupy a slot."""


Announce = Callable[[str, ApprovalAsked | ApprovalClosed], None]
"""Publishes an event of a question of this conversation. Must be quick."""

Elsewhere = Callable[[str, Address | None, ApprovalAnswer, str], Awaitable[str]]
"""`Approvals.answer` of the worker of a team that holds the question."""

NEVER: tuple[ApprovalAnswer, ...] = ("no", "unseen")
ONCE: tuple[ApprovalAnswer, ...] = ("once", "no")
LONGER: tuple[ApprovalAnswer, ...] = ("once", "chat_today", "always", "no")


class Question(Struct, frozen=True):
    """A pending question as it was shown."""

    shown: ApprovalAsked
    caller: TurnContext
    seconds_left: float


class _PendingQuestion(Struct):
    """A question until it is closed. `answer` holds the answer and its person. `shown` is None
    until the question is sent; `since` is that time (monotonic). `settled`: an answer is being
    stored."""

    caller: TurnContext
    asked: Ask
    answer: asyncio.Future[tuple[ApprovalAnswer, str]]
    answers: tuple[ApprovalAnswer, ...] = ONCE
    shown: ApprovalAsked | None = None
    since: float = 0.0
    settled: bool = False

    def is_in(self, address: Address | None) -> bool:
        """Check whether the question is shown in this chat. `None` means the owner's list with all
        questions."""
        return address is None or (self.shown is not None and self.shown.address == address)

    @property
    def what(self) -> str:
        return escape_invisible(self.asked.risk.what)


def no_announcement(_: str, __: object) -> None:
    """Ignore the event."""


class Approvals:
    def __init__(
        self,
        send: Send,
        pausing: Pause,
        clock: Clock,
        new_code: Callable[[], str],
        announce: Announce = no_announcement,
        standing: StandingApprovals | None = None,
    ) -> None:
        self._standing = standing
        self._send, self._pausing, self._clock, self._new_code = send, pausing, clock, new_code
        self._announce = announce
        self.elsewhere: Elsewhere | None = None
        self._waiting: dict[str, _PendingQuestion] = {}
        self._asked_at: dict[str, deque[float]] = {}

    async def ask(self, call: ToolCall, caller: TurnContext, question: Ask) -> Allowed | Denied:
        """Wait for the owner's answer, unless a standing approval applies. Cancelling withdraws the
        question. Raise `StorageError` if the question could not be stored."""
        if self._standing is None:
            question = replace(question, repeatable=None)  # no store for standing approvals
        elif given := await self._standing.find_valid(question, caller):
            return Allowed(f"{given.given_by}, in advance ({given.id})")
        details = question.risk.details
        # escapes make it longer
        if len(details) > MOST_SHOWN or len(escape_for_review(details)) > MOST_SHOWN:
            return deny_unasked(
                f"the call is too long to be shown (limit: {MOST_SHOWN:,} characters, with "
                "invisible ones escaped), so make it shorter"
            )
        mine = [w for w in self._waiting.values() if w.caller.session_key == caller.session_key]
        if len(mine) >= MOST_WAITING:
            return deny_unasked(f"this conversation already has {MOST_WAITING} pending questions")
        if not self._may_ask_again(caller.scope):
            return deny_unasked(f"the limit of {MOST_AN_HOUR} questions an hour has been reached")
        code = self._new_code()
        answer: asyncio.Future[tuple[ApprovalAnswer, str]] = (
            asyncio.get_running_loop().create_future()
        )
        waiting = _PendingQuestion(
            caller, question, answer, LONGER if question.repeatable else ONCE
        )
        self._waiting[code] = waiting
        outcome: Literal["expired", "withdrawn"] = "withdrawn"
        try:
            decision = await self._await_answer(code, waiting)
            outcome = "expired"
            return decision
        finally:
            del self._waiting[code]
            self._close(waiting, outcome)

    def list_pending(self) -> tuple[Question, ...]:
        """Return the questions that can be answered now, the oldest first."""
        now = self._clock.monotonic()
        return tuple(
            Question(one.shown, one.caller, max(0.0, WAIT_SECONDS - (now - one.since)))
            for one in self._waiting.values()
            if one.shown is not None and not one.answer.done()
        )

    async def answer(
        self, code: str, address: Address | None, answer: ApprovalAnswer, by: str
    ) -> str:
        """Settle a question with the owner's answer and return the text for them. `by` is their
        account, `address` the chat of the answer, or None for the owner's list. Raise
        `NanobotError` if the answer is impossible."""
        if code and code not in self._waiting and self.elsewhere:
            return await self.elsewhere(code, address, answer, by)
        return await self.answer_here(code, address, answer, by)

    async def answer_here(
        self, code: str, address: Address | None, answer: ApprovalAnswer, by: str
    ) -> str:
        """Settle a question of this worker of a team. Without a code, the only question of the chat
        can be denied."""
        here = {c: w for c, w in self._waiting.items() if w.is_in(address)}
        if here and not code and (answer not in NEVER or len(here) > 1):
            verb = "deny" if answer in NEVER else "approve"
            return "\n".join(
                [
                    "Several questions are pending. Choose one:",
                    *(f"/{verb} {c}: {w.what}" for c, w in here.items()),
                ]
            )
        return await self._settle(here.get(code or next(iter(here), "")), answer, by)

    async def _settle(
        self, waiting: _PendingQuestion | None, answer: ApprovalAnswer, by: str
    ) -> str:
        """Settle a pending question and return the text for the owner."""
        if waiting is None or waiting.shown is None or waiting.settled or waiting.answer.done():
            raise NanobotError(
                "No such question is pending. It may have expired, or been answered or withdrawn."
            )
        if answer not in (*waiting.answers, *NEVER):
            raise NanobotError(f"This can only be approved once: {waiting.what}.")
        said = "Not approved" if answer == "unseen" else "Denied" if answer == "no" else "Approved"
        # Store a standing approval before reporting it.
        more = "" if answer in (*ONCE, *NEVER) else await self._allow_longer(waiting, answer, by)
        if not waiting.answer.done():  # a stop may have cancelled it
            waiting.answer.set_result((answer, by))
        return f"{said}: {waiting.what}.{more}"

    async def _allow_longer(
        self, waiting: _PendingQuestion, answer: ApprovalAnswer, by: str
    ) -> str:
        what = waiting.asked.repeatable
        if what is None or self._standing is None:
            return ""
        waiting.settled = True  # no second answer while this one is stored
        try:
            given = await asyncio.to_thread(self._standing.give, what, waiting.caller, answer, by)
        finally:
            waiting.settled = False
        until = "in this chat until midnight" if answer == "chat_today" else "from now on"
        return (
            f" This covers {what.subject} {until}. To revoke it, send /approvals revoke {given.id}."
        )

    def _close(self, waiting: _PendingQuestion, otherwise: Literal["expired", "withdrawn"]) -> None:
        """Announce that a question is closed, if it was sent."""
        if (shown := waiting.shown) is None:
            return
        is_answered = waiting.answer.done() and not waiting.answer.cancelled()
        answer, by = waiting.answer.result() if is_answered else (otherwise, "")
        closed = ApprovalClosed(
            shown.channel,
            shown.chat_id,
            shown.turn_id,
            shown.code,
            answer,
            "" if answer == "unseen" else by,
            thread_id=shown.thread_id,
        )
        self._announce(waiting.caller.session_key, closed)

    def _may_ask_again(self, scope: str) -> bool:
        """Count a question of this scope. Return False if the limit is reached."""
        if scope == OWNER:
            return True
        now, asked = self._clock.monotonic(), self._asked_at.setdefault(scope, deque())
        while asked and now - asked[0] >= _HOUR:  # a sliding window
            asked.popleft()
        if len(asked) >= MOST_AN_HOUR:
            return False
        asked.append(now)
        return True

    async def _await_answer(self, code: str, waiting: _PendingQuestion) -> Allowed | Denied:
        caller, question = waiting.caller, waiting.asked
        buttons = [Button("Approve", f"/approve {code}"), Button("Deny", f"/deny {code}")]
        if waiting.answers == LONGER:  # last: some platforms show three
            buttons.append(Button("Always", f"/approve {code} always"))
            buttons.append(Button("Today in this chat", f"/approve {code} today"))
        there: Address | None = None
        try:
            there = await self._send(caller, code, render_question(code, question), buttons)
        except StorageError:
            raise
        except NanobotError as error:
            logger.warning("the owner could not be asked: {}", error)
        if there is None:
            return deny_unasked("there is no chat to ask them in")
        waiting.since = self._clock.monotonic()
        waiting.shown = ApprovalAsked(
            there.channel,
            there.chat_id,
            caller.turn_id,
            code,
            waiting.what,
            escape_for_review(question.risk.details),
            escape_invisible(question.because),
            waiting.answers,
            self._clock.now(),
            WAIT_SECONDS,
            thread_id=there.thread_id,
        )
        self._announce(caller.session_key, waiting.shown)
        with suppress(TimeoutError):
            async with self._pausing(caller.session_key):
                answer, by = await with_timeout(self._clock, WAIT_SECONDS, waiting.answer)
                if answer == "unseen":
                    return deny_unasked("no one was at the terminal to answer")
                if answer == "no":
                    return Denied("the owner denied this. Do not try it again", by)
                caller.note_approval(there)
                return Allowed(by)
        return Denied(
            f"the owner did not answer within {WAIT_SECONDS / 60:g} minutes. Tell them what you"
            " wanted to do",
            outcome="unanswered",
        )


def render_question(code: str, question: Ask) -> str:
    details = escape_for_review(question.risk.details)
    # longer than any fence in the details
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", details))])
    lines = [
        f"**{escape_invisible(capitalize(question.risk.what))}?**",
        f"{fence}\n{details}\n{fence}",
        escape_invisible(question.because),
        f"Reply /approve {code} or /deny {code} within {WAIT_SECONDS / 60:g} minutes.",
    ]
    if what := question.repeatable:
        lines.append(
            f"To approve it for longer, reply /approve {code} today (in this chat, until midnight) "
            f"or /approve {code} always. This covers {escape_invisible(what.subject)}."
        )
    return "\n".join(lines)
