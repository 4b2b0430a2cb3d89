"""The screen of a conversation: a permanent part that is printed, and a live part with the prompt
below it.

An incomplete reply and the output of a running tool are live, and are replaced by their permanent
form. The text of a reply that never ends stays. If several messages are pending, the answer to one
does not replace the text of another one's turn. All untrusted text passes `clean` on its way to the
screen."""

from __future__ import annotations

import os
import re
import shutil
import sys
from datetime import datetime
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.utils import is_dumb_terminal

from nanobot.text import clean
from nanobot_cli.markdown import apply_styles, render, wrap_lines
from nanobot_cli.text import OutputTail, file_line, one_line, question_of, ways, wrap_text
from nanobot_cli.wire import AgentMessage, Delta, Output, Reading, Reply, Tool

PROMPT = "> "

_SEQUENCE = re.compile("\x1b\\[[0-9;]*m")
_COLOUR = re.compile("\x1b\\[(?![01239]m)[0-9;]*m")
"""Sequences that are removed for a dumb terminal, or if `NO_COLOR` is set (no-color.org)."""

_TAIL = 20_000  # characters of an incomplete reply that are used to draw its last lines

_OUTPUT_LINES = 6
_INDENT = "  "
_STOPPED = "Stopped."  # also the answer of `/stop`, which is then left out


