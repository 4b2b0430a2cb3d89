"""Asking the owner: one question for one call, answered once, by the owner, in time.

Invariants:

- A question shows everything that decides what would happen, written by code from the call's
  parsed arguments, which are also what runs: the model words nothing of it.
- An answer counts for the one call that asked, through an unguessable code, in the chat
  where it was asked, and only while that call waits. Nothing of it is on disk: after a restart, a
  stop or ten minutes an answer finds no question.
- A yes without the code is not taken for a question that came just now, in the place of another.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

from loguru import logger
from msgspec import Struct

from nanobot.bus.events import Address, Button
from nanobot.clock import Clock, with_timeout
from nanobot.errors import NanobotError
from nanobot.messages import ToolCall
from nanobot.text import escape_for_review, escape_invisible
from nanobot.tooling import OWNER, Allowed, Ask, Denied, TurnContext

WAIT_SECONDS = 600.0
"""After this time without an answer it is no."""

MOST_SHOWN = 6_000
"""Characters of details in a question. What is longer cannot be judged in a chat."""

MOST_WAITING = 10
"""Questions of one conversation at a time."""

MOST_AN_HOUR = 20
"""Questions to the owner from one scope that is not theirs."""

SEEN_SECONDS, APART_SECONDS = 3.0, 60.0
"""A yes without a code is for a question that stands there for as long as it takes to read one, and
that no other one of the same chat has made way for so recently."""


_HOUR = 3_600.0


Send = Callable[[TurnContext, str, str, Sequence[Button]], Awaitable[Address | None]]
"""Sends a question: for whose call, its code, the text, the buttons. Gives the chat that it went
to, None where there is no chat of the owner's."""

Pausing = Callable[[str], AbstractAsyncContextManager[None]]
"""While inside, the turn of a conversation (its key) takes up no place."""


class _Waiting(Struct):
    caller: TurnContext
    what: str
    answer: asyncio.Future[bool]
    address: Address | None = None
    since: float = 0.0


class Approvals:
    """The questions that wait."""

    def __init__(
        self, send: Send, pausing: Pausing, clock: Clock, new_code: Callable[[], str]
    ) -> None:
        self._send, self._pausing, self._clock, self._new_code = send, pausing, clock, new_code
        self._waiting: dict[str, _Waiting] = {}
        self._ended_at: dict[Address, float] = {}
        self._asked_at: dict[str, deque[float]] = {}

    async def ask(self, call: ToolCall, caller: TurnContext, question: Ask) -> Allowed | Denied:
        """Wait for the owner's word. Cancelling withdraws the question."""
        details = question.risk.details
        if len(details) > MOST_SHOWN or len(escape_for_review(details)) > MOST_SHOWN:
            return Denied(
                "this needs the owner's approval, and what is to be judged is too long (at most "
                f"{MOST_SHOWN:,} characters, with invisible ones written out); make it smaller"
            )
        if sum(w.caller.session_key == caller.session_key for w in self._waiting.values()) >= (
            MOST_WAITING
        ):
            return Denied("too many questions wait for the owner already")
        if not self._may_ask_again(caller.scope):
            return Denied("the owner was asked too often within the last hour; do without it")
        code = self._new_code()
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(caller, question.risk.what, answer)
        self._waiting[code] = waiting
        try:
            return await self._answered(code, waiting, question)
        finally:
            del self._waiting[code]
            if waiting.address is not None:
                self._ended_at[waiting.address] = self._clock.monotonic()

    def answer(self, code: str, address: Address, *, yes: bool) -> str:
        """The owner has answered in this chat: what to tell them. An empty code means the only
        question that waits here, as far as it must be the one that they have read."""
        here = {c: w for c, w in self._waiting.items() if w.address == address}
        if not code and len(here) > 1:
            verb = "approve" if yes else "deny"
            lines = [f"/{verb} {c}: {escape_invisible(w.what)}" for c, w in here.items()]
            return "\n".join(["Several questions wait:", *lines])
        waiting = here.get(code or next(iter(here), ""))
        if waiting is None or waiting.answer.done():
            return "No question waits for this answer: it was answered, is too old, or was dropped."
        if yes and not code and not self._was_read(address, waiting):
            shown = f"/approve {next(iter(here))}: {escape_invisible(waiting.what)}"
            return f"To be sure that you have read this one: {shown}"
        waiting.answer.set_result(yes)
        return f"{'Approved' if yes else 'Denied'}: {escape_invisible(waiting.what)}."

    def _was_read(self, address: Address, waiting: _Waiting) -> bool:
        now, ended = self._clock.monotonic(), self._ended_at.get(address)
        alone = ended is None or now - ended > APART_SECONDS
        return alone and now - waiting.since >= SEEN_SECONDS

    def _may_ask_again(self, scope: str) -> bool:
        """Count a question of this scope; False where it had too many."""
        if scope == OWNER:
            return True
        now, asked = self._clock.monotonic(), self._asked_at.setdefault(scope, deque())
        while asked and now - asked[0] >= _HOUR:
            asked.popleft()
        if len(asked) >= MOST_AN_HOUR:
            return False
        asked.append(now)
        return True

    async def _answered(self, code: str, waiting: _Waiting, question: Ask) -> Allowed | Denied:
        caller = waiting.caller
        buttons = (Button("Approve", f"/approve {code}"), Button("Deny", f"/deny {code}"))
        try:
            waiting.address = await self._send(caller, code, _text(caller, code, question), buttons)
            waiting.since = self._clock.monotonic()
        except NanobotError as error:
            logger.warning("the owner could not be asked: {}", error)
        if waiting.address is None:
            return Denied("this needs the owner's approval, and there is no chat to ask them in")
        with suppress(TimeoutError):
            async with self._pausing(caller.session_key):
                await with_timeout(self._clock, WAIT_SECONDS, _result(waiting.answer))
        if not waiting.answer.done() or waiting.answer.cancelled():
            return Denied(
                f"the owner was asked and did not answer within {WAIT_SECONDS / 60:g} minutes; "
                "tell them what you wanted to do"
            )
        if waiting.answer.result():
            return Allowed()
        return Denied("the owner was asked and said no; do not try it again")


async def _result(answer: asyncio.Future[bool]) -> bool:
    return await answer


def _text(caller: TurnContext, code: str, question: Ask) -> str:
    details = escape_for_review(question.risk.details)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", details))])
    return "\n".join(
        (
            f"**May I {escape_invisible(question.risk.what)}?**",
            f"{fence}\n{details}\n{fence}",
            f"{question.because} Asked for {escape_invisible(caller.session_key)},"
            f" turn {caller.turn_id}.",
            f"Within {WAIT_SECONDS / 60:g} minutes: /approve {code} or /deny {code}",
        )
    )
