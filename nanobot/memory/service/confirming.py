"""What waits to be forgotten until the person says yes: by a code, or by `y` as their next message.

A question holds for ten minutes, once, for who was asked and where. It is kept in a file, so that a
restart, or the end of a one-shot command, loses none. The file holds what is to be forgotten: it
lists open questions only, and is gone where there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.security.paths import Place

PATIENCE = timedelta(minutes=10)
"""For which a question holds."""

_MOST = 1_000
"""Open questions; the oldest make room, so that nobody can fill the memory with them."""
_LIMIT = 10_000_000
_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be forgotten and where, who was asked (`of`), and by which message of theirs.
    `until` is an ISO time; `is_last`: they have said nothing since."""

    text: str
    scope: str
    erase: bool
    of: str
    message: str
    until: str
    is_last: bool = True


class Questions:
    """Open questions, by code, kept at `place`. `new_code` makes codes: short, and hard to guess.

    That the file cannot be written is only logged: the questions then end with the process."""

    def __init__(self, place: Place, clock: Clock, new_code: Callable[[], str]) -> None:
        self._place, self._clock, self._new_code = place, clock, new_code
        self._known: dict[str, Question] | None = None

    def ask(self, text: str, scope: str, *, erase: bool, of: str, message: str) -> str:
        """Remember what was asked of whom, by which message; the code that says yes to it."""
        standing = self._open()
        code = self._new_code()
        while code in standing:
            code = self._new_code()
        until = (self._clock.now() + PATIENCE).isoformat()
        others = self._not_last(standing, of)
        kept = dict(list(others.items())[-_MOST + 1 :])
        self._keep({**kept, code: Question(text, scope, erase, of, message, until)})
        return code

    def confirmed(self, code: str, of: str) -> Question | None:
        """What `code` says yes to; None where it is unknown, old, used, or somebody else's. What
        else was asked of them is asked no more: it may hold what is now forgotten."""
        standing = self._open()
        question = standing.get(code.strip().lower())
        if question is None or question.of != of:
            return None
        self._keep({name: one for name, one in standing.items() if one.of != of})
        return question

    def meant(self, text: str, of: str, message: str) -> str:
        """The command that `y` or `n` stands for where a question was asked just before; empty for
        anything else that they say, after which it stands for nothing."""
        asked = {code: one for code, one in self._open().items() if one.of == of and one.is_last}
        word = text.strip().lower()
        for code, one in asked.items():
            if one.message == message:
                return ""
            if word in _YES | _NO:
                return f"/forget {'--yes' if word in _YES else '--no'} {code}"
        if asked:
            self._keep(self._not_last(self._open(), of))
        return ""

    def _not_last(self, standing: dict[str, Question], of: str) -> dict[str, Question]:
        return {
            code: replace(one, is_last=one.is_last and one.of != of)
            for code, one in standing.items()
        }

    def _open(self) -> dict[str, Question]:
        """Those that hold still."""
        known = self._read() if self._known is None else self._known
        now = self._clock.now()
        fresh = {
            code: one
            for code, one in known.items()
            if now < datetime.fromisoformat(one.until) <= now + PATIENCE
        }
        if fresh != known:
            self._keep(fresh)
        self._known = fresh
        return fresh

    def _read(self) -> dict[str, Question]:
        try:
            stored = json.loads(self._place.read_bytes(_LIMIT) or b"{}")
            return {str(code): Question(**fields) for code, fields in stored.items()}
        except (NanobotError, ValueError, TypeError, AttributeError) as error:
            logger.warning("{}: open questions are dropped: {}", self._place.shown, error)
            return {}

    def _keep(self, questions: dict[str, Question]) -> None:
        self._known = questions
        content = {code: asdict(one) for code, one in questions.items()}
        try:
            if questions:
                self._place.write_bytes(json.dumps(content).encode())
            elif self._place.stat() is not None:
                self._place.remove()
        except NanobotError as error:
            logger.warning("open questions are not kept: {}", error)
