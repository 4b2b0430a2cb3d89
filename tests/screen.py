"""`nanobot agent` on the screen of a terminal, for tests that look at what a person sees, and for
the pictures of the docs (`scripts.picture`).

The program runs on a real pseudo-terminal. `pyte` keeps its screen, with everything that scrolled
out at the top. Screens are drawn as SVG without external resources."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import groupby

import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PATIENCE = 25.0
"""Seconds until a test gives up. No test waits for time to pass."""
QUIET = 0.3
"""Seconds without output after which a screen is at rest."""

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


class ChatScreen:
    """A running program and its screen of `columns` and `rows`."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int, size: tuple[int, int]):
        self.process, self._descriptor = process, descriptor
        columns, rows = size
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.001)
        self._stream = pyte.ByteStream(self.screen)
        self._news = asyncio.Event()
        self.ended = False
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def type(self, keys: str) -> None:
        """Press keys. `\\r` is Enter."""
        os.write(self._descriptor, keys.encode())

    def paste(self, text: str) -> None:
        """Paste a text, as a terminal with bracketed paste does."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal. The program gets the signal."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    async def wait_for(self, wanted: str | Callable[[ChatScreen], bool]) -> None:
        """Wait until a text is on the screen, or the condition is true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (wanted in self.text if isinstance(wanted, str) else wanted(self)):
                    assert not self.ended, f"it ended without {wanted!r}:\n{self.everything}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"not shown: {wanted!r}:\n{self.everything}") from None

    async def rest(self) -> None:
        """Wait until the screen stays the same, except for what moves while one waits: a spinner
        and seconds."""
        while not self.ended:
            seen = _without_motion(self.text)
            await asyncio.sleep(QUIET)
            if seen == _without_motion(self.text):
                return

    @property
    def text(self) -> str:
        """The screen, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def everything(self) -> str:
        """The screen, and everything that has scrolled out of it."""
        columns = range(self.screen.columns)
        gone = [
            "".join(line[column].data for column in columns).rstrip()
            for line in self.screen.history.top
        ]
        return "\n".join([*gone, self.text])

    def draw(self, title: str = "nanobot agent", *, name: str = "chat") -> str:
        """Return the screen as an SVG image."""
        console = Console(record=True, width=self.screen.columns, file=io.StringIO())
        console.print(_picture(self.screen), soft_wrap=True)
        return console.export_svg(title=title, theme=THEME, code_format=PAGE, unique_id=name)

    def _read(self) -> None:
        try:
            block = os.read(self._descriptor, 65_536)
        except BlockingIOError:
            return
        except OSError:  # the other side is closed
            block = b""
        if block:
            self._stream.feed(block)
        else:
            self.ended = True
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._news.set()


@asynccontextmanager
async def chat_screen(
    *arguments: str, environ: Mapping[str, str], size: tuple[int, int] = (80, 24)
) -> AsyncIterator[ChatScreen]:
    """Run `nanobot agent` with these arguments in a terminal. `environ` names the home."""
    ours, theirs = pty.openpty()
    columns, rows = size
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    known = {key: value for key, value in environ.items() if key not in ("COLUMNS", "LINES")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nanobot", "agent", *arguments,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={"TERM": "xterm-256color", **known},
    )  # fmt: skip
    os.close(theirs)
    screen = ChatScreen(process, ours, size)
    try:
        yield screen
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)


def _without_motion(text: str) -> str:
    return re.sub("[\u2800-\u28ff]|[0-9]+ s", "", text)


def _picture(screen: pyte.Screen) -> Text:
    filled = [row for row in range(screen.lines) if screen.display[row].strip()]
    lines = []
    for row in range(filled[-1] + 1 if filled else 0):
        line = Text()
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        for style, run in groupby(cells, _style):
            line.append("".join(cell.data for cell in run), style)
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
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
    return name.replace("brown", "yellow").replace("bright", "bright_")
