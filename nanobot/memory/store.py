"""`MemoryStore`: the one reader and writer of long-term files and daily notes.

Every write says what it was based on and is refused where that no longer stands (compare-and-swap),
is checked by the guard, and is atomic; there is one writer at a time. A person may edit any of
these files at any moment: reads notice by the file's time, size and inode, and cost one system call
per file when nothing changed. So reads are plain functions, fit for the event loop; writes are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, ToolError, WriteConflict
from nanobot.memory import guard
from nanobot.memory.notes import days_back, note_path, with_note
from nanobot.security.paths import Root

LONG_TERM = "memory/MEMORY.md"

GUARDED = frozenset({LONG_TERM, "USER.md", "SOUL.md"})
"""Files of facts: a write may not drop many at once."""

BOOTSTRAP = frozenset({"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"})
"""Files that decide how the agent behaves, beside memory."""

_LIMIT = 10_000_000
_ATTEMPTS = 5

Fingerprint = tuple[int, int, int] | None


class BeforeChange(Protocol):
    """Told in a worker thread what is about to change; raising calls the change off."""

    def __call__(self, path: str, previous: bytes | None, new: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class _Cached:
    fingerprint: Fingerprint
    text: str


class MemoryStore:
    """Memory in the workspace `root`, which must be the root that the tools write through.

    `template` is the text of each file as it was before anything was learned; what stands there
    counts neither as memory nor as a fact.
    """

    def __init__(self, root: Root, clock: Clock, template: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._clock = clock
        self._template = template or {}
        self._writing = asyncio.Lock()
        self._texts: dict[str, _Cached] = {}
        self._context: tuple[tuple[str, Fingerprint, Fingerprint], str] | None = None

    def is_document(self, path: str) -> bool:
        """Whether writes to `path` (relative to the workspace) must come through here."""
        return path in BOOTSTRAP or path.startswith("memory/")

    def read(self, path: str) -> str:
        """The text of a document, empty where there is none. Raises `PathRefused` for a link."""
        fingerprint = self._root.fingerprint(path)
        cached = self._texts.get(path)
        if cached is None or cached.fingerprint != fingerprint:
            # Taken before the read: a change in between is seen next time.
            content = self._root.place(path).read_bytes(_LIMIT) or b""
            cached = _Cached(fingerprint, content.decode("utf-8", "replace"))
            self._texts[path] = cached
        return cached.text

    def is_untouched(self, path: str) -> bool:
        """Whether a document says nothing beyond its template, so that no prompt needs it."""
        return not guard.fact_lines(self.read(path), self._template.get(path, ""))

    def read_long_term(self) -> str:
        """MEMORY.md, empty where there is none."""
        return self.read(LONG_TERM)

    def read_today(self) -> str:
        """Today's notes, empty where there are none."""
        return self.read(self.today_path())

    def today_path(self) -> str:
        """Where today's notes lie."""
        return note_path(self._clock.now().date())

    def get_recent_memories(self, days: int = 7) -> str:
        """The notes of today and the days before, newest first; days without notes are skipped."""
        paths = map(note_path, days_back(self._clock.now().date(), days))
        texts = (self._root.place(path).read_bytes(_LIMIT) or b"" for path in paths)
        notes = (text.decode("utf-8", "replace").strip() for text in texts)
        return "\n\n---\n\n".join(note for note in notes if note)

    def get_memory_context(self) -> str:
        """The `# Memory` part of the system prompt; empty while there is nothing to remember."""
        today = self.today_path()
        key = (today, self._root.fingerprint(LONG_TERM), self._root.fingerprint(today))
        if self._context is None or self._context[0] != key:
            self._context = (key, self._compose(today))
        return self._context[1]

    async def write_long_term(self, text: str, expected: str, *, author: str = "agent") -> None:
        """Replace MEMORY.md where `expected`, the text that was read, still stands there."""
        await self.replace(LONG_TERM, text, expected=expected, author=author)

    async def replace(self, path: str, text: str, *, expected: str | None, author: str) -> None:
        """Replace a document where `expected` (None or empty: no text) still stands.

        Raises `WriteConflict` where something else does, `ToolError` with the reason where the
        guard refuses, `StorageError` when the disk does. `author` is who wants it, for the log.
        """
        async with self._writing:
            await asyncio.to_thread(self._replace, path, text, expected or "")
            self._forget(path)
        logger.debug("{} was written by {}", path, author)

    async def append_today(self, text: str, *, before: BeforeChange | None = None) -> str:
        """Add a note to today's; return the path of its file."""
        if not text.strip():
            raise ToolError("the note is empty")
        async with self._writing:
            path = self.today_path()
            await asyncio.to_thread(self._append, path, text, before)
            self._forget(path)
        return path

    def _replace(self, path: str, text: str, expected: str) -> None:
        place = self._root.place(path)
        current = place.read_bytes(_LIMIT)
        standing = (current or b"").decode("utf-8", "replace")
        if standing != expected:
            raise WriteConflict(place.shown)
        reason = ""
        if path in GUARDED:
            reason = guard.refusal(standing, text, self._template.get(path, ""))
        elif path in BOOTSTRAP:
            reason = guard.oversize(standing, text)
        if reason:
            logger.warning("a write to {} was refused: {}", path, reason)
            raise ToolError(f"{path} was not written: {reason}")
        place.write_bytes(text.encode("utf-8", "replace"), expected=current)

    def _append(self, path: str, text: str, before: BeforeChange | None) -> None:
        place = self._root.place(path)
        for attempt in range(1, _ATTEMPTS + 1):
            current = place.read_bytes(_LIMIT)
            existing = (current or b"").decode("utf-8", "surrogateescape")
            new = with_note(existing, self._clock.now(), text.encode("utf-8", "replace").decode())
            content = new.encode("utf-8", "surrogateescape")
            if before is not None:
                before(path, current, content)
            try:
                place.write_bytes(content, expected=current)
            except WriteConflict:  # an editor saved just now; a note fits any text
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

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
