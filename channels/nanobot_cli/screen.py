"""Standard output in two parts: a permanent part that is printed, and below it a live part with the
prompt, which is drawn again and again.

A window that becomes narrower wraps the lines of the live part, which then take more rows than were
drawn. `Surface` counts these rows, so that it erases exactly the live part. tmux also wraps cells
that were erased since, so there each row counts with its largest width. While the size changes,
nothing is written, because a terminal may have another size than it reports."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import is_dumb_terminal

from nanobot.text import clean
from nanobot_cli.markdown import apply_styles, wrap_lines

PROMPT = "> "
_BAR = "▌ "
"""Begins the lines of the person's messages, which a `>` would show as a quote."""

_SEQUENCE = re.compile("\x1b\\[[0-9;]*m")
_COLOUR = re.compile("\x1b\\[(?![01239]m)[0-9;]*m")
"""Sequences that are removed for a dumb terminal, or if `NO_COLOR` is set (no-color.org)."""

_RESIZE_SECONDS = 0.4  # tmux reports a second change a quarter of a second late


class Output(Vt100_Output):
    """The output of the live part."""

    is_muted = False

    @classmethod
    def of_terminal(cls) -> Vt100_Output:
        """Return the output for this terminal."""
        term = os.environ.get("TERM")
        return cls.from_pty(sys.stdout, term, ColorDepth.from_env())

    def flush(self) -> None:
        """Write what was drawn, or drop it."""
        if self.is_muted:
            self._buffer.clear()
        super().flush()

    def erase_down(self) -> None:
        """Erase this row, then those below: tmux would keep the text of a screen that is erased
        from its first cell."""
        self.write_raw("\x1b7\x1b[K\x1b[B\x1b[J\x1b8")


