"""A list of conversations to choose from: typing searches, the arrow keys and Enter choose."""

from __future__ import annotations

import asyncio
from datetime import datetime

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput

from nanobot.errors import NanobotError
from nanobot_cli.conversations import Conversation, ConversationList, Found
from nanobot_cli.screen import Surface
from nanobot_cli.text import columns, one_line
from nanobot_cli.waiting import when

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
        self._at, self._top = 0, 0
        self._problem = ""
        self._is_searching = True
        self._next = 0
        """The place in the whole list of the next page, 0 if there is none."""
        self._wanted = asyncio.Event()
        self._words = Buffer(document=Document(words), multiline=False)
        self._words.on_text_changed += lambda _: self._wanted.set()
        listed = Window(FormattedTextControl(lambda: [*self._render()]), wrap_lines=False)
        typed = BufferControl(self._words, [BeforeInput("search: ", "bold")])
        self._app: Application[Conversation | None] = Application(
            Layout(HSplit([Window(typed, height=1), listed])),
            key_bindings=self._keys(),
            erase_when_done=True,
        )

    async def choose(self) -> Conversation | None:
        """Return the chosen conversation, or None."""
        self._wanted.set()
        return await self._app.run_async(pre_run=self._begin, set_exception_handler=False)

    def _begin(self) -> None:
        self._app.create_background_task(self._search())

    async def _search(self) -> None:
        """Look for the typed words whenever they change, with one search at a time."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            words, self._is_searching = self._words.text.strip(), True
            found = await self._fetch(words, 0)
            if not self._wanted.is_set():  # else the words have changed
                self._is_searching = False
                self._shown, self._next, self._at, self._top = [*found.page], found.next, 0, 0
                self._app.invalidate()

    async def _fetch(self, words: str, offset: int) -> Found:
        self._problem = ""
        try:
            return await asyncio.to_thread(self._known.find, words, offset)
        except NanobotError as error:
            self._problem = str(error)
            return Found([], 0)

    async def _fetch_more(self) -> None:
        words, offset, self._next = self._words.text.strip(), self._next, 0
        found = await self._fetch(words, offset)
        if words == self._words.text.strip():
            known = {one.key for one in self._shown}
            self._shown += [one for one in found.page if one.key not in known]
            self._next = found.next
            self._app.invalidate()

    def _move(self, by: int) -> None:
        self._at = max(0, min(self._at + by, len(self._shown) - 1))
        if self._next and self._at >= len(self._shown) - 1:
            self._app.create_background_task(self._fetch_more())

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

    def _render(self) -> list[tuple[str, str]]:
        rows, width = self._surface.size
        rows = max(2, min(_MOST_ROWS, rows - 3))
        lines = list[tuple[str, str]]()
        if self._problem or not self._shown:
            note = self._problem or ("" if self._is_searching else "No conversations found.")
            lines.append(("dim", one_line(note, width - 1)))
        lines += self._visible_lines(rows - 1, width)
        lines.append(("dim", one_line("↑↓ and Enter choose · Esc goes back", width - 1)))
        painted = [(style, self._surface.paint(text)) for style, text in lines]
        return [part for line in painted for part in (line, ("", "\n"))][:-1]

    def _visible_lines(self, rows: int, width: int) -> list[tuple[str, str]]:
        """Return the entries around the chosen one, scrolled as little as possible."""
        entries = [
            render_entry(one, self._now, width, is_chosen=number == self._at)
            for number, one in enumerate(self._shown)
        ]
        self._top = min(self._top, self._at)
        while sum(map(len, entries[self._top : self._at + 1])) > rows:
            self._top += 1
        return [line for entry in entries[self._top :] for line in entry][:rows]


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
    if columns(text) <= width:
        return text
    while text and columns(text) >= width:
        text = text[:-1]
    return f"{text}…"
