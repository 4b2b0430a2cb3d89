"""What a person can choose under a message, and what they mean by what they type. Pure.

A question is a message whose buttons approve or deny: `y` and `n` answer it. Only one is open at a
time, the next is kept until it has its answer, so a `y` never means anything but what is shown;
and none counts that was begun before the question could be seen. Light standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from nanobot_cli.text import one_line
from nanobot_cli.wire import Choice, Said

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})
_LABEL = 60
_VALUE = 200


class Question(NamedTuple):
    """Asks for a yes or a no; each is a button."""

    yes: Choice
    no: Choice

    def answer(self, typed: str) -> str | None:
        """What to say for what was typed; None where that is no answer."""
        word = typed.strip().lower()
        for choice, words in ((self.yes, _YES), (self.no, _NO)):
            if word in words or word in (choice.label.lower(), choice.value.lower()):
                return choice.value
        return None

    @property
    def keys(self) -> str:
        """How to answer, on one line."""
        return f"y: {one_line(self.yes.label, _LABEL)} · n: {one_line(self.no.label, _LABEL)}"


def question_of(said: Said) -> Question | None:
    """The question that a message asks, if it asks one."""
    by_command = {choice.value.partition(" ")[0]: choice for choice in reversed(said.choices)}
    yes, no = by_command.get("/approve"), by_command.get("/deny")
    return Question(yes, no) if yes and no else None


def ways(choices: Sequence[Choice]) -> list[str]:
    """A line for each choice: what it is called, and what to type for it."""
    return [f"{one_line(c.label, _LABEL)}: {one_line(c.value, _VALUE)}" for c in choices]


class Questions:
    """The questions of a chat that have no answer yet, in the order they came."""

    def __init__(self) -> None:
        self._asked: deque[tuple[Said, Question, bool]] = deque()
        self._seen = False

    @property
    def open(self) -> Question | None:
        """The one that is shown."""
        return self._asked[0][1] if self._asked else None

    def ask(self, said: Said, question: Question, *, for_ours: bool) -> bool:
        """Take a question, `for_ours` if it came while this chat waited for an answer; says whether
        it is the one to show now."""
        self._asked.append((said, question, for_ours))
        return len(self._asked) == 1

    def shown(self, *, while_typing: bool) -> None:
        """The open one is on the screen now. `while_typing`: what is being typed was begun before,
        and does not answer it."""
        self._seen = not while_typing

    def new_line(self) -> None:
        """What is typed from now on is typed with the open question in view."""
        self._seen = True

    def answer(self, typed: str) -> str | None:
        """What to say for what was typed, where that answers the open question; None else."""
        return self.open.answer(typed) if self.open is not None else None

    @property
    def was_seen(self) -> bool:
        """Whether the line that was just typed was begun with the open question in view."""
        return self._seen

    def answered(self) -> Said | None:
        """The open one has its answer; the next to show, if there is one."""
        self._asked.popleft()
        return self._asked[0][0] if self._asked else None

    def withdraw(self) -> Said | None:
        """What this chat waited for is over, and asks no more; what goes on without it (a helper's
        report is read, a turn was taken up again) still does. The next to show, if there is one."""
        was_open = self.open
        self._asked = deque(asked for asked in self._asked if not asked[2])
        return self._asked[0][0] if self._asked and self.open is not was_open else None
