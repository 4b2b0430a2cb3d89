"""The screen of the chat in two parts: what stays is printed above, and the prompt moves below.

On a dumb terminal nothing moves: what is typed and what is printed follow one another, and a new
prompt is written when it is the person's turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console, RenderableType

PROMPT = "> "


class Surface:
    """Prints with `console`. Until `attach`, and after the application has ended, only that."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.moves = not is_dumb_terminal()
        self._app: Application[Any] | None = None
        self._at_prompt = False

    def attach(self, app: Application[Any]) -> None:
        """The application that draws the prompt, which it has just begun to do."""
        self._app = app
        self._at_prompt = not self.moves

    def print(self, shown: RenderableType, *, soft_wrap: bool = False) -> None:
        """Add to what stays."""
        with self._above():
            self.console.print(shown, soft_wrap=soft_wrap)

    def line_was_typed(self) -> None:
        """Enter was pressed; a dumb terminal keeps what was typed on its line."""
        if self._at_prompt:
            self._at_prompt = False
            self.console.out()

    def invite(self) -> None:
        """It is the person's turn."""
        if not self.moves and not self._at_prompt:
            self._at_prompt = True
            self.console.out(PROMPT, end="", highlight=False)
            self.console.file.flush()

    def redraw(self) -> None:
        """What moves has changed."""
        if self._app is not None:
            self._app.invalidate()

    @property
    def is_measuring(self) -> bool:
        """Whether the terminal was asked where the cursor stands and has not answered: what is
        printed meanwhile makes the answer wrong, and the prompt is drawn in the wrong place."""
        return self._app is not None and self._app.renderer.waiting_for_cpr

    async def measured(self) -> None:
        """Wait for the answer, or until it is clear that none comes."""
        if self._app is not None:
            await self._app.renderer.wait_for_cpr_responses()

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        if self._app is None:
            return self.console.height, self.console.width
        size = self._app.output.get_size()
        return size.rows, size.columns

    @contextlib.contextmanager
    def _above(self) -> Iterator[None]:
        """Room for what stays: the prompt is taken away, and drawn again below it soon."""
        drawn = self._app is not None and self._app.is_running
        if self._at_prompt:
            self._at_prompt = False
            self.console.out()
        elif self._app is not None and drawn and self.moves:
            self._app.renderer.erase(leave_alternate_screen=False)
        yield
        if drawn:
            self.redraw()
