"""Who answers the questions: a person at a terminal, a pipe, or nobody.

What a server or a platform said may be in what is shown, so all of it is cleaned.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanobot.cli.command import print_text
from nanobot.errors import NanobotError
from nanobot_cli.text import clean, one_line

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_LONGEST = 400


class Unanswered(NanobotError):
    """A question that needs an answer got none."""


class Answers:
    """A `nanobot.channel.Person`: answers are typed at a terminal or come line by line from
    elsewhere. Where nobody is there (not `attended`), defaults are taken, and what is said goes to
    standard error."""

    def __init__(self, *, attended: bool = True, terminal: bool | None = None) -> None:
        self._attended = attended
        self._out = sys.stdout if attended else sys.stderr
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._terminal = is_terminal if terminal is None else terminal
        self._session: PromptSession[str] | None = None

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        print_text(f"{text}\n", self._out)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        if not self._attended and default:
            return default
        shown = "keep what is there" if secret and default else one_line(default, 60)
        prompt = f"{question}{f' [{shown}]' if shown else ''}: "
        return (await self._line(prompt, secret=secret)).strip() or default

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        prompt = f"{question} {'[Y/n]' if default else '[y/N]'}: "
        while self._attended and (answer := (await self._line(prompt)).strip().lower()):
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")
            self.say("Please answer y or n.")
        return default

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        if not self._attended:
            return default
        listed = [f"  {at}. {one_line(choice, 200)}" for at, choice in enumerate(choices, start=1)]
        self.say("\n".join([question, *listed]))
        while answer := (await self._line(f"Number [{default + 1}]: ")).strip():
            if answer.isdecimal() and 1 <= int(answer) <= len(choices):
                return int(answer) - 1
            self.say(f"Please type a number from 1 to {len(choices)}.")
        return default

    async def _line(self, prompt: str, *, secret: bool = False) -> str:
        """One line of the person's. Raises `Unanswered` where there are no more."""
        prompt = f"{one_line(prompt, _LONGEST)} "
        if not self._attended:
            hint = "`nanobot onboard --help` lists the options that say it."
            raise Unanswered(f"nobody is there to answer: {prompt}", hint=hint)
        read = self._typed if self._terminal else self._piped
        if line := await read(prompt, secret):
            return line
        raise Unanswered(
            "the answers ended before everything was asked",
            hint="Run `nanobot onboard` again, or use --non-interactive with options.",
        )

    async def _typed(self, prompt: str, secret: bool) -> str:
        if self._session is None:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import DummyHistory

            # Else the key Up would show a secret at the next question.
            self._session = PromptSession(history=DummyHistory())
        try:
            return await self._session.prompt_async(prompt, is_password=secret) + "\n"
        except EOFError:
            return ""

    async def _piped(self, prompt: str, secret: bool) -> str:
        self._out.write(prompt)
        self._out.flush()
        line = sys.stdin.readline()  # nothing else goes on meanwhile
        self._out.write("\n" if secret or not line else f"{clean(line).rstrip()}\n")
        return line
