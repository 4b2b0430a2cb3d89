"""Choosing one of a list at a terminal: with the arrow keys, by number, or by part of a name.

What a key does is a function of values (`Menu.after`); the terminal is around it. Lines are shown
again in their place, which needs a terminal that can move its cursor; where there is none, whoever
asks reads whole lines instead.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Literal, TextIO

from msgspec import Struct
from msgspec.structs import replace

from nanobot.channel import WentBack
from nanobot_cli.text import columns, one_line

Key = Literal["up", "down", "page up", "page down", "home", "end", "enter", "back", "erase"]
"""What a key means; a letter means itself."""

_KEYS: dict[str, Key] = {
    "\x1b[A": "up", "\x1bOA": "up", "\x10": "up",
    "\x1b[B": "down", "\x1bOB": "down", "\x0e": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\r": "enter", "\n": "enter",
    "\x1b": "back", "\x1b[D": "back", "\x1bOD": "back", "<": "back",
    "\x7f": "erase", "\x08": "erase",
}  # fmt: skip
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]|.", re.DOTALL)
_REST_SECONDS = 0.05
_ROWS = 16
"""No more choices than these are shown at a time."""
_BEYOND = 3
"""Rows around them: the question, and what the keys do."""
_HELP = "arrows, a number or part of a name; Enter takes it, < goes back"


def matching(choices: Sequence[str], typed: str) -> list[int]:
    """Which of the choices have all words of `typed` in them, whatever their case."""
    words = typed.lower().split()
    return [at for at, choice in enumerate(choices) if all(one in choice.lower() for one in words)]


class Menu(Struct, frozen=True):
    """Choices, of which the one `at` an index is marked, and what was `typed`. A number that one of
    them has marks it; other words leave those that have them."""

    choices: tuple[str, ...]
    at: int = 0
    typed: str = ""
    rows: int = _ROWS

    @property
    def left(self) -> list[int]:
        """The indices of the choices that are left."""
        if self._number is not None:
            return list(range(len(self.choices)))
        return matching(self.choices, self.typed)

    def after(self, key: str) -> Menu:
        """The menu once a key was pressed that neither takes a choice nor goes back."""
        if key == "erase":
            return self._with(self.typed[:-1])
        if len(key) == 1:
            return self._with(self.typed + key) if key.isprintable() else self
        left = self.left
        if not left:
            return self
        here = left.index(self.at)
        there = {
            "up": here - 1,
            "down": here + 1,
            "page up": max(here - self.rows, 0),
            "page down": min(here + self.rows, len(left) - 1),
            "home": 0,
            "end": len(left) - 1,
        }.get(key, here)
        return replace(self, at=left[there % len(left)])

    def lines(self, question: str, width: int) -> list[str]:
        """What is shown, each line at most so wide."""
        left = self.left
        here = left.index(self.at) if left else 0
        first = max(0, min(here - self.rows // 2, len(left) - self.rows))
        digits = len(str(len(self.choices)))
        shown = [
            f"{'>' if at == self.at else ' '} {at + 1:{digits}}. {self.choices[at]}"
            for at in left[first : first + self.rows]
        ]
        count = f"{len(left)} of {len(self.choices)}" if len(left) < len(self.choices) else ""
        hidden = f"{len(left)} in all" if len(left) > self.rows else ""
        notes = "; ".join(note for note in (count or hidden, _HELP) if note)
        shown = shown or ["  nothing has that in its name"]
        rows = [f"{question} {self.typed}".rstrip(), *shown, f"({notes})"]
        return [_fitted(row, width) for row in rows]

    @property
    def _number(self) -> int | None:
        """The index that a typed number stands for."""
        is_one = self.typed.isdecimal() and 1 <= int(self.typed) <= len(self.choices)
        return int(self.typed) - 1 if is_one else None

    def _with(self, typed: str) -> Menu:
        menu = replace(self, typed=typed)
        if menu._number is not None:
            return replace(menu, at=menu._number)
        left = menu.left
        return menu if self.at in left or not left else replace(menu, at=left[0])


def choose_at_terminal(question: str, choices: Sequence[str], default: int) -> int:
    """Which one the person takes, as an index. Raises `WentBack`, and `KeyboardInterrupt` for
    Ctrl-C. What was chosen stays on the screen, in one line."""
    rows = max(3, min(_ROWS, get_terminal_size().lines - _BEYOND))
    menu = Menu(tuple(one_line(one, 200) for one in choices), default, rows=rows)
    drawn = 0
    with _single_keys(sys.stdin) as keys:
        while True:
            width = get_terminal_size().columns
            drawn = _draw(menu.lines(question, width), drawn)
            key = _KEYS.get(pressed := next(keys), pressed)
            if key == "back":
                _draw([], drawn)
                raise WentBack
            if key != "enter":
                menu = menu.after(key)
            elif menu.left:
                _draw([_fitted(f"{question} {menu.choices[menu.at]}", width)], drawn)
                return menu.at


def can_move_cursor() -> bool:
    """Whether a person is at a terminal where lines can be shown again in their place."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _draw(lines: Sequence[str], drawn: int) -> int:
    """Show lines in the place of the `drawn` ones before; how many they are."""
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stdout.write(f"{up}\r\x1b[J" + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return len(lines)


def _fitted(line: str, width: int) -> str:
    """As much of a line as a row holds: one that went on in the next would not be erased."""
    if columns(line) < width:
        return line
    while line and columns(line) >= width - 1:
        line = line[:-1]
    return f"{line}…"


@contextmanager
def _single_keys(keyboard: TextIO) -> Iterator[Iterator[str]]:
    """The keys as they are pressed, unseen; the terminal is as it was afterwards."""
    import termios
    import tty

    number = keyboard.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield _keys(number)
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(number, termios.TCSADRAIN, before)


def _keys(number: int) -> Iterator[str]:
    """Each key as its characters. Raises `EOFError` where there are no more, and for Ctrl-D."""
    from select import select

    while data := os.read(number, 1_024):
        if data == b"\x1b" and select([number], [], [], _REST_SECONDS)[0]:
            data += os.read(number, 1_024)  # the rest of a sequence, by a slow line
        for key in split_keys(data.decode("utf-8", "ignore")):
            if key == "\x04":
                raise EOFError
            yield key
    raise EOFError


def split_keys(text: str) -> Iterator[str]:
    """The keys in what a terminal sent, which may be several; those that mean nothing here are left
    out, lest the letters in them be taken for typed ones."""
    for found in _SEQUENCE.finditer(text):
        key = found[0]
        if key in _KEYS or len(key) == 1:
            yield key
