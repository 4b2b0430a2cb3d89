"""Questions at a terminal that can move its cursor: choose from a list, with the arrow keys, by
number or by part of a name; and type a secret, with only its length shown.

The effect of a key is a pure function (`Menu.after`), separate from the terminal. Lines are redrawn
in place, which needs a terminal that can move its cursor. Without one, callers read whole lines
instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from getpass import getpass
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from nanobot.channel import WentBack
from nanobot.errors import NanobotError
from nanobot_cli.text import columns, one_line, wrapped

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

_LEAVING: Mapping[str, type[BaseException]] = {"c-c": KeyboardInterrupt, "c-d": EOFError}
_BACK: Mapping[str, type[BaseException]] = dict.fromkeys(("escape", "left", "<"), WentBack)
"""Keys that end a choice with an exception."""
_BACKSPACE, _CLEAR, _PASTE = "c-h", "c-u", "<bracketed-paste>"
_ESCAPE_SECONDS = 0.05
"""How long after Escape the rest of a longer key may come, by a slow line."""
_ROWS = 16
"""No more choices than these are shown at a time."""
_BEYOND = 3
"""Rows around them: the question, and what the keys do."""
_HELP = "arrows, number or part of a name; Enter: take, <: back"


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
        """The menu once a key was pressed that neither takes a choice nor goes back: a letter, or
        a name that prompt_toolkit gives it."""
        if key == _BACKSPACE:
            return self._with(self.typed[:-1])
        if key == _CLEAR:
            return self._with("")
        if len(key) == 1:
            return self._with(self.typed + key) if key.isprintable() else self
        left = self.left
        if not left:
            return self
        here = left.index(self.at)
        there = {
            "up": here - 1,
            "down": here + 1,
            "pageup": max(here - self.rows, 0),
            "pagedown": min(here + self.rows, len(left) - 1),
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


async def choose_at_terminal(question: str, choices: Sequence[str], default: int) -> int:
    """Which one the person takes, as an index. Raises `WentBack`, `KeyboardInterrupt` for Ctrl-C
    and `EOFError` for Ctrl-D. What was chosen stays on the screen, in one line."""
    rows = max(3, min(_ROWS, get_terminal_size().lines - _BEYOND))
    menu = Menu(tuple(one_line(one, 200) for one in choices), default, rows=rows)

    def press(key: str) -> None:
        nonlocal menu
        menu = menu.after(key)

    def leave(why: type[BaseException], event: KeyPressEvent) -> None:
        event.app.exit(exception=why)

    def take(event: KeyPressEvent) -> None:
        if menu.left:
            event.app.exit()

    more = {name: partial(leave, why) for name, why in (*_LEAVING.items(), *_BACK.items())}
    lines = lambda: "\n".join(menu.lines(question, get_terminal_size().columns))  # noqa: E731
    await _shown_in_place(lines, press, take, more)
    line = f"{question} {menu.choices[menu.at]}"
    sys.stdout.write(f"{_fitted(line, get_terminal_size().columns)}\n")
    return menu.at


async def secret_at_terminal(prompt: str) -> str:
    """Read a secret and show only the number of its characters: with each key, or afterwards if
    the cursor cannot be moved. Raises `KeyboardInterrupt`, `EOFError`, and `NanobotError` if the
    input is not text."""
    try:
        if can_move_cursor():
            typed = await _read_secret(prompt)
        else:
            typed = getpass(prompt)
            if shown := count_shown(typed.strip()):
                sys.stderr.write(f"{shown}\n")
        typed.encode()
    except UnicodeError:
        raise NanobotError("that is no text", hint="Copy it again, on its own.") from None
    return typed.strip()


async def _read_secret(prompt: str) -> str:
    typed = ""

    def press(key: str) -> None:
        nonlocal typed
        if key == _BACKSPACE:
            typed = typed[:-1]
        elif key == _CLEAR:
            typed = ""
        elif len(key) == 1:
            typed += key

    def leave(why: type[BaseException], event: KeyPressEvent) -> None:
        event.app.exit(exception=why)

    def shown() -> str:
        return wrapped(f"{prompt}{count_shown(typed.strip())}", get_terminal_size().columns - 1)

    more = {name: partial(leave, why) for name, why in _LEAVING.items()}
    await _shown_in_place(shown, press, lambda event: event.app.exit(), more)
    sys.stdout.write(f"{shown()}\n")
    return typed


def count_shown(secret: str) -> str:
    """Return the length of a secret as a text, so that the person can check a paste."""
    return f"•••• {len(secret)} character{'s' if len(secret) > 1 else ''}" if secret else ""


async def _shown_in_place(
    lines: Callable[[], str],
    press: Callable[[str], None],
    take: Callable[[KeyPressEvent], None],
    more: Mapping[str, Callable[[KeyPressEvent], None]],
) -> None:
    """Redraw lines in place after each key, until `take` or one of `more` ends the question. A
    paste arrives as single keys."""
    from prompt_toolkit.application import Application
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.layout import FormattedTextControl, Layout, Window
    from prompt_toolkit.output.vt100 import Vt100_Output

    def pressed(event: KeyPressEvent) -> None:
        key = event.key_sequence[0].key
        for one in event.data if key == _PASTE else [key]:
            press(one)

    keys = KeyBindings()
    for name, act in more.items():
        keys.add(name)(act)
    for name in ("enter", "c-j"):  # a program that types ends a line with the second
        keys.add(name)(take)
    keys.add("c-z")(lambda event: event.app.suspend_to_background())
    keys.add("<any>")(pressed)
    keys.add("escape", "<any>")(lambda _: None)  # Alt and a letter, and sequences nobody knows
    output = Vt100_Output.from_pty(sys.stdout)
    output.enable_cpr = False  # not every terminal answers where its cursor is
    layout = Layout(Window(FormattedTextControl(lines, show_cursor=False)))
    on_screen: Application[None] = Application(
        layout, key_bindings=keys, output=output, erase_when_done=True
    )
    on_screen.ttimeoutlen = on_screen.timeoutlen = _ESCAPE_SECONDS
    await on_screen.run_async(handle_sigint=False)


def can_move_cursor() -> bool:
    """Whether a person is at a terminal where lines can be shown again in their place."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _fitted(line: str, width: int) -> str:
    """As much of a line as a row holds: one that went on in the next would not be erased."""
    if columns(line) < width:
        return line
    while line and columns(line) >= width - 1:
        line = line[:-1]
    return f"{line}…"
