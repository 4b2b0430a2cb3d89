"""The text of an answer that streams, as HTML.

Complete blocks are rendered once. With each change a page gets the HTML that follows the first
`keep` elements, which are complete. The block that is still open is rendered without its incomplete
marks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from nanobot_web.markdown import Block, new_answer, render_block

_WHOLE = 1 << 20  # characters to show of the open block: all of them


class StreamedText:
    """The text of one message of the model. `render` has one caller at a time."""

    def __init__(self) -> None:
        self._answer = new_answer()
        self._new: list[str] = []
        self._closed: list[Block] = []
        self._open = ""
        self._keep = 0
        """The number of elements that are complete."""
        self._generation = 0

    @property
    def is_behind(self) -> bool:
        """True if there is text that was not rendered."""
        return bool(self._new)

    def add(self, text: str, *, restart: bool) -> None:
        """Add text, after discarding what came before if it is a `restart`."""
        if restart:
            self._answer, self._new, self._closed = new_answer(), [], []
            self._open, self._keep = "", 0
            self._generation += 1
        self._new.append(text)

    def shown(self) -> Mapping[str, object]:
        """Return everything that was rendered."""
        html = "".join(block.html for block in self._closed) + self._open
        return {"keep": 0, "html": html}

    async def render(self) -> Mapping[str, object] | None:
        """Render the new text in a thread, and return the change, or None after a restart."""
        self._answer.add("".join(self._new))
        self._new, generation = [], self._generation
        closed, live = await asyncio.to_thread(self._render)
        if generation != self._generation:
            return None
        keep = self._keep
        self._closed += closed
        self._keep += sum(block.elements for block in closed)
        self._open = live
        return {"keep": keep, "html": "".join(block.html for block in closed) + live}

    def _render(self) -> tuple[Sequence[Block], str]:
        answer = self._answer
        closed = [render_block(piece.source) for piece in answer.take_blocks()]
        live = answer.live(_WHOLE)
        return closed, render_block(live, is_open=True).html if live.strip() else ""
