"""Whether every message of a soak got its answer: a chat is read from its first line to its last.

People mark what they say (`m17: …`), and the model's answers repeat the marks (`answer to m17`). So
a text with marks is the answer to these messages, and one without is what nanobot says itself: a
notice that something takes longer, which answers nothing, or the end of a turn that the model could
not end (an apology, a command's result). Such an end stands for a message that was said before it
and has no answer yet. What helpers report (`r17`) may be answered or not, and like commands may end
in such a text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nanobot.agent.notifier import BEHIND_ANOTHER

MARK = re.compile(r"\b([mrc]\d+)\b")
"""A message of a person's (m), a helper's report (r), a command (c)."""

_NOTICES = (
    "The model cannot be reached right now",
    "Your message is pending",
    BEHIND_ANOTHER,
    "⚠️ A message that begins",  # it may be there twice
)
_UNASKED = ("Remember this?", "Make this change to memory?", "A message in ")
"""What nanobot asks of itself when Dream has learned something from foreign text, and tells the
owner of others."""
_BROKEN = "nanobot had an internal error"
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chat: with `mark` a message that was said (or a report that may come), without
    it a message of the bot's."""

    text: str
    mark: str = ""


@dataclass(slots=True)
class Verdict:
    """What came of the messages. `faults` are sentences; `repeats` came twice in a row, which a
    send whose answer was lost may do."""

    said: int = 0
    answered: int = 0
    excused: int = 0
    notices: int = 0
    repeats: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Sum up."""
        self.said += other.said
        self.answered += other.answered
        self.excused += other.excused
        self.notices += other.notices
        self.repeats += other.repeats
        self.faults += other.faults


def is_notice(text: str) -> bool:
    """Whether a text of the bot's only says that an answer takes longer."""
    return text.startswith(_NOTICES)


def judge(lines: Iterable[Line]) -> Verdict:
    """What came of one chat. Its last message must have been answered."""
    reading = _Reading()
    for line in lines:
        if line.mark:
            reading.said(line.mark)
        else:
            reading.told(line.text)
    return reading.end()


class _Reading:
    """One chat while it is read."""

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._open: dict[str, bool] = {}  # whether a text without marks came since it was said
        self._done: set[str] = set()
        self._last = ""

    def said(self, mark: str) -> None:
        self._verdict.said += mark[0] != "r"
        self._open[mark] = False

    def told(self, text: str) -> None:
        again, self._last = text == self._last, text
        marks = MARK.findall(text)
        if is_notice(text):
            self._verdict.notices += 1
        elif text.startswith(_UNASKED):
            self._verdict.faults += [text] if _BROKEN in text else []
        elif again and (marks or all(self._open.values())):
            self._verdict.repeats += 1  # two messages may end alike: not if one still needs an end
        elif marks:
            self._answered(marks, text)
        else:
            self._excused(text)

    def _answered(self, marks: Iterable[str], text: str) -> None:
        for mark in marks:
            if mark not in self._open and mark not in self._done:
                self._verdict.faults.append(f"nobody said {mark}: {text[:_SHOWN]}")
            elif mark in self._done and mark[0] != "r":
                self._verdict.faults.append(f"{mark} was answered twice")
            self._verdict.answered += mark[0] != "r" and mark in self._open
            self._open.pop(mark, None)
            self._done.add(mark)

    def _excused(self, text: str) -> None:
        if text.startswith(_BROKEN):
            self._verdict.faults.append(text)
        if not self._open:
            self._verdict.faults.append(f"nothing was asked, and there came: {text[:_SHOWN]}")
        self._open = dict.fromkeys(self._open, True)

    def end(self) -> Verdict:
        """The verdict, with what is still open in it."""
        asked = [(mark, excused) for mark, excused in self._open.items() if mark[0] != "r"]
        self._verdict.excused += sum(excused for _, excused in asked)
        self._verdict.faults += [f"{mark} got no answer" for mark, excused in asked if not excused]
        return self._verdict


def told(pairs: Iterable[tuple[int, Line]]) -> Iterator[Line]:
    """The lines of a chat in the order of their ids."""
    return (line for _, line in sorted(pairs, key=lambda pair: pair[0]))
