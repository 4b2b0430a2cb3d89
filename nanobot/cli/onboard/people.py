"""Who answers the questions: a person at a terminal, a pipe, or nobody.

What a server or a platform said may be in what is shown, so all of it passes `clean`.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from nanobot.channel.entry_points import Person
from nanobot.errors import NanobotError
from nanobot_cli.text import clean, one_line

if TYPE_CHECKING:
    from typing import TextIO

    from prompt_toolkit import PromptSession

_WIDEST = 88
_LONGEST_CHOICE = 200
_BEGIN = re.compile(r" *(?:[0-9]+\. )?")
"""What stands before the text of a line."""
_KEPT = "keep what is there"
_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


class Unanswered(NanobotError):
    """A question that needs an answer got none."""


class Guide(Person, Protocol):
    """Whoever is asked, and told where a step begins."""

    def head(self, text: str) -> None:
        """Begin a step."""
        ...


class Asking(ABC):
    """Questions in words, the same wherever the answers come from."""

    _out: TextIO

    @abstractmethod
    async def _line(self, prompt: str, *, secret: bool) -> str:
        """One line of the person's. Raises `Unanswered` where there are no more."""

    def say(self, text: str) -> None:
        """Tell something, at the width of the terminal; what does not fit goes on where its line
        began, or its text in a list. Rows of a table stay whole: there are commands in them."""
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        for line in clean(text).split("\n"):
            self._out.write(f"{_filled(line, width)}\n")
        self._out.flush()

    def head(self, text: str) -> None:
        """Begin a step."""
        self.say(f"\n{text}\n{'-' * len(text)}")

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        shown = _KEPT if secret and default else one_line(default, 60)
        prompt = _prompt(f"{one_line(question, 200)}{f' [{shown}]' if shown else ''}:")
        return (await self._line(prompt, secret=secret)).strip() or default

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        prompt = _prompt(f"{one_line(question, 400)} {'[Y/n]' if default else '[y/N]'}:")
        while True:
            answer = (await self._line(prompt, secret=False)).strip().lower()
            if not answer:
                return default
            if answer in _YES | _NO:
                return answer in _YES
            self.say("Please answer y or n.")

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        self.say(question)
        places = len(str(len(choices)))
        for number, choice in enumerate(choices, start=1):
            self.say(f"  {number:>{places}}. {one_line(choice, _LONGEST_CHOICE)}")
        prompt = f"Number [{default + 1}]: "
        while True:
            answer = (await self._line(prompt, secret=False)).strip()
            if not answer:
                return default
            if answer.isdecimal() and 1 <= int(answer) <= len(choices):
                return int(answer) - 1
            self.say(f"Please type a number from 1 to {len(choices)}.")


class AtTerminal(Asking):
    """A person who types."""

    def __init__(self) -> None:
        self._out = sys.stdout
        self._session: PromptSession[str] | None = None

    def head(self, text: str) -> None:
        self._out.write(f"\n\x1b[1m{clean(text)}\x1b[0m\n")
        self._out.flush()

    async def _line(self, prompt: str, *, secret: bool) -> str:
        if self._session is None:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import DummyHistory

            # Else the key Up would show a secret at the next question.
            self._session = PromptSession(history=DummyHistory())
        try:
            return await self._session.prompt_async(prompt, is_password=secret)
        except EOFError:
            raise _over() from None


class Piped(Asking):
    """Answers that come line by line from elsewhere."""

    def __init__(self) -> None:
        self._out = sys.stdout

    async def _line(self, prompt: str, *, secret: bool) -> str:
        self._out.write(prompt)
        self._out.flush()
        line = sys.stdin.readline()  # nothing else goes on meanwhile
        self._out.write("\n" if secret or not line else f"{clean(line).rstrip()}\n")
        if not line:
            raise _over()
        return line


class Nobody(Asking):
    """Defaults are taken, what is said goes to standard error, and an answer cannot be had."""

    def __init__(self) -> None:
        self._out = sys.stderr

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        return default or await self._line(question, secret=secret)

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        return default

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        return default

    async def _line(self, prompt: str, *, secret: bool) -> str:
        raise Unanswered(
            f"nobody is there to answer: {prompt}",
            hint="`nanobot onboard --help` lists the options that say it.",
        )


def somebody(*, attended: bool) -> Guide:
    """Who is there."""
    if not attended:
        return Nobody()
    return AtTerminal() if sys.stdin.isatty() and sys.stdout.isatty() else Piped()


def _prompt(question: str) -> str:
    """The question in lines that the terminal need not break, with room for a short answer."""
    return f"{_filled(question, min(shutil.get_terminal_size().columns, _WIDEST) - 8)} "


def _filled(line: str, width: int) -> str:
    start = _BEGIN.match(line)
    begun = start.end() if start and line.startswith(" ") else 0
    if begun and "  " in line[begun:]:
        return line
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * begun,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _over() -> Unanswered:
    return Unanswered(
        "the answers ended before everything was asked",
        hint="Run `nanobot onboard` again, or use --non-interactive with options.",
    )
