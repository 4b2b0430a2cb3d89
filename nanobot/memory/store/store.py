"""`MemoryStore`: the one reader and writer of a scope's long-term files and daily notes.

Every write says what it was based on and is refused where that no longer stands (compare-and-swap),
is checked by the guard, becomes a version, and is atomic; there is one writer at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace as altered
from datetime import timedelta
from functools import partial
from typing import Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import ToolError, WriteConflict
from nanobot.memory.change import Author, Change
from nanobot.memory.files.redacting import redact_file
from nanobot.memory.store import guard
from nanobot.memory.store.baseline import PERSONAL, WeekAgo, line_ages
from nanobot.memory.store.encoding import BOM, bytes_of, text_of
from nanobot.memory.store.notes import with_note
from nanobot.memory.store.reading import BOOTSTRAP, FACTS, LIMIT, LONG_TERM, MemoryReader
from nanobot.memory.store.retired import RETIRED, retired_in, with_retired
from nanobot.memory.text.layout import split
from nanobot.memory.text.lines import Operation, apply_operations
from nanobot.memory.versions.gitstore import GitStore
from nanobot.security.paths import Place, Root

__all__ = [
    "BOOTSTRAP",
    "GUARDED",
    "LONG_TERM",
    "PENDING",
    "RETIRED",
    "VERSIONED",
    "BeforeChange",
    "MemoryStore",
]

PENDING = "memory/pending.md"

GUARDED = frozenset(FACTS)
"""Files of facts: a write may not drop many at once."""

VERSIONED = GUARDED | BOOTSTRAP | {RETIRED, PENDING}
"""Files of which every version is kept."""

_ATTEMPTS = 5

Quiet = Callable[[], AbstractAsyncContextManager[None]]
"""Keeps commands from running while a rule file (`BOOTSTRAP`) is replaced: what keeps them from
changing it holds on to the old one."""


class BeforeChange(Protocol):
    """Told in a worker thread what is about to change; raising calls the change off."""

    def __call__(self, path: str, previous: bytes | None, new: bytes) -> None: ...


class MemoryStore(MemoryReader):
    """The memory whose files lie below `prefix` in `root`, the root that the tools write through.

    The place is made by the first write. `template`: see `MemoryReader`. `versions` is None where
    changes are not kept. `baseline` gives a file's text as of a week ago, by default from the
    versions. `quiet` is entered around the replacing of rule files.
    """

    def __init__(
        self,
        root: Root,
        clock: Clock,
        template: Mapping[str, str] | None = None,
        *,
        prefix: str = "",
        versions: GitStore | None = None,
        baseline: Callable[[str], str | None] | None = None,
        quiet: Quiet = nullcontext,
    ) -> None:
        super().__init__(root, clock, template, prefix)
        self._versions = versions
        if baseline is None and versions is not None:
            baseline = WeekAgo(versions, clock, prefix)
        self._baseline = baseline
        self._quiet = quiet
        self._writing = asyncio.Lock()

    def fact_ages(self, path: str) -> dict[str, int]:
        """How many days ago each line of a document was written as it stands. Blocks.

        Without versions nothing is known, and nothing is told of lines not yet in a version.
        """
        if self._versions is None:
            return {}
        written = self._versions.written(self._prefix + path)
        return line_ages(self._fresh(path), written, self._clock.now())

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
                if path in BOOTSTRAP and not await asyncio.to_thread(self._checked, *wanted):
                    return 0
                async with self._quiet() if path in BOOTSTRAP else nullcontext():
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

        What is left over no longer fits. Of the lines that go thereby, the `retired` ones move to
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
        async with self._writing, self._quiet():
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
        if self._versions is not None and path in VERSIONED:
            return self._versions.write(place.relative, current, new, change, put)
        put()
        return 0

    def _checked(
        self, path: str, text: str, expected: str, change: Change, excused: Sequence[str]
    ) -> tuple[Place, bytes | None, bytes] | None:
        """What is to be written where, and what stands there; None where that is the same."""
        place = self._root.place(self._prefix + path)
        current = place.read_bytes(LIMIT)
        standing = text_of(current)
        if standing != expected.removeprefix(BOM):
            raise WriteConflict(place.shown)
        self._guard(path, standing, text.removeprefix(BOM), change, excused)
        new = bytes_of(text, current)
        if new == (current or b"") and not change.cursors:
            return None
        return place, current, new

    def _guard(
        self, path: str, standing: str, text: str, change: Change, excused: Sequence[str]
    ) -> None:
        """Raises `ToolError` where `text` may not replace `standing`."""
        if reason := self._refusal(path, standing, text, change, excused):
            logger.warning("a write to {}{} was refused: {}", self._prefix, path, reason)
            raise ToolError(f"{path} was not written: {reason}")

    def _refusal(
        self, path: str, standing: str, text: str, change: Change, excused: Sequence[str]
    ) -> str:
        if change.author == "sync":  # both devices' facts, however many
            return ""
        if path in GUARDED and change.author not in PERSONAL:
            baseline = partial(self._baseline, path) if self._baseline is not None else None
            template = self._template.get(path, "")
            named = (*excused, *self._lately_retired())
            return guard.refusal(standing, text, template, baseline=baseline, excused=named)
        return guard.oversize(standing, text) if path in GUARDED | BOOTSTRAP else ""

    def template_of(self, path: str) -> str:
        """What a file holds before anything was learned; empty for one that begins empty."""
        return self._template.get(path, "")

    def _lately_retired(self) -> list[str]:
        since = self._clock.now().date() - timedelta(days=8)
        return [line for day, line in retired_in(self._fresh(RETIRED)) if day >= since]

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
        places = [self._root.place(self._prefix + path) for path in sorted(BOOTSTRAP)]
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
