"""Text of a chat as lines that are safe to print (`nanobot.text.clean`) and fit a terminal. Pure.
Imports only light modules of the standard library."""

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
_OUTPUT_KEPT = 8_000  # characters of a tool's output to keep, more than any screen shows


def one_line(text: str, width: int) -> str:
    """Return the beginning of `text` as one line of at most `width` characters."""
    return shorten(clean(text[: width * 4]), width)


def file_line(file: SentFile) -> str:
    """Describe a sent file on one line: its name, size and path."""
    path = clean(file.path).replace("\n", " ")
    return f"[file] {one_line(file.name, 200)} ({file.size:,} bytes): {path}"


def ways(choices: Iterable[Choice]) -> list[str]:
    """Return a line for each choice, with its label and the text to type."""
    return [f"{one_line(c.label, _LABEL)}: {one_line(c.value, _VALUE)}" for c in choices]


class Question(NamedTuple):
    """A message with buttons to approve or deny. `y` and `n` answer it, and words such as `always`
    for further choices."""

    said: AgentMessage
    yes: Choice
    no: Choice

    def answer(self, typed: str) -> str | None:
        """Return the message for a typed answer, or None if it is none."""
        word = typed.strip().lower()
        for words, choice in self._answers():
            if word in (*words, choice.label.lower(), choice.value.lower()):
                return choice.value
        return None

    def move_to(self, chat: str) -> Question:
        """Return the question after its person has left its `chat`."""
        return self._replace(said=self.said._replace(chat=self.said.chat or chat))

    @property
    def keys(self) -> str:
        """The possible answers, on one line."""
        answers = self._answers()
        return " · ".join(f"{words[0]}: {one_line(one.label, _LABEL)}" for words, one in answers)

    def _answers(self) -> list[tuple[tuple[str, ...], Choice]]:
        """Return each choice with its words. For further choices, that is the last word of their
        message."""
        known = [(("y", "yes"), self.yes), (("n", "no"), self.no)]
        others = [one for one in self.said.choices if one not in (self.yes, self.no)]
        words = (one_line(one.value.rpartition(" ")[2].lower(), _LABEL) for one in others)
        return [*known, *(((word,), one) for word, one in zip(words, others, strict=True))]


def question_of(said: AgentMessage) -> Question | None:
    """Return the question in a message, or None. A question from the person's absence may be
    closed."""
    by_command = {choice.value.partition(" ")[0]: choice for choice in reversed(said.choices)}
    yes, no = by_command.get("/approve"), by_command.get("/deny")
    return Question(said, yes, no) if yes and no and not said.at else None


def columns(text: str) -> int:
    """Return the terminal columns that `text` needs."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(c) in "WF") for c in text)


def wrap_text(text: str, width: int) -> str:
    """Wrap `text` to `width` columns, between words. A list item continues below its first word.

    Blocks indented by four stay unchanged, to keep their alignment, and so do words that are too
    long for a line."""
    width = max(_NARROWEST, width)
    return "\n".join(_wrap_line(line, width) for line in text.split("\n"))


def _wrap_line(line: str, width: int) -> str:
    if line.startswith("    ") or columns(line) <= width:
        return line
    from textwrap import fill

    match = _INDENT.match(line)
    hanging = " " * min(len(match[0]) if match else 0, width // 2)
    return fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


class OutputTail:
    r"""The end of a running tool's output, from pieces of any size. `\r` starts the line again, for
    progress bars."""

    def __init__(self) -> None:
        self._tail = ""
        self._ended = 0

    def feed(self, text: str) -> None:
        """Add output."""
        self._ended += text.count("\n")
        self._tail = (self._tail + text)[-_OUTPUT_KEPT:]

    def lines(self, most: int, width: int) -> list[str]:
        """Return the last `most` lines, each cut to `width` characters, without blank ones at the
        end. If there are more, the first line counts them."""
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
        return [f"… {total - len(kept):,} earlier lines", *kept]
