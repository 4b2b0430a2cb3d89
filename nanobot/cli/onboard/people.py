"""Who answers the questions: a person at a terminal, a pipe, or nobody.

What a server or a platform said may be in what is shown, so all of it is cleaned.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from nanobot.cli.command import print_text
from nanobot.errors import NanobotError
from nanobot_cli.text import one_line

_LONGEST = 400


class Unanswered(NanobotError):
    """A question that needs an answer got none."""


class Answers:
    """A `nanobot.channel.Person` whose answers are typed at a terminal or come line by line from
    elsewhere. Where nobody is there (not `attended`), defaults are taken, and what is said goes to
    standard error."""

    def __init__(self, *, attended: bool = True) -> None:
        self._attended = attended
        self._out = sys.stdout if attended else sys.stderr

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        print_text(f"{text}\n", self._out)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        if not self._attended and default:
            return default
        shown = "keep what is there" if secret and default else one_line(default, 60)
        prompt = f"{question}{f' [{shown}]' if shown else ''}: "
        return self._line(prompt, secret=secret) or default

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        prompt = f"{question} {'[Y/n]' if default else '[y/N]'}: "
        while self._attended and (answer := self._line(prompt).lower()):
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")
            self.say("Please answer y or n.")
        return default

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        if not self._attended:
            return default
        listed = [f"  {at}. {one_line(choice, 200)}" for at, choice in enumerate(choices, start=1)]
        self.say("\n".join([question, *listed]))
        while answer := self._line(f"Number [{default + 1}]: "):
            if answer.isdecimal() and 1 <= int(answer) <= len(choices):
                return int(answer) - 1
            self.say(f"Please type a number from 1 to {len(choices)}.")
        return default

    def _line(self, prompt: str, *, secret: bool = False) -> str:
        """One line of the person's, for which everything waits. A secret is neither shown nor kept
        for the key Up. Raises `Unanswered` where there are no more."""
        prompt = f"{one_line(prompt, _LONGEST)} "
        if not self._attended:
            hint = "`nanobot onboard --help` lists the options that say it."
            raise Unanswered(f"nobody is there to answer: {prompt}", hint=hint)
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if is_terminal:
            import readline  # noqa: F401 - editing, and earlier answers by the key Up
        from getpass import getpass

        handler = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the loop's waits for the line
        try:
            return (getpass(prompt) if secret and is_terminal else input(prompt)).strip()
        except EOFError:
            raise Unanswered(
                "the answers ended before everything was asked",
                hint="Run `nanobot onboard` again, or use --non-interactive with options.",
            ) from None
        except UnicodeDecodeError:  # of a secret: what is not is read with replacements
            raise NanobotError("that is no text", hint="Copy it again, on its own.") from None
        finally:
            signal.signal(signal.SIGINT, handler)
            if not is_terminal:
                self.say("")  # what came from elsewhere was not echoed
