"""`MemoryStore`: the one reader and writer of a scope's long-term files and daily notes.

Every write says what it was based on and is refused where that no longer stands (compare-and-swap),
is checked by the guard, becomes a version, and is atomic; there is one writer at a time.

A person may edit any of these files at any moment: reads notice by the file's time, size and inode,
and cost one system call per file when nothing changed. So they are fit for the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from dataclasses import replace as altered
from datetime import date, timedelta
from functools import partial
from typing import Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, ToolError, WriteConflict
from nanobot.io import FileState
from nanobot.memory.documents import FACTS, LONG_TERM, RETIRED, RULES, TRACKED
from nanobot.memory.files import redact_file
from nanobot.memory.store import guard
from nanobot.memory.store.guard import BY_PERSON
from nanobot.memory.store.notes import note_path, retired_in, with_note, with_retired
from nanobot.memory.text.lines import Operation, apply_operations, split, text_of
from nanobot.memory.text.wording import unconfirmed_in
from nanobot.memory.versions.gitstore import GitStore
from nanobot.memory.versions.version import Author, Change
from nanobot.security.paths import Place, Root

LIMIT = 10_000_000
"""Bytes of the largest file that is read."""

Fingerprint = FileState | None


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
        return path in RULES or path.startswith("memory/")

    def read(self, path: str) -> str:
        """The text of a document, empty where there is none. Raises `PathRefused` for a link."""
        fingerprint = self._root.fingerprint(self._prefix + path)
        if self._day != (today := self._clock.now().date()):  # keep no notes of past days
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
        today = self.today()
        days = (note_path(today), note_path(today - timedelta(days=1)))
        texts = [text for text in map(self._told, days) if text]
        return "\n".join(filter(None, map(unconfirmed_in, texts)))

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
        texts = tuple(map(self.read, (LONG_TERM, note_path(self.today()), *paths)))
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


_ATTEMPTS = 5
_BASELINE = timedelta(days=7)

Quiesce = Callable[[], AbstractAsyncContextManager[None]]
"""Keeps commands from running while a rule file (`RULES`) is replaced: what keeps them from
changing it holds on to the old one."""


class BeforeChange(Protocol):
    """Told in a worker thread what is about to change; raising calls the change off."""

    def __call__(self, path: str, previous: bytes | None, new: bytes) -> None: ...


class MemoryStore(MemoryReader):
    """The memory whose files lie below `prefix` in `root`, the root that the tools write through.

    The place is made by the first write. `template`: see `MemoryReader`. `versions` is None where
    changes are not kept. `quiesce` is entered around the replacing of rule files.
    """

    def __init__(
        self,
        root: Root,
        clock: Clock,
        template: Mapping[str, str] | None = None,
        *,
        prefix: str = "",
        versions: GitStore | None = None,
        quiesce: Quiesce = nullcontext,
    ) -> None:
        super().__init__(root, clock, template, prefix)
        self._versions = versions
        self._quiesce = quiesce
        self._writing = asyncio.Lock()

    def fact_ages(self, path: str) -> dict[str, int]:
        """How many days ago each line of a document was written as it stands. Blocks.

        Without versions nothing is known, and nothing is told of lines not yet in a version.
        """
        if self._versions is None:
            return {}
        written, now = self._versions.written(self._prefix + path), self._clock.now()
        lines = {line.strip() for line in split(self._fresh(path))}
        return {line: max(0, (now - written[line]).days) for line in lines if line in written}

    async def replace(
        self,
        path: str,
        text: str,
        *,
        expected: str | None,
        change: Change,
        excused: Iterable[str] = (),
        before: BeforeChange | None = None,
    ) -> int:
        """Replace a document where `expected` (None or empty: no text) still stands.

        Returns the number of the version, 0 where there is none. The facts on `excused` lines may
        go. Raises `WriteConflict` where something else stands there, `ToolError` with the reason
        where the guard refuses, `StorageError` when the disk does.
        """
        wanted = (path, text, expected or "", change, tuple(excused))
        async with self._writing:
            try:
                if path in RULES and not await asyncio.to_thread(self._checked, *wanted):
                    return 0
                async with self._quiesce() if path in RULES else nullcontext():
                    number = await asyncio.to_thread(self._replace, *wanted, before)
            finally:
                self._forget(path)
        logger.debug("{}{} was written by {}", self._prefix, path, change.author)
        return number

    async def apply(
        self,
        path: str,
        operations: Sequence[Operation],
        change: Change,
        *,
        retired: Sequence[str] = (),
        before: BeforeChange | None = None,
    ) -> tuple[int, tuple[Operation, ...]]:
        """Make line operations in a document as it now is; return the version, and what is left.

        What is left over no longer fits. Of the lines that go, the `retired` ones move to
        retired.md, and count as lost no more. Raises `ToolError` where the guard refuses.
        """
        made = partial(self._apply, path, operations, change, retired, before)
        for _ in range(_ATTEMPTS - 1):
            with suppress(WriteConflict):  # an editor saved just now: fit them to what it saved
                return await made()
        return await made()

    async def retire(self, path: str, lines: Sequence[str], change: Change) -> int:
        """Move lines of a document to retired.md; return the version, 0 where none stands there.

        They are written there first, so that a crash may repeat but never lose one.
        """
        text = await asyncio.to_thread(self._fresh, path)
        named = {guard.bare(line) for line in lines}
        standing = [line for line in split(text) if line.strip() and guard.bare(line) in named]
        if not standing:
            return 0
        operations = [Operation(old=line.rstrip()) for line in standing]
        number, _ = await self.apply(path, operations, change, retired=standing)
        return number

    async def record_hand_edits(self, author: Author = "you") -> tuple[int, ...]:
        """Make what was changed since the last version a version: of the person's, or of the
        `author` who is known to have changed it."""
        if self._versions is None:
            return ()
        return await asyncio.to_thread(self._versions.record_hand_edits, self._prefix, author)

    async def append_today(
        self, text: str, *, before: BeforeChange | None = None, origins: Iterable[str] = ()
    ) -> str:
        """Add a note to today's; return the path of its file.

        `origins` name foreign content that may have caused it: the note then says so.
        """
        if not text.strip():
            raise ToolError("the note is empty")
        named = tuple(origins)
        async with self._writing:
            path = self.today_path()
            try:
                await asyncio.to_thread(self._append, path, text, before, named)
            finally:
                self._forget(path)
        return path

    async def rewrite(self, redact: Callable[[str], str]) -> int:
        """Put every document and note through `redact`; return how many files changed.

        For taking something out for good: no guard, and no version is made of it.
        """
        async with self._writing, self._quiesce():
            try:
                return await asyncio.to_thread(self._rewrite, redact)
            finally:
                self._texts.clear()
                self._context = None

    async def _apply(
        self,
        path: str,
        operations: Sequence[Operation],
        change: Change,
        retired: Sequence[str],
        before: BeforeChange | None,
    ) -> tuple[int, tuple[Operation, ...]]:
        text = await asyncio.to_thread(self._fresh, path)
        applied = apply_operations(text, operations)
        made = tuple(operation for operation in operations if operation not in applied.left)
        change = altered(change, operations=change.operations or made)
        if going := _going(text, applied.text, retired):
            # Refused after they were retired, the lines would stand in both files.
            await asyncio.to_thread(self._guard, path, text, applied.text, change, going)
            await self._keep_retired(going, change)
        number = await self.replace(
            path, applied.text, expected=text, change=change, excused=going, before=before
        )
        return number, applied.left

    async def _keep_retired(self, lines: Sequence[str], change: Change) -> None:
        text = await asyncio.to_thread(self._fresh, RETIRED)
        new = with_retired(text, self._clock.now().date(), lines)
        if new != text:
            # The operations and their evidence belong to the version of the file itself.
            change = altered(change, cursors=(), operations=())
            await self.replace(RETIRED, new, expected=text, change=change)

    def _replace(
        self,
        path: str,
        text: str,
        expected: str,
        change: Change,
        excused: Sequence[str],
        before: BeforeChange | None,
    ) -> int:
        checked = self._checked(path, text, expected, change, excused)
        if checked is None:
            return 0
        place, current, new = checked
        if before is not None:
            before(place.relative, current, new)
        put = partial(place.write_bytes, new, expected=current)
        if self._versions is not None and path in TRACKED:
            return self._versions.write(place.relative, current, new, change, put)
        put()
        return 0

    def _checked(
        self, path: str, text: str, expected: str, change: Change, excused: Sequence[str]
    ) -> tuple[Place, bytes | None, bytes] | None:
        """Where to write what, and the present content; None where nothing changes."""
        place = self._root.place(self._prefix + path)
        current = place.read_bytes(LIMIT)
        standing = text_of(current)
        if standing != expected:
            raise WriteConflict(place.shown)
        self._guard(path, standing, text, change, excused)
        new = text.encode("utf-8", "replace")
        if new == (current or b"") and not change.cursors:
            return None
        return place, current, new

    def _guard(
        self, path: str, standing: str, text: str, change: Change, excused: Sequence[str]
    ) -> None:
        """Raises `ToolError` where `text` may not replace `standing`."""
        reason = ""
        if path in FACTS and change.author not in BY_PERSON:
            baseline, template = partial(self._week_ago, path), self._template.get(path, "")
            since = self._clock.now().date() - _BASELINE - timedelta(days=1)
            retired = (line for day, line in retired_in(self._fresh(RETIRED)) if day >= since)
            named = (*excused, *retired)
            reason = guard.refusal(standing, text, template, baseline=baseline, excused=named)
        elif path in {*FACTS, *RULES} and change.author != "sync":  # it has both devices' facts
            reason = guard.oversize(standing, text)
        if reason:
            logger.warning("a write to {}{} was refused: {}", self._prefix, path, reason)
            raise ToolError(f"{path} was not written: {reason}")

    def _week_ago(self, path: str) -> str | None:
        """The text as of seven days ago, without what went since by the person's own will; None
        where no version is that old."""
        if self._versions is None:
            return None
        self._versions.record_hand_edits(self._prefix)
        moment = self._clock.now() - _BASELINE
        text = self._versions.text_at(self._prefix + path, moment)
        if text is None:
            return None
        gone: set[str] = set()
        for snapshot in self._versions.lineage(self._prefix + path):
            if snapshot.version.when <= moment:
                break
            if snapshot.version.author in BY_PERSON:
                gone.update(guard.lost_facts(snapshot.before, snapshot.after))
        return "\n".join(line for line in split(text) if line.strip() not in gone)

    def template_of(self, path: str) -> str:
        """What a file holds before anything was learned; empty for one that begins empty."""
        return self._template.get(path, "")

    def _append(
        self, path: str, text: str, before: BeforeChange | None, origins: tuple[str, ...]
    ) -> None:
        place = self._root.place(self._prefix + path)
        for _ in range(_ATTEMPTS - 1):
            with suppress(WriteConflict):  # an editor saved just now; a note fits any text
                self._append_once(place, text, before, origins)
                return
        self._append_once(place, text, before, origins)

    def _append_once(
        self, place: Place, text: str, before: BeforeChange | None, origins: tuple[str, ...]
    ) -> None:
        current = place.read_bytes(LIMIT)
        existing = (current or b"").decode("utf-8", "surrogateescape")
        note = text.encode("utf-8", "replace").decode()
        new = with_note(existing, self._clock.now(), note, origins)
        content = new.encode("utf-8", "surrogateescape")
        if before is not None:
            before(place.relative, current, content)
        place.write_bytes(content, expected=current)

    def _rewrite(self, redact: Callable[[str], str]) -> int:
        places = [self._root.place(self._prefix + path) for path in sorted(RULES)]
        folder = self._root.place(f"{self._prefix}memory")
        if folder.stat() is not None:
            files = (entry.name for entry in folder.entries() if entry.kind == "file")
            places += [folder.child(name) for name in files if name.endswith(".md")]
        return sum(redact_file(place, redact) for place in places)


def _going(before: str, after: str, retired: Sequence[str]) -> list[str]:
    """Those lines of `before` that are no more in `after` and are to be retired."""
    named = {guard.bare(line) for line in retired}
    standing = {line.strip() for line in split(after)}
    lines = dict.fromkeys(line.strip() for line in split(before))
    return [line for line in lines if line not in standing and guard.bare(line) in named]
