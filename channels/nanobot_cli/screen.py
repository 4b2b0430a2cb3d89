"""How a conversation looks in the terminal: what stays is printed, and the prompt moves below it.

A reply that is being written and the output of a tool that runs move with the prompt, and are
replaced by what stays of them; what was shown of a reply that never gets its end stays. Several
messages may be under way: the answer to one leaves alone what another one's turn is writing.
Everything from outside passes `clean` on its way to the screen.
"""

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
from nanobot_cli.markdown import render, styled, wrap_lines
from nanobot_cli.text import OutputTail, file_line, one_line, question_of, ways, wrapped
from nanobot_cli.wire import AgentMessage, Delta, Output, Reading, Reply, Tool

PROMPT = "> "

_SEQUENCE = re.compile("\x1b\\[[0-9;]*m")
_COLOUR = re.compile("\x1b\\[(?![01239]m)[0-9;]*m")
"""What is not sent to a dumb terminal, and to one whose owner wants no colours (no-color.org)."""

_TAIL = 20_000
"""Characters of a growing reply that are looked at to draw its last lines."""

_OUTPUT_LINES = 6
_INDENT = "  "


class Surface:
    """Prints to standard output. Until `attach`, and after the application has ended, only that.

    On a dumb terminal nothing moves: what is typed and what is printed follow one another, and a
    new prompt is written when it is the person's turn.
    """

    def __init__(self) -> None:
        self.moves = not is_dumb_terminal()
        self._unwanted = _COLOUR if os.environ.get("NO_COLOR") else None
        self._unwanted = self._unwanted if self.moves else _SEQUENCE
        self._app: Application[Any] | None = None
        self._at_prompt = False

    def attach(self, app: Application[Any]) -> None:
        """The application that draws the prompt, which it has just begun to do."""
        self._app = app
        self._at_prompt = not self.moves

    def print(self, text: str) -> None:
        """Add to what stays: the prompt is taken away, and soon drawn again below it. `text` has
        passed `clean`, and may hold styles; what is too wide is for the terminal to break."""
        drawn = self._app is not None and self._app.is_running
        if self._at_prompt:
            self.line_was_typed()
        elif self._app is not None and drawn and self.moves:
            self._app.renderer.erase(leave_alternate_screen=False)
        _write((self._unwanted.sub("", text) if self._unwanted else text) + "\n")
        if drawn:
            self.redraw()

    def line_was_typed(self) -> None:
        """Enter was pressed; a dumb terminal keeps what was typed on its line."""
        if self._at_prompt:
            self._at_prompt = False
            _write("\n")

    def show_prompt(self) -> None:
        """It is the person's turn."""
        if not self.moves and not self._at_prompt:
            self._at_prompt = True
            _write(PROMPT)

    def redraw(self) -> None:
        """What moves has changed."""
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
    """Shows what happens in a conversation, as it happens."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._written: list[str] = []
        """The pieces of the reply that is being written."""
        self._turn_of = ""
        self._said: set[str] = set()
        self._commands: set[str] = set()
        self._last_turn = ""
        self._output: OutputTail | None = None
        self._reading = ""

    def line(self, text: str, style: str = "dim") -> None:
        """Something to see that is not part of the reply."""
        lines = wrap_lines(clean(text), self._surface.width)
        self._surface.print(styled("\n".join(lines), style))

    def typed(self, text: str) -> None:
        """What the person said, where the prompt does not leave it on the screen."""
        self._surface.line_was_typed()
        if self._surface.moves:
            continued = clean(text).replace("\n", "\n" + " " * len(PROMPT))
            self._surface.print(styled(PROMPT, "bold") + continued)

    def sent(self, message_id: str, text: str) -> None:
        """A message is under way. One for nanobot itself gets an answer that is no Markdown."""
        if text.startswith("/"):
            self._commands.add(message_id)

    def progress(self, event: Reading | Delta | Tool | Output) -> None:
        """Something happens in a turn. The reading progress is shown until something else
        comes."""
        self._reading = ""
        match event:
            case Reading():
                self._reading = event.text
                self._surface.redraw()
            case Delta():
                self._delta(event)
            case Tool():
                self._tool(event)
            case Output():
                self._show_output(event)

    def _delta(self, more: Delta) -> None:
        """More of the reply that is being written."""
        self._keep_output()
        if more.restart:
            self._written.clear()
        self._turn_of = more.id
        self._written.append(more.text)
        self._surface.redraw()

    def _tool(self, tool: Tool) -> None:
        """A tool runs: a dim line that stays, below what the model said before."""
        self.keep()
        self._turn_of = tool.id
        self.line(f"· {one_line(tool.hint, 200)}")

    def _show_output(self, more: Output) -> None:
        """More of what the tool prints."""
        self._output = self._output or OutputTail()
        self._turn_of = more.id
        self._output.feed(more.text)
        self._surface.redraw()

    def said(self, said: AgentMessage, now: datetime) -> None:
        """Something the agent said before its reply, where the files lie that it sent, and what
        there is to choose. What was said while nobody was there has its time; a question of then
        is answered by its command, since it may not wait any more."""
        self.keep()
        if said.at:
            self.line(_moment(said.at, now))
        else:
            self._said.add(said.text.strip())
        if said.text.strip():
            self._surface.print(render(clean(said.text), self._surface.width))
        for file in said.files:
            self._surface.print(styled(file_line(file), "cyan"))
        question = None if said.at else question_of(said)
        if question is None:
            for way in ways(said.choices):
                self.line(way, "cyan")
        elif not self._surface.moves:
            self.line(question.keys, "cyan")

    def refused(self, error: str, hint: str) -> None:
        """The gateway would not take a message, or went away."""
        self.keep()
        self.line(f"{error}\n{hint}".strip(), "red")

    def reply(self, reply: Reply) -> None:
        """The last word on a message: takes the place of the text that was growing, if that is its
        own. A turn that answers several messages has one."""
        is_command = reply.id in self._commands
        self._commands.discard(reply.id)
        if reply.turn and reply.turn == self._last_turn:
            return
        self._last_turn = reply.turn
        if reply.id == self._turn_of:
            if reply.text.strip() or "".join(self._written).strip() in self._said:
                self._written.clear()
            self.keep()
        if reply.text.strip():
            ours = reply.outcome != "done" or (is_command and not reply.prompt_tokens)
            text, width = clean(reply.text), self._surface.width
            self._surface.print(wrapped(text.rstrip(), width) if ours else render(text, width))
        if reply.outcome == "stopped":
            self.line("(stopped)")

    def rest(self) -> None:
        """Nothing is under way any more."""
        self.keep()
        self._said.clear()
        self._surface.redraw()

    def moving(self, rows: int, width: int) -> list[tuple[str, str]]:
        """What moves now, as styles and lines: at most `rows` of them, of `width` columns."""
        output = [("dim", line) for line in self._output_lines(width)]
        if self._reading:
            output.append(("dim", one_line(self._reading, width - 1)))
        rows -= len(output)
        tail = clean("".join(self._written)[-_TAIL:][-max(1, rows) * width :])
        if not tail.strip() or rows < 1:
            return output
        return [*(("", line) for line in wrap_lines(tail, width)[-rows:]), *output]

    def keep(self) -> None:
        """What moves stays as it is now, except the reading progress."""
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
    """A moment in ISO format, as it is said at `now`: of today only the time."""
    try:
        then = datetime.fromisoformat(at).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        return one_line(at, 40)
    return f"{then:%H:%M}" if then.date() == now.date() else f"{then:%a %Y-%m-%d %H:%M}"