class Surface:
    """Standard output, above the prompt of a running application.

    A dumb terminal has no live part: input and output follow each other, and a new prompt is
    written when it is the person's turn."""

    def __init__(self) -> None:
        self.moves = not is_dumb_terminal()
        has_colours = self.moves and not os.environ.get("NO_COLOR")
        self._unwanted = None if has_colours else _COLOUR if self.moves else _SEQUENCE
        self._bar = _BAR if has_colours and _can_show(_BAR) else PROMPT
        # A few terminals cut the lines in a narrower window. All others wrap them.
        cuts = (
            bool({"XTERM_VERSION", "STY"} & os.environ.keys()) or os.environ.get("TERM") == "linux"
        )
        self._keeps_widths = "TMUX" in os.environ
        self._wraps = self._keeps_widths or not cuts
        self._drawn_size: Size | None = None
        self._seen_size: Size | None = None
        self._resizing: asyncio.TimerHandle | None = None
        self._left: tuple[Screen, Point] | None = None
        """The live part and its cursor before a change of the size."""
        self._held: list[str] = []
        """Texts to print after it."""
        self._widths: dict[int, int] = {}
        self._app: Application[Any] | None = None
        self._at_prompt = False
        self.ends_blank = True
        """True if the permanent part ends with a blank line, or is empty."""

    def attach(self, app: Application[Any]) -> None:
        """Set the application that draws the prompt, after it has begun to."""
        self._app = app
        self._at_prompt = not self.moves
        app.terminal_size_polling_interval = None
        app.before_render += self._watch_resize
        app.after_render += self._note_drawing

    def close(self) -> None:
        """Handle the end of the application."""
        self._end_resizing()

    def watch_size(self) -> None:
        """Draw the live part again when the window has another size, in place of the
        application, which would erase it first."""
        if self.moves:
            asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._redraw_resized)

    def print(self, text: str) -> None:
        """Add to the permanent part: the prompt is erased, and soon drawn again below. `text` has
        passed `clean` and may contain styles. The terminal wraps it if it is too wide."""
        self.ends_blank = not text.rpartition("\n")[2].strip()
        if self._at_prompt:
            self.end_typed_line()
        elif self._app is not None and self.moves and not self._erase(self._app):
            self._held.append(text)
            return
        _write(self.paint(text) + "\n")
        self.redraw()

    def _erase(self, app: Application[Any]) -> bool:
        """Erase the live part. Return False while the size changes."""
        self._watch_resize(app)
        if not app.is_running:
            self.close()
        elif self._left is None:
            app.renderer.erase(leave_alternate_screen=False)
            self._widths.clear()
        return self._left is None

    def leave_gap(self) -> None:
        """Separate the next text by a blank line."""
        if not self.ends_blank:
            self.print("")

    def print_words(self, text: str) -> None:
        """Print a message of the person, unless the prompt has left it on the screen."""
        self.end_typed_line()
        if not self.moves:
            return
        self.leave_gap()
        bar = apply_styles(self._bar.rstrip(), "cyan") + " "
        lines = wrap_lines(clean(text), max(1, self.width - len(self._bar)))
        self.print("\n".join(bar + line for line in lines))

    def paint(self, text: str) -> str:
        """Return `text` without the styles that the terminal should not get."""
        return self._unwanted.sub("", text) if self._unwanted else text

    def end_typed_line(self) -> None:
        """Handle Enter: a dumb terminal keeps the typed line."""
        if not self.moves:
            self._at_prompt, self.ends_blank = False, False
            _write("\n")

    def show_prompt(self) -> None:
        """Begin the person's turn."""
        if not self.moves and not self._at_prompt:
            self._at_prompt = True
            _write(PROMPT)

    def redraw(self) -> None:
        """Draw the live part again."""
        if self._app is not None and self._app.is_running:
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

    def _redraw_resized(self) -> None:
        if self._app is not None:
            self._watch_resize(self._app)
            self.redraw()

    def _watch_resize(self, app: Application[Any]) -> None:
        """Stop to write if the window has another size than at the last drawing, until its size has
        not changed for a moment."""
        drawn, size = app.renderer.last_rendered_screen, app.output.get_size()
        if self._left is None:
            if drawn is None or size == self._drawn_size:
                return
            self._left = drawn, drawn.get_cursor_position(app.layout.current_window)
            self._mute(app, is_muted=True)
        elif size == self._seen_size:
            return
        self._seen_size = size
        if self._resizing is not None:
            self._resizing.cancel()
        later = asyncio.get_running_loop().call_later
        self._resizing = later(_RESIZE_SECONDS, self._end_resizing)

    def _end_resizing(self) -> None:
        """Erase the live part as it was, and write again."""
        app, left = self._app, self._left
        if app is None or left is None:
            return
        self._resizing = self._left = None
        (drawn, cursor), output = left, app.output
        width = output.get_size().columns if self._wraps else sys.maxsize
        rows = cursor.x // width
        for row in range(cursor.y):
            rows += max(1, -(-max(_width(drawn, row), self._widths.get(row, 0)) // width))
        app.renderer.reset()
        self._mute(app, is_muted=False)
        output.write_raw("\r")
        output.cursor_up(rows)
        output.erase_down()
        output.flush()
        self._widths.clear()
        held, self._held = self._held, []
        for text in held:
            self.print(text)
        self.redraw()

    def _mute(self, app: Application[Any], *, is_muted: bool) -> None:
        if isinstance(app.output, Output):
            app.output.flush()
            app.output.is_muted = is_muted

    def _note_drawing(self, app: Application[Any]) -> None:
        if self._left is not None:
            return
        drawn, self._drawn_size = app.renderer.last_rendered_screen, app.output.get_size()
        if drawn is not None and self._keeps_widths:
            for row in range(drawn.height):
                self._widths[row] = max(_width(drawn, row), self._widths.get(row, 0))


def _width(drawn: Screen, row: int) -> int:
    """Return the columns of a row that are not blank at the end."""
    cells = drawn.data_buffer[row].items()
    return max((x + cell.width for x, cell in cells if cell.char.strip()), default=0)


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
