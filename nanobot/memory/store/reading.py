"""Reading a scope's long-term files and daily notes, and the memory part of the prompt.

A person may edit any of these files at any moment: reads notice by the file's time, size and inode,
and cost one system call per file when nothing changed. So they are fit for the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.memory.store import guard
from nanobot.memory.store.encoding import text_of
from nanobot.memory.store.notes import days_back, note_path
from nanobot.memory.store.retired import RETIRED, retired_in
from nanobot.memory.text.unconfirmed import unconfirmed_in
from nanobot.security.paths import Root

LONG_TERM = "memory/MEMORY.md"
FACTS = (LONG_TERM, "USER.md", "SOUL.md")
"""The files of what was learned."""
LIMIT = 10_000_000
"""Bytes of the largest file that is read."""

BOOTSTRAP = frozenset({"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"})
"""Files that decide how the agent behaves, beside memory."""

Fingerprint = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class _Cached:
    fingerprint: Fingerprint
    text: str


class MemoryReader:
    """The memory whose files lie below `prefix` in `root`, without the power to change it.

    Paths are relative to that place; a file that is not there has the text "". `template` is the
    text of each file before anything was learned; what stands there counts neither as memory nor as
    a fact.
    """

    def __init__(
        self, root: Root, clock: Clock, template: Mapping[str, str] | None, prefix: str
    ) -> None:
        self._root = root
        self._clock = clock
        self._template = template or {}
        self._prefix = prefix
        self._texts: dict[str, _Cached] = {}
        self._day = date.min
        self._context: tuple[tuple[str | Fingerprint, ...], str] | None = None
        self._joined: tuple[tuple[str, ...], str] = ((), "")

    def is_document(self, path: str) -> bool:
        """Whether writes to `path` must come through here."""
        return path in BOOTSTRAP or path.startswith("memory/")

    def read(self, path: str) -> str:
        """The text of a document, empty where there is none. Raises `PathRefused` for a link."""
        fingerprint = self._root.fingerprint(self._prefix + path)
        if self._day != (today := self._clock.now().date()):  # lest the notes of all days are held
            self._texts.clear()
            self._day = today
        cached = self._texts.get(path)
        if cached is None or cached.fingerprint != fingerprint:
            # Taken before the read: a change in between is seen next time.
            cached = _Cached(fingerprint, self._fresh(path))
            self._texts[path] = cached
        return cached.text

    def facts(self, path: str) -> list[str]:
        """The facts that a document states, beyond its template."""
        return guard.fact_lines(self.read(path), self._template.get(path, ""))

    def is_untouched(self, path: str) -> bool:
        """Whether a document says nothing beyond its template, so that no prompt needs it."""
        return not self.facts(path)

    def read_long_term(self) -> str:
        """MEMORY.md, empty where there is none."""
        return self.read(LONG_TERM)

    def read_today(self) -> str:
        """Today's notes, empty where there are none."""
        return self.read(self.today_path())

    def unconfirmed_notes(self) -> str:
        """Those of the notes in a prompt that foreign content may have caused. A turn may have
        begun yesterday, with the notes of that day."""
        days = map(note_path, days_back(self.today(), 2))
        return "\n".join(filter(None, (unconfirmed_in(self._told(day)) for day in days)))

    def today(self) -> date:
        """The day that it is for the person."""
        return self._clock.now().date()

    def today_path(self) -> str:
        """Where today's notes lie."""
        return note_path(self.today())

    def get_memory_context(self) -> str:
        """The `# Memory` part of the system prompt; empty while there is nothing to remember."""
        today = self.today_path()
        stamps = (self._root.fingerprint(self._prefix + path) for path in (LONG_TERM, today))
        key = (today, *stamps)
        if self._context is None or self._context[0] != key:
            self._context = (key, self._compose(today))
        return self._context[1]

    def joined(self, paths: Sequence[str]) -> str:
        """MEMORY.md, today's notes and the texts at `paths` as one text, with a line's end between
        them. The same object as long as nothing changes: each conversation keeps what it was told,
        and all of a scope were told the same."""
        texts = (self.read_long_term(), self.read_today(), *map(self.read, paths))
        known, text = self._joined
        if known != texts:
            text = "\n".join(texts)
            self._joined = (texts, text)
        return text

    def retired(self) -> list[tuple[date, str]]:
        """Facts that no longer hold, each with the day on which it was retired.

        One that stands again (its retirement was undone) is none, whatever the file still lists.
        """
        try:
            found = retired_in(self.read(RETIRED))
            texts = (self.read(path) for path in FACTS) if found else ()
            standing = {guard.bare(line) for text in texts for line in guard.fact_lines(text)}
        except NanobotError as error:
            logger.warning("{} cannot be read: {}", RETIRED, error)
            return []
        return [(day, line) for day, line in found if line not in standing]

    def _fresh(self, path: str) -> str:
        return text_of(self._root.place(self._prefix + path).read_bytes(LIMIT))

    def _compose(self, today: str) -> str:
        long_term = self._told(LONG_TERM)
        template = self._template.get(LONG_TERM, "")
        parts = []
        if guard.fact_lines(long_term, template):
            parts.append(f"## Long-term Memory\n\n{long_term.strip()}")
        if notes := self._told(today).strip():
            parts.append(f"## Today's Notes\n\n{notes}")
        return "\n\n".join(["# Memory", *parts]) if parts else ""

    def _told(self, path: str) -> str:
        try:
            return self.read(path)
        except NanobotError as error:
            logger.warning("{} cannot be read: {}", path, error)
            return f"{path} cannot be read: {error}"

    def _forget(self, path: str) -> None:
        # A replaced file can have the same time, size and even inode as the one before.
        self._texts.pop(path, None)
        self._context = None
