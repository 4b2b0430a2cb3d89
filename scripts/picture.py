"""Draw the README's conversation: `python -m scripts.picture docs/pictures/chat.svg`.

The conversation is real. `nanobot agent` runs in a separate terminal, with a new home and the
built-in model. The typed texts are below. The final screen is drawn as an SVG without external
resources."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS, ROWS = 88, 60
PATIENCE = 60.0
QUIET = 0.4
"""Seconds without a change after which the screen is at rest."""

PROMPT = ">"
SAID = (
    "My dentist is Dr. Kim, remember that.",
    "/new",
    "Who is my dentist?",
    "/memory why dentist",
)

DULL = [(40, 44, 52), (224, 108, 117), (126, 190, 120), (224, 180, 100)]
DULL += [(97, 165, 235), (190, 130, 220), (86, 182, 194), (171, 178, 191)]
BRIGHT = [(110, 118, 132), *DULL[1:7], (255, 255, 255)]
THEME = TerminalTheme((24, 27, 34), (214, 218, 226), DULL, BRIGHT)

# From rich, without its remote font.
PAGE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Terminal:
    """A program on a screen."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)

    def type(self, text: str) -> None:
        """Type a text and press Enter."""
        os.write(self._descriptor, text.encode() + b"\r")

    def wait(self) -> None:
        """Wait until the prompt is back and the screen is at rest. Raise `TimeoutError`."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self._descriptor], [], [], QUIET)
            if readable:
                self._stream.feed(os.read(self._descriptor, 65_536))
            elif self.lines and self.lines[-1] == PROMPT:
                return
        raise TimeoutError("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """Return the lines of the screen without empty ones."""
        return [line.rstrip() for line in self.screen.display if line.strip()]


@contextmanager
def chat(home: str) -> Iterator[Terminal]:
    """Run `nanobot agent` in a terminal."""
    pid, descriptor = pty.fork()
    if pid == 0:
        size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm-256color"}
        size["PROMPT_TOOLKIT_NO_CPR"] = "1"  # no queries to the terminal
        environ = os.environ | size | {"NANOBOT_HOME": home}
        os.execve(sys.executable, [sys.executable, "-m", "nanobot", "agent"], environ)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        yield Terminal(descriptor)
    finally:
        os.kill(pid, signal.SIGTERM)
        os.close(descriptor)
        os.waitpid(pid, 0)


def draw(screen: pyte.Screen) -> Text:
    """Return the contents of a screen, up to its last line."""
    filled = [row for row in range(ROWS) if screen.display[row].strip()]
    lines = []
    for row in range(filled[-1] + 1):
        line = Text()
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            line.append(cell.data, _style(cell))
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines[:-1])  # without the waiting prompt


def _style(cell: pyte.screens.Char) -> Style:
    front, back = (_colour(cell.fg), _colour(cell.bg))
    return Style(
        color=front,
        bgcolor=back,
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str | None:
    """Return rich's name of a colour, or None for the default."""
    if name == "default":
        return None
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    return {"brown": "yellow", "brightblack": "bright_black"}.get(name, name)


def main() -> int:
    """Have the conversation and draw it."""
    with tempfile.TemporaryDirectory() as home, chat(home) as terminal:
        terminal.wait()
        for text in SAID:
            terminal.type(text)
            terminal.wait()
        picture = draw(terminal.screen)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(picture, soft_wrap=True)
    svg = console.export_svg(title="nanobot agent", theme=THEME, code_format=PAGE, unique_id="chat")
    Path(sys.argv[1]).write_text(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