class Surface:
    """Standard output, above the prompt of a running application.

    A dumb terminal has no live part: input and output follow each other, and a new prompt is
    written when it is the person's turn."""

    def __init__(self) -> None:
        self.moves = not is_dumb_terminal()
        self._unwanted = _COLOUR if os.environ.get("NO_COLOR") else None
        self._unwanted = self._unwanted if self.moves else _SEQUENCE
        self._app: Application[Any] | None = None
        self._at_prompt = False

    def attach(self, app: Application[Any]) -> None:
        """Set the application that draws the prompt, after it has begun to."""
        self._app = app
        self._at_prompt = not self.moves

    def print(self, text: str) -> None:
        """Add to the permanent part: the prompt is erased, and soon drawn again below. `text` has
        passed `clean` and may contain styles. The terminal wraps it if it is too wide."""
        drawn = self._app is not None and self._app.is_running
        if self._at_prompt:
            self.line_was_typed()
        elif self._app is not None and drawn and self.moves:
            self._app.renderer.erase(leave_alternate_screen=False)
        _write((self._unwanted.sub("", text) if self._unwanted else text) + "\n")
        if drawn:
            self.redraw()

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


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class Transcript:
    """The output of a conversation's events."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._written: list[str] = []
        """The pieces of the incomplete reply."""
        self._turn_of = ""
        self._said: set[str] = set()
        self._commands: set[str] = set()
        self._last_turn = ""
        self._is_stopped = False
        self._output: OutputTail | None = None
        self._reading = ""

    def line(self, text: str, style: str = "dim") -> None:
        """Print a line that is not part of the reply."""
        lines = wrap_lines(clean(text), self._surface.width)
        self._surface.print(apply_styles("\n".join(lines), style))

    def print_typed(self, text: str) -> None:
        """Print the person's message, unless the prompt has left it on the screen."""
        self._surface.line_was_typed()
        if self._surface.moves:
            continued = clean(text).replace("\n", "\n" + " " * len(PROMPT))
            self._surface.print(apply_styles(PROMPT, "bold") + continued)

    def note_sent(self, message_id: str, text: str) -> None:
        """Record a sent message. The answer to a command is not Markdown."""
        if text.startswith("/"):
            self._commands.add(message_id)

    def progress(self, event: Reading | Delta | Tool | Output) -> None:
        """Show progress of a turn. The reading progress stays until the next event."""
        self._reading = ""
        match event:
            case Reading():
                self._reading = event.text
            case Delta():
                self._keep_output()
                if event.restart:
                    self._written.clear()
                self._turn_of = event.id
                self._written.append(event.text)
            case Tool():  # a dim line that stays, below the text before it
                self.keep()
                self._turn_of = event.id
                self.line(f"· {one_line(event.hint, 200)}")
            case Output():
                self._output = self._output or OutputTail()
                self._turn_of = event.id
                self._output.feed(event.text)
        self._surface.redraw()

    def print_message(self, said: AgentMessage, now: datetime) -> None:
        """Print a message of the agent before its reply, with its files and choices. Messages from
        the person's absence have their time. Questions from then are answered by their command,
        because they may be closed."""
        self.keep()
        if said.at:
            self.line(_moment(said.at, now))
        else:
            self._said.add(said.text.strip())
        if said.text.strip():
            self._surface.print(render(clean(said.text), self._surface.width))
        for file in said.files:
            self._surface.print(apply_styles(file_line(file), "cyan"))
        question = None if said.at else question_of(said)
        if question is None:
            for way in ways(said.choices):
                self.line(way, "cyan")
        elif not self._surface.moves:
            self.line(question.keys, "cyan")

    def print_error(self, error: str, hint: str) -> None:
        """Print that the gateway rejected a message, or went away."""
        self.keep()
        self.line(f"{error}\n{hint}".strip(), "red")

    def reply(self, reply: Reply) -> None:
        """Print a reply in place of its incomplete text. A turn that answers several messages
        prints one."""
        is_command = reply.id in self._commands
        self._commands.discard(reply.id)
        if reply.turn and reply.turn == self._last_turn:
            return
        self._last_turn = reply.turn
        if reply.id == self._turn_of:
            if reply.text.strip() or "".join(self._written).strip() in self._said:
                self._written.clear()
            self.keep()
        is_known = is_command and self._is_stopped and reply.text == _STOPPED
        self._is_stopped = reply.outcome == "stopped"
        if reply.text.strip() and not is_known:
            ours = reply.outcome != "done" or (is_command and not reply.prompt_tokens)
            text, width = clean(reply.text), self._surface.width
            self._surface.print(wrap_text(text.rstrip(), width) if ours else render(text, width))
        if self._is_stopped:
            self.line(_STOPPED)

    def rest(self) -> None:
        """Finish: no message is pending any more."""
        self.keep()
        self._said.clear()
        self._surface.redraw()

    def live_lines(self, rows: int, width: int) -> list[tuple[str, str]]:
        """Return the live part as styles and lines: at most `rows`, of `width` columns."""
        output = [("dim", line) for line in self._output_lines(width)]
        if self._reading:
            output.append(("dim", one_line(self._reading, width - 1)))
        rows -= len(output)
        tail = clean("".join(self._written)[-_TAIL:][-max(1, rows) * width :])
        if not tail.strip() or rows < 1:
            return output
        return [*(("", line) for line in wrap_lines(tail, width)[-rows:]), *output]

    def keep(self) -> None:
        """Make the live part permanent, except the reading progress."""
        self._keep_output()
        self._reading = ""
        text = clean("".join(self._written)).rstrip()
        self._written.clear()
        if text:
            self._surface.print("\n".join(wrap_lines(text, self._surface.width)))

    def _keep_output(self) -> None:
        lines = self._output_lines(self._surface.width)
        self._output = None
        if lines:
            self.line("\n".join(lines))

    def _output_lines(self, width: int) -> list[str]:
        if self._output is None:
            return []
        room = max(1, width - len(_INDENT) - 1)
        return [_INDENT + line for line in self._output.lines(_OUTPUT_LINES, room)]


def _moment(at: str, now: datetime) -> str:
    """Format a time in ISO format relative to `now`: without the date if it is today."""
    try:
        then = datetime.fromisoformat(at).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        return one_line(at, 40)
    return f"{then:%H:%M}" if then.date() == now.date() else f"{then:%a %Y-%m-%d %H:%M}"
