"""Standard output in two parts: a permanent part that is printed, and below it a live part with the
prompt, which is drawn again and again."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.utils import is_dumb_terminal

from nanobot.text import clean
from nanobot_cli.markdown import apply_styles, wrap_lines

PROMPT = "> "
_BAR = "▌ "
"""Begins the lines of the person's messages, which a `>` would show as a quote."""

_SEQUENCE = re.compile("\x1b\\[[0-9;]*m")
_COLOUR = re.compile("\x1b\\[(?![01239]m)[0-9;]*m")
"""Sequences that are removed for a dumb terminal, or if `NO_COLOR` is set (no-color.org)."""


class Surface:
    """Standard output, above the prompt of a running application.

    A dumb terminal has no live part: input and output follow each other, and a new prompt is
    written when it is the person's turn."""

    def __init__(self) -> None:
        self.moves = not is_dumb_terminal()
        has_colours = self.moves and not os.environ.get("NO_COLOR")
        self._unwanted = None if has_colours else _COLOUR if self.moves else _SEQUENCE
        self._bar = _BAR if has_colours and _can_show(_BAR) else PROMPT
        # xterm cuts lines that are too long for a narrower window. All others wrap them.
        self._wraps = "XTERM_VERSION" not in os.environ and os.environ.get("TERM") != "linux"
        self._app: Application[Any] | None = None
        self._at_prompt = False
        self.ends_blank = True
        """True if the permanent part ends with a blank line, or is empty."""

    def attach(self, app: Application[Any]) -> None:
        """Set the application that draws the prompt, after it has begun to."""
        self._app = app
        self._at_prompt = not self.moves

    def watch_size(self) -> None:
        """Draw the live part again when the window has another size, in place of the
        application."""
        if self.moves:
            asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._resize)

    def print(self, text: str) -> None:
        """Add to the permanent part: the prompt is erased, and soon drawn again below. `text` has
        passed `clean` and may contain styles. The terminal wraps it if it is too wide."""
        drawn = self._app is not None and self._app.is_running
        if self._at_prompt:
            self.line_was_typed()
        elif self._app is not None and drawn and self.moves:
            self._app.renderer.erase(leave_alternate_screen=False)
        _write(self.paint(text) + "\n")
        self.ends_blank = not text.rpartition("\n")[2].strip()
        if drawn:
            self.redraw()

    def leave_gap(self) -> None:
        """Separate the next text by a blank line."""
        if self.moves and not self.ends_blank:
            self.print("")

    def print_words(self, text: str) -> None:
        """Print a message of the person, unless the prompt has left it on the screen."""
        self.line_was_typed()
        if not self.moves:
            return
        self.leave_gap()
        bar = apply_styles(self._bar.rstrip(), "cyan") + " "
        lines = wrap_lines(clean(text), max(1, self.width - len(self._bar)))
        self.print("\n".join(bar + line for line in lines))

    def paint(self, text: str) -> str:
        """Return `text` without the styles that the terminal should not get."""
        return self._unwanted.sub("", text) if self._unwanted else text

    def line_was_typed(self) -> None:
        """Handle Enter: a dumb terminal keeps the typed line."""
        if self._at_prompt:
            self._at_prompt = False
            _write("\n")

    def show_prompt(self) -> None:
        """Begin the person's turn."""
        if not self.moves and not self._at_prompt:
            self._at_prompt = True
            _write(PROMPT)

    def redraw(self) -> None:
        """Draw the live part again."""
        if self._app is not None:
            self._app.invalidate()

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        size = shutil.get_terminal_size()
        return size.lines, size.columns

    @property
    def width(self) -> int:
        """Columns."""
        return self.size[1]

    def _resize(self) -> None:
        """Erase the live part. In a narrower window, its lines take more rows than were drawn."""
        app = self._app
        if app is None or not app.is_running:
            return
        drawn, output = app.renderer.last_rendered_screen, app.output
        if drawn is not None:
            cursor = drawn.get_cursor_position(app.layout.current_window)
            width = output.get_size().columns if self._wraps else sys.maxsize
            rows = cursor.x // width
            for number in range(cursor.y):
                cells = drawn.data_buffer[number].items()
                end = max((x + cell.width for x, cell in cells if cell.char.strip()), default=0)
                rows += max(1, -(-end // width))
            output.write_raw("\r")
            output.cursor_up(rows)
            output.erase_down()
            output.flush()
        app.renderer.reset()
        app.invalidate()


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
