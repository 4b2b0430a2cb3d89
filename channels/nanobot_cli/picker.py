"""A list of conversations to choose from: typing searches, the arrow keys and Enter choose."""

from __future__ import annotations

import asyncio
from datetime import datetime

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Dimension, HSplit, Layout, ScrollOffsets, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput
from wcwidth import clip

from nanobot.errors import NanobotError
from nanobot_cli.conversations import Conversation, ConversationList, Found
from nanobot_cli.screen import Surface
from nanobot_cli.text import columns, one_line
from nanobot_cli.waiting import when

_KEYS = "↑↓ and Enter choose · Esc goes back"
_MOST_ROWS = 16
_NARROW = 60
"""Columns. A narrower terminal does not show the channels."""


class Picker:
    """The choice among the conversations of `known`, for a search that begins with `words`."""

    def __init__(
        self, known: ConversationList, surface: Surface, now: datetime, words: str = ""
    ) -> None:
        self._known, self._surface, self._now = known, surface, now
        self._shown: list[Conversation] = []
        self._at = 0
        self._note = ""
        """An error, or that nothing was found."""
        self._next = 0
        """The place in the whole list of the next page, 0 if there is none."""
        self._wanted = asyncio.Event()
        """Set if the words have changed, or the next page is needed."""
        self._words = Buffer(document=Document(words), multiline=False)
        self._words.on_text_changed += lambda _: self._wanted.set()
        typed = BufferControl(self._words, [BeforeInput("search: ", "bold")])
        rows = [
            Window(typed, height=1),
            Window(
                FormattedTextControl(self._render),
                height=self._height,
                dont_extend_height=True,
                scroll_offsets=ScrollOffsets(bottom=1),
                always_hide_cursor=True,
            ),
            Window(FormattedTextControl([("dim", _KEYS)]), height=1),
            Window(),
        ]
        self._app: Application[Conversation | None] = Application(
            Layout(HSplit(rows)), key_bindings=self._keys(), erase_when_done=True
        )

    async def choose(self) -> Conversation | None:
        """Return the chosen conversation, or None."""
        self._wanted.set()
        return await self._app.run_async(pre_run=self._begin, set_exception_handler=False)

    def _begin(self) -> None:
        self._app.create_background_task(self._read_list())

    async def _read_list(self) -> None:
        """Search for the typed words whenever they change, or read the next page, one at a time."""
        read = None
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if (words := self._words.text.strip()) != read:
                read, self._next, self._at = words, 0, 0
            found = await self._fetch(words, self._next)
            if words == self._words.text.strip():
                known = {one.key: one for one in self._shown if self._next}
                new = {one.key: one for one in found.page}
                self._shown, self._next = [*{**known, **new, **known}.values()], found.next
                self._app.invalidate()

    async def _fetch(self, words: str, offset: int) -> Found:
        try:
            found = await asyncio.to_thread(self._known.find, words, offset)
            self._note = "" if found.page or offset else "No conversations found."
        except NanobotError as error:
            found, self._note = Found([], 0), str(error)
        return found

    def _move(self, by: int) -> None:
        self._at = max(0, min(self._at + by, len(self._shown) - 1))
        if self._next and self._at == len(self._shown) - 1:
            self._wanted.set()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for key, by in (("up", -1), ("down", 1), ("pageup", -10), ("pagedown", 10)):

            @keys.add(key)
            def _(_: KeyPressEvent, by: int = by) -> None:
                self._move(by)

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if self._shown:
                event.app.exit(result=self._shown[self._at])

        @keys.add("escape", eager=True)
        @keys.add("c-c")
        @keys.add("c-d")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        return keys

    def _height(self) -> Dimension:
        return Dimension(min=1, max=max(1, min(_MOST_ROWS, self._surface.size[0] - 4)))

    def _render(self) -> StyleAndTextTuples:
        """Return the list. The window scrolls to the cursor, before the chosen entry."""
        width = self._surface.width
        lines: StyleAndTextTuples = []
        if self._note:
            lines += [("dim", one_line(self._note, width - 1)), ("", "\n")]
        for number, one in enumerate(self._shown):
            is_chosen = number == self._at
            lines += [("[SetCursorPosition]", "")] if is_chosen else []
            for style, text in render_entry(one, self._now, width, is_chosen=is_chosen):
                lines += [(style, self._surface.paint(text)), ("", "\n")]
        return lines[:-1]


def render_entry(
    one: Conversation, now: datetime, width: int, *, is_chosen: bool = False
) -> list[tuple[str, str]]:
    """Return the lines of a conversation, each with its style: title, time and channel, and below
    them the hit of a search."""
    facts = [when(one.at, now), *([one.channel] if width >= _NARROW else ())]
    end = " · ".join(filter(None, facts))
    end = end if columns(end) < width // 2 else ""
    title = _fit(one.title or "(no title)", width - columns(end) - 5)
    mark = "› " if is_chosen else "  "
    first = f"{mark}{title}"
    gap = " " * max(2, width - 1 - columns(first) - columns(end))
    lines = [("bold" if is_chosen else "", first + gap + end)]
    if one.hit and one.hit != one.title:
        lines.append(("dim", f"    {_fit(one.hit, width - 6)}"))
    return lines


def _fit(text: str, width: int) -> str:
    """Return the beginning of a line that fits `width` columns."""
    return text if columns(text) <= width else f"{clip(text, 0, width - 1)}…"
