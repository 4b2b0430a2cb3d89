"""Questions to a person at a terminal or a pipe.

All output is cleaned, because it may contain text of a server or a platform."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from getpass import getpass

from nanobot.app.setup.questions import NoAnswer
from nanobot.channel import WentBack
from nanobot.cli.command import print_text
from nanobot.errors import NanobotError
from nanobot_cli.text import one_line

_LONGEST = 400
_LISTED = 20  # the most choices that are listed at a time


def matching(choices: Sequence[str], typed: str) -> list[int]:
    """Return the indices of the choices with all words of `typed`, in any case. An exact match is
    the only result."""
    words, low = typed.lower().split(), [choice.lower() for choice in choices]
    found = [at for at, choice in enumerate(low) if all(one in choice for one in words)]
    return [at for at in found if low[at] == typed.lower()] or found


def read_secret(prompt: str) -> str:
    """Read a secret without showing it, then show its length, so that the person can check a paste.
    Raises `KeyboardInterrupt`, `EOFError`, and `NanobotError` if the input is not text."""
    try:
        typed = getpass(prompt).strip()
        typed.encode()
    except UnicodeError:
        raise NanobotError(
            "the input is not text", hint="Copy only the value, and paste it again."
        ) from None
    if typed:
        sys.stderr.write(f"{count_shown(typed)}\n")
    return typed


def count_shown(secret: str) -> str:
    """Return the length of a secret as a text, or an empty text."""
    return secret and f"•••• {len(secret)} character{'s' if len(secret) > 1 else ''}"


class Answers:
    """A `nanobot.channel.Person` at a terminal or behind a pipe. If not `attended`, the defaults
    are the answers, and messages go to standard error. `back`: the answer `<` goes back."""

    def __init__(self, *, attended: bool = True, back: bool = False) -> None:
        self._attended, self._back = attended, "<" if back else None
        self._out = sys.stdout if attended else sys.stderr

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        print_text(f"{text}\n", self._out)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        if not self._attended and default:
            return default
        shown = "keep the current value" if secret and default else one_line(default, 60)
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
        """Accept a number, or part of a name. If several choices match, list only these."""
        if not self._attended:
            return default
        left = [*range(len(choices))]
        while True:
            lines = [f"  {at + 1}. {one_line(choices[at], 200)}" for at in left[:_LISTED]]
            if (more := len(left) - _LISTED) > 0:
                lines.append(f"  … and {more} more: type part of a name to list the matches")
            self.say("\n".join([question, *lines]))
            answer = self._line(f"Number, or part of a name [{default + 1}]: ")
            if not answer:
                return default
            if answer.isdecimal() and 1 <= int(answer) <= len(choices):
                return int(answer) - 1
            found = matching(choices, answer)
            if len(found) == 1:
                self.say(one_line(choices[found[0]], 200))
                return found[0]
            if found:
                left, default = found, found[0]
            else:
                self.say(f"No match. Type part of a name, or a number from 1 to {len(choices)}.")

    def _line(self, prompt: str, *, secret: bool = False) -> str:
        """Read one line from the person, blocking everything else. Raises `NoAnswer` at the end
        of the input."""
        prompt = f"{one_line(prompt, _LONGEST)} "
        if not self._attended:
            hint = "Pass the answer as an option (see `nanobot onboard --help`)."
            raise NoAnswer(f"an answer is required: {prompt}", hint=hint)
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if is_terminal:
            import readline  # noqa: F401 - editing, and earlier answers by the key Up
        # Let Ctrl-C end the input: the event loop's handler would wait for the answer.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            typed = read_secret(prompt) if secret and is_terminal else input(prompt).strip()
        except EOFError:
            hint = "Run `nanobot onboard` again, or use --non-interactive with options."
            raise NoAnswer("the input ended before the last question", hint=hint) from None
        finally:
            signal.signal(signal.SIGINT, handler)
        if not is_terminal:  # the line was not echoed
            self.say(count_shown(typed) if secret else "")
        if typed == self._back:
            raise WentBack
        return typed
