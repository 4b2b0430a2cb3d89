"""A QR code as text for a terminal: two modules in a character, one above the other.

What always holds: dark modules are dark and light ones light, on terminals with a dark background
and with a light one, because a phone may not read a code whose colours are swapped. Where colours
would be litter (in a file, a pipe), the characters themselves are printed, for a dark background.
"""

from __future__ import annotations

from collections.abc import Callable

_QUIET = 2
"""Modules of light margin. The standard wants four; phones need two, and lines are scarce."""

_BLACK_ON_WHITE = "\x1b[38;5;16;48;5;231m"
_NORMAL = "\x1b[0m"

_DARK = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}
"""The character that is inked where the modules above and below are dark."""


def drawn(data: str, *, coloured: bool) -> tuple[str, ...]:
    """The lines of a QR code that holds `data`: `coloured` with the terminal's black and white,
    else by leaving out what is dark. Raises `ValueError` for more than a code can hold."""
    import segno

    code = segno.make_qr(data, error="l", boost_error=False)
    rows = [[bool(module) for module in row] for row in code.matrix_iter(border=_QUIET)]
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    if coloured:
        return tuple(
            f"{_BLACK_ON_WHITE}{''.join(map(_inked, upper, lower))}{_NORMAL}"
            for upper, lower in pairs
        )
    return tuple("".join(map(_left_out, upper, lower)) for upper, lower in pairs)


def _inked(upper: bool, lower: bool) -> str:
    return _DARK[upper, lower]


def _left_out(upper: bool, lower: bool) -> str:
    return _DARK[not upper, not lower]


class Screen:
    """Where a person reads what to do. On a terminal (`is_terminal`) the next code takes the place
    of the last; elsewhere it is printed below. `size` gives the terminal's columns and lines."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        is_terminal: bool = False,
        size: Callable[[], tuple[int, int]] = lambda: (80, 24),
    ) -> None:
        self._say, self._is_terminal, self._size = say, is_terminal, size
        self._standing = 0
        self._said = ""

    def say(self, text: str) -> None:
        """Print a text."""
        self._standing = 0
        self._say(text)

    def show(self, data: str) -> None:
        """Show the QR code of `data`, or say that the window is too small for it. Raises
        `ValueError` for more than a code can hold."""
        lines = drawn(data, coloured=self._is_terminal)
        wide, high = len(lines[0]) - len(_BLACK_ON_WHITE + _NORMAL), len(lines) + 1
        columns, height = self._size() if self._is_terminal else (wide, high)
        advice = (
            f"The code needs {wide} columns and {high} lines; this window has {columns} and"
            f" {height}: make the window larger or its letters smaller (the next code comes within"
            " a minute), or press Ctrl-C and use --pair-code NUMBER."
        )
        if columns < wide:  # lines that are broken are no code
            self._advise(advice)
            return
        back = f"\x1b[{self._standing}F\x1b[J" if self._standing else ""
        self._say(back + "\n".join(lines))
        if height < high:  # said last, as what stands above is out of sight
            self._said = ""
            self._advise(advice)
        else:
            self._standing = len(lines) if self._is_terminal else 0

    def _advise(self, advice: str) -> None:
        self._standing = 0
        if advice != self._said:
            self._said = advice
            self._say(advice)
