"""A program in a window of tmux, which has a size, wraps lines, and keeps what scrolls away."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from uuid import uuid4

PATIENCE = 30.0
"""Seconds until a test gives up."""

HAS_TMUX = which("tmux") is not None


class Window:
    """The screen and the keyboard of a program."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-S", str(socket))

    def type(self, text: str) -> None:
        """Type a text."""
        self._run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by their names in tmux, such as `Enter`, `C-c` or `Up`."""
        self._run("send-keys", *keys)

    def resize(self, columns: int, rows: int = 24) -> None:
        """Change the size of the window."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def lines(self, *, history: bool = False, styles: bool = False) -> list[str]:
        """Return the lines on the screen, after those that have scrolled away with `history`.
        `styles`: with escape sequences."""
        options = [*(("-S", "-") if history else ()), *(("-e",) if styles else ())]
        return [line.rstrip() for line in self._run("capture-pane", "-p", *options).split("\n")]

    def wait_for(self, text: str, *, history: bool = False) -> list[str]:
        """Return the screen, after what scrolled away with `history`, as soon as one of its lines
        contains `text`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            lines = self.lines(history=history)
            if any(text in line for line in lines):
                return lines
            assert time.monotonic() < deadline, "not shown: " + "\n".join([text, *lines])
            time.sleep(0.02)

    def wait_until_still(self) -> list[str]:
        """Return the screen when it has not changed for a moment, except for a spinner."""
        before, since = self._still_lines(), time.monotonic()
        while time.monotonic() - since < 0.6:
            time.sleep(0.05)
            if (lines := self._still_lines()) != before:
                before, since = lines, time.monotonic()
        return self.lines()

    def _still_lines(self) -> list[str]:
        return [line for line in self.lines() if not "\u2800" <= line[:1] <= "\u28ff"]

    def _run(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._tmux, *arguments], capture_output=True, check=True, text=True
        ).stdout


@contextmanager
def open_window(
    folder: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    columns: int = 80,
    rows: int = 24,
) -> Iterator[Window]:
    """Run a command in a new window. `folder` gets the socket of its tmux, another one for each
    window: the server of the previous one may still be ending."""
    socket = folder / f"tmux-{uuid4().hex[:8]}"
    line = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command])
    start = ("tmux", "-S", str(socket), "-f", "/dev/null", "new-session", "-d")
    size = ("-x", str(columns), "-y", str(rows))
    in_tmux = "TERM=$TERM TMUX=$TMUX"
    line = line.replace("env -i ", f"env -i {in_tmux} ", 1)
    subprocess.run([*start, *size, f"{line}; sleep 1000"], check=True, env=dict(environment))
    try:
        yield Window(socket)
    finally:
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=False)
