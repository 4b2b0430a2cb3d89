"""Text of a chat in lines that are safe to print (`nanobot.text.clean`) and fit a terminal. Pure.
Only light modules of the standard library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from unicodedata import east_asian_width

from nanobot.text import clean, shorten
from nanobot_cli.wire import AgentMessage, Choice, SentFile

_NARROWEST = 20
_INDENT = re.compile(r"\s*(?:[-*+]\s+)?")
_LABEL = 60
_VALUE = 200
_OUTPUT_KEPT = 8_000
"""Characters of a tool's output: more than any screen shows of it."""


def one_line(text: str, width: int) -> str:
    """The beginning of `text` as one line of at most `width` characters."""
    return shorten(clean(text[: width * 4]), width)


def file_line(file: SentFile) -> str:
    """A file that was sent, on one line: its name, its size and its path."""
    path = clean(file.path).replace("\n", " ")
    return f"[file] {one_line(file.name, 200)} ({file.size:,} bytes): {path}"


def ways(choices: Iterable[Choice]) -> list[str]:
    """A line for each choice: what it is called, and what to type for it."""
    return [f"{one_line(c.label, _LABEL)}: {one_line(c.value, _VALUE)}" for c in choices]


class Question(NamedTuple):
    """A message whose buttons approve or deny: `y` and `n` answer it, and words such as `always`
    where there is more to choose."""

    said: AgentMessage
    yes: Choice
    no: Choice

    def answer(self, typed: str) -> str | None:
        """What to say for what was typed; None where that is no answer."""
        word = typed.strip().lower()
        for words, choice in self._answers():
            if word in (*words, choice.label.lower(), choice.value.lower()):
                return choice.value
        return None

    @property
    def keys(self) -> str:
        """How to answer, on one line."""
        answers = self._answers()
        return " · ".join(f"{words[0]}: {one_line(one.label, _LABEL)}" for words, one in answers)

    def _answers(self) -> list[tuple[tuple[str, ...], Choice]]:
        """Each choice, with the words for it: of further ones the last of what they say."""
        known = [(("y", "yes"), self.yes), (("n", "no"), self.no)]
        others = [one for one in self.said.choices if one not in (self.yes, self.no)]
        return [*known, *(((_last_word(one.value),), one) for one in others)]


def _last_word(value: str) -> str:
    return one_line(value.rpartition(" ")[2].lower(), _LABEL)


def question_of(said: AgentMessage) -> Question | None:
    """The question that a message asks, if it asks one."""
    by_command = {choice.value.partition(" ")[0]: choice for choice in reversed(said.choices)}
    yes, no = by_command.get("/approve"), by_command.get("/deny")
    return Question(said, yes, no) if yes and no else None


def columns(text: str) -> int:
    """The columns of a terminal that `text` takes."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(c) in "WF") for c in text)


def wrapped(text: str, width: int) -> str:
    """`text` in lines of `width` columns, broken between words where there are any; a list item
    goes on below its first word.

    Blocks that must stay aligned, indented by four, are left alone, and so is a word that is too
    long for any line.
    """
    width = max(_NARROWEST, width)
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if line.startswith("    ") or columns(line) <= width:
        return line
    from textwrap import fill

    match = _INDENT.match(line)
    hanging = " " * min(len(match[0]) if match else 0, width // 2)
    return fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


class OutputTail:
    """The end of what a running tool prints, in pieces of any size. `\\r` starts the line again, as
    progress bars do."""

    def __init__(self) -> None:
        self._tail = ""
        self._ended = 0

    def feed(self, text: str) -> None:
        """More of it."""
        self._ended += text.count("\n")
        self._tail = (self._tail + text)[-_OUTPUT_KEPT:]

    def lines(self, most: int, width: int) -> list[str]:
        """The last `most` lines, each cut to `width` characters; blank ones at the end do not
        count. Where there were more, the first says how many."""
        shown = [
            clean(line.rstrip("\r").rpartition("\r")[2]).expandtabs(4).rstrip()[:width]
            for line in self._tail.split("\n")
        ]
        total = self._ended + 1
        while shown and not shown[-1].strip():
            shown.pop()
            total -= 1
        if total <= most or not shown:
            return shown
        kept = shown[len(shown) - min(most - 1, len(shown)) :]
        return [f"… {total - len(kept):,} lines before", *kept]
