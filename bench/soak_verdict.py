"""Check that every message of a soak got its answer, by reading each chat from its first line.

People mark their messages (`m17: …`), and the model's answers repeat the marks (`answer to m17`).
So a text with marks is the answer to these messages, and one without is nanobot's own: a notice of
a delay, which answers nothing, or the end of a turn that the model could not end (an apology, a
command's result). Such an end counts for an earlier unanswered message. Reports of subagents
(`r17`) may be answered or not, and like commands may end in such a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nanobot.agent.notifier import BEHIND_ANOTHER

MARK = re.compile(r"\b([mrc]\d+)\b")
"""A person's message (m), a subagent's report (r), a command (c)."""

_NOTICES = (
    "The model cannot be reached right now",
    "Your message is pending",
    BEHIND_ANOTHER,
    "⚠️ A message that begins",  # it may come twice
)
_UNASKED = ("Remember this?", "Make this change to memory?", "A message in ")
"""Beginnings of nanobot's own messages: questions after Dream has learned from untrusted content,
and notices to the owner about others."""
_BROKEN = "nanobot had an internal error"
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chat: with `mark` a person's message (or a report that may come), without it a
    message of the bot."""

    text: str
    mark: str = ""


@dataclass(slots=True)
class Verdict:
    """The outcome of the messages. `faults` are sentences. `repeats` came twice in a row, which is
    permitted for a send whose answer was lost."""

    said: int = 0
    answered: int = 0
    excused: int = 0
    notices: int = 0
    repeats: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Add another verdict."""
        self.said += other.said
        self.answered += other.answered
        self.excused += other.excused
        self.notices += other.notices
        self.repeats += other.repeats
        self.faults += other.faults


def is_notice(text: str) -> bool:
    """Check whether a text of the bot is only a notice of a delay."""
    return text.startswith(_NOTICES)


def judge(lines: Iterable[Line]) -> Verdict:
    """Return the verdict on one chat. Its last message must have been answered."""
    reading = _Reading()
    for line in lines:
        if line.mark:
            reading.note_message(line.mark)
        else:
            reading.note_text(line.text)
    return reading.end()


class _Reading:
    """The state while reading one chat."""

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._open: dict[str, bool] = {}  # True after a later text without marks
        self._done: set[str] = set()
        self._last = ""

    def note_message(self, mark: str) -> None:
        self._verdict.said += mark[0] != "r"
        self._open[mark] = False

    def note_text(self, text: str) -> None:
        again, self._last = text == self._last, text
        marks = MARK.findall(text)
        if is_notice(text):
            self._verdict.notices += 1
        elif text.startswith(_UNASKED):
            self._verdict.faults += [text] if _BROKEN in text else []
        elif again and (marks or all(self._open.values())):
            self._verdict.repeats += 1  # two messages may have equal ends, unless one is still open
        elif marks:
            self._note_answer(marks, text)
        else:
            self._note_excuse(text)

    def _note_answer(self, marks: Iterable[str], text: str) -> None:
        for mark in marks:
            if mark not in self._open and mark not in self._done:
                self._verdict.faults.append(f"nobody said {mark}: {text[:_SHOWN]}")
            elif mark in self._done and mark[0] != "r":
                self._verdict.faults.append(f"{mark} was answered twice")
            self._verdict.answered += mark[0] != "r" and mark in self._open
            self._open.pop(mark, None)
            self._done.add(mark)

    def _note_excuse(self, text: str) -> None:
        if text.startswith(_BROKEN):
            self._verdict.faults.append(text)
        if not self._open:
            self._verdict.faults.append(f"nothing was asked, and there came: {text[:_SHOWN]}")
        self._open = dict.fromkeys(self._open, True)

    def end(self) -> Verdict:
        """Return the verdict, including messages that are still open."""
        asked = [(mark, excused) for mark, excused in self._open.items() if mark[0] != "r"]
        self._verdict.excused += sum(excused for _, excused in asked)
        self._verdict.faults += [f"{mark} got no answer" for mark, excused in asked if not excused]
        return self._verdict


def lines_in_order(pairs: Iterable[tuple[int, Line]]) -> Iterator[Line]:
    """Yield the lines of a chat in the order of their ids."""
    return (line for _, line in sorted(pairs, key=lambda pair: pair[0]))
