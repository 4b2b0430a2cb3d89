"""`MemoryStore`: the only reader and writer of a scope's long-term files and daily notes.

Every write is a compare-and-swap: it gives the text that it is based on, and is rejected if the
file has changed. It is also checked by the guard, versioned and atomic. There is one writer at a
time.

A person may edit any of these files at any time. Reads notice changes by the file's time, size and
inode, and cost one system call per unchanged file, so the event loop may read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import date, timedelta
from functools import partial
from typing import TypeVar

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace as altered

from nanobot.errors import NanobotError, StorageError, ToolError, WriteConflict
from nanobot.io import FileState, lstate_of
from nanobot.memory import guard
from nanobot.memory.digests import month_of
from nanobot.memory.documents import (
    ALL_FACTS,
    FACTS,
    LONG_TERM,
    PENDING,
    PERSONAL,
    RETIRED,
    RULES,
    TRACKED,
    bytes_of,
    redact_file,
    text_of,
)
from nanobot.memory.gitstore import LIMIT, GitStore
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import Operation, apply_operations, split
from nanobot.memory.losses import FactLosses, Loss, lines_to_retire, read_retired, with_retired
from nanobot.memory.model_text import clean_text
from nanobot.memory.taint import find_unconfirmed, mark_of
from nanobot.memory.version import Author, Change

_ATTEMPTS = 5
_BUDGETS = {LONG_TERM: guard.FACTS_BUDGET}

Quiesce = Callable[[], AbstractAsyncContextManager[None]]
"""Keeps commands from running while a rule file (`RULES`) is replaced: their sandbox holds on to
the old file."""

BeforeChange = Callable[[str, bytes | None, bytes], None]
"""Takes the path, the old and the new content in a worker thread. Raising cancels the change."""

Result = TypeVar("Result")


# Control characters that no editor writes, but a power loss or a broken disk does.
_NO_TEXT = re.compile("[\0-\x08\x0b\x0e-\x1f]")


class Outcome(Struct, frozen=True):
    """The result of operations: the version, the operations that no longer fit, and those held
    for the person's approval because they remove too many facts."""

    version: int
    left: tuple[Operation, ...] = ()
    beyond: tuple[Operation, ...] = ()

    def select_applied(self, operations: Iterable[Operation]) -> tuple[Operation, ...]:
        return tuple(one for one in operations if one not in (*self.left, *self.beyond))


class _Write(Struct, frozen=True):
    """A document's new text, written if the document still has the `expected` one."""

    path: str
    text: str
    expected: str
    change: Change
    before: BeforeChange | None = None


class MemoryStore:
    """The memory of the scope with these `versions`, in the work tree that the tools write through.

    Paths are relative to the scope's folder, which the first write creates. A missing file has the
    text "". `template` is the initial text of each file, which counts neither as memory nor as a
    fact. `quiesce` is entered around the replacement of rule files. Prompts have the notes of the
    last `recent_days` days."""

    def __init__(
        self,
        versions: GitStore,
        template: Mapping[str, str] | None = None,
        quiesce: Quiesce = nullcontext,
        on_loss: Callable[[Loss], Awaitable[None]] | None = None,
        recent_days: int = 2,
    ) -> None:
        self._versions = versions
        self._root, self._clock, self._prefix = versions.work_tree, versions.clock, versions.prefix
        self._folder = f"{self._root.path}/{self._prefix}"
        self._template = template or {}
        self._quiesce, self._recent_days = quiesce, recent_days
        self._lock, self._on_loss = asyncio.Lock(), on_loss
        self._losses = FactLosses(versions, self.template_of)
        self._day = date.min
        self.problems: dict[str, str] = {}
        """The reasons why documents were unusable at the last read, by path."""
        self._texts: dict[str, tuple[FileState | None, str]] = {}
        self._memory_text: tuple[tuple[str, ...], str] = ((), "")

    # Reading

    def is_document(self, path: str) -> bool:
        """Return True if writes to `path` must use this store."""
        return path in RULES or path.startswith("memory/")

    def template_of(self, path: str) -> str:
        """Return the initial text of a file, or ""."""
        return self._template.get(path, "")

    def read(self, path: str) -> str:
        """Return the text of a document, or "" if it is missing. Raise `PathRefused` for a link."""
        fingerprint = lstate_of(f"{self._folder}{path}")
        known = self._texts.get(path)
        if known is None or known[0] != fingerprint:
            if self._day != (today := self.today()):  # keep no notes of past days
                self._texts.clear()
                self._day = today
            self.problems.pop(path, None)
            try:
                # The state is from before the read, so the next read notices a change in between.
                known = self._texts[path] = (fingerprint, self._read_now(path))
            except NanobotError as error:
                self.problems[path] = f"cannot be read: {error}"
                raise
            if _NO_TEXT.search(known[1]):
                self.problems[path] = "is damaged: it contains bytes that are not text"
        return known[1]

    def reread(self) -> None:
        """Drop the cached documents, because another worker of a team may have changed them."""
        self._texts.clear()

    def today(self) -> date:
        return self._clock.now().date()

    def today_path(self, ago: int = 0) -> str:
        """Return the path of today's notes, or of those from `ago` days before."""
        return note_path(self.today() - timedelta(days=ago))

    def recent_note_paths(self, days: int = 0) -> list[str]:
        """Return the paths of the notes of the last `days` days (0: those in prompts), today's
        first."""
        today, count = self.today(), days or self._recent_days
        return [note_path(today - timedelta(days=ago)) for ago in range(count)]

    def note_days(self) -> list[date]:
        return sorted(filter(None, map(day_of, self._names())))

    def digest_months(self) -> list[str]:
        return sorted(filter(None, map(month_of, self._names())))

    def files_by_hand(self) -> list[str]:
        """Return the sorted paths of the person's own files next to the notes. Blocks."""
        return sorted(f"memory/{name}" for name in filter(is_by_hand, self._names()))

    def facts(self, path: str) -> list[str]:
        return guard.fact_lines(self.read(path), self.template_of(path))

    def read_learned(self, path: str) -> str:
        """Return the text of a document, or "" if it states no facts and so is not needed in a
        prompt."""
        text = without_importance(self.read(path))
        return text.strip() if guard.states_facts(text, self.template_of(path)) else ""

    def fact_ages(self, path: str) -> dict[str, int]:
        """Return for each versioned line of a document how many days ago it got its wording.
        Blocks."""
        written, now = self._versions.line_times(self._prefix + path), self._clock.now()
        text = without_importance(self._read_now(path))
        lines = {line.strip() for line in split(text)}
        return {line: max(0, (now - written[line]).days) for line in lines if line in written}

    def new_run(self, author: Author) -> str:
        """Return the name of a run for changes that belong together. Blocks."""
        return f"{author} {self._versions.tip_number() + 1}"

    def list_retired(self) -> list[tuple[date, str]]:
        """Return the outdated facts, each with the day on which it was retired.

        A fact that is in a file again, because its retirement was undone, is left out."""
        try:
            return read_retired(self.read(RETIRED), map(self.read, FACTS))
        except NanobotError as error:
            logger.warning("{} cannot be read: {}", RETIRED, error)
            return []

    def read_unconfirmed_notes(self) -> str:
        """Return the notes in a prompt that untrusted content may have caused."""
        # One more day, because a turn may have begun yesterday.
        paths = self.recent_note_paths(self._recent_days + 1)
        texts = filter(None, map(self._text_or_error, paths))
        return "\n".join(filter(None, map(find_unconfirmed, texts)))

    def get_recent_memories(self, days: int = 7, *, skip: int = 0) -> str:
        """Return the notes of the last `days` days, today's first, with a rule between two days.

        The newest `skip` days and days without notes are left out.
        """
        texts = (self._text_or_error(self.today_path(ago)) for ago in range(skip, days))
        return "\n\n---\n\n".join(filter(None, map(str.strip, texts)))

    def get_memory_context(self, shown: str = "") -> str:
        """Return the `# Memory` part of the system prompt, or "" if memory is empty. `shown`
        replaces the text of MEMORY.md if not all of it fits."""
        long_term, days = self._text_or_error(LONG_TERM), self._recent_days
        parts = ["# Memory"]
        if guard.states_facts(long_term, self.template_of(LONG_TERM)):
            shown = shown or without_importance(long_term).strip()
            parts.append(f"## Long-term Memory\n\n{shown}")
        if notes := self.get_recent_memories(min(days, 1)):
            parts.append(f"## Today's Notes\n\n{notes}")
        if earlier := self.get_recent_memories(days, skip=1):
            parts.append(f"## Earlier Notes\n\n{earlier}")
        return "\n\n".join(parts) if len(parts) > 1 else ""

    def memory_text(self) -> str:
        """Return the long-term files and the recent notes as one text, joined by newlines. It is
        the same object until something changes, so that the conversations of a scope, which each
        keep it, share the memory."""
        texts = tuple(map(self.read, (LONG_TERM, *self.recent_note_paths(), *PERSONAL)))
        if self._memory_text[0] != texts:
            self._memory_text = (texts, "\n".join(texts))
        return self._memory_text[1]

    def _text_or_error(self, path: str) -> str:
        try:
            return self.read(path)
        except NanobotError as error:
            logger.warning("{} cannot be read: {}", path, error)
            return f"{path} cannot be read now"

    def _names(self) -> list[str]:
        folder = self._root.place(f"{self._prefix}memory")
        entries = folder.entries() if folder.stat() else ()
        return [entry.name for entry in entries if entry.kind == "file"]

    def _read_now(self, path: str) -> str:
        return text_of(self._root.place(self._prefix + path).read_bytes(LIMIT))

    # Writing

    async def replace(self, path: str, text: str, *, expected: str | None, change: Change) -> int:
        """Replace a document if it still has the text `expected` (None or empty: no text).

        Return the number of the version, 0 for none. Raise `WriteConflict` if the document has
        changed, `ToolError` with the reason if the guard rejects the text, and `StorageError` if
        the disk fails."""
        async with self._lock:
            return await self._put(_Write(path, text, expected or "", change))

    async def edit(
        self,
        path: str,
        edited: Callable[[str], str],
        change: Change,
        *,
        before: BeforeChange | None = None,
    ) -> int:
        """Replace a document by the result of `edited` for its current text."""
        async with self._lock:
            return await retry_conflicts(lambda: self._edit(path, edited, change, before))

    async def apply(
        self,
        path: str,
        operations: Sequence[Operation],
        change: Change,
        *,
        retired: Sequence[str] = (),
        before: BeforeChange | None = None,
    ) -> Outcome:
        """Apply line operations to a document as it is now.

        Of the removed lines, the `retired` ones move to retired.md. Operations that would remove
        too many facts are left out. Raise `ToolError` if the guard rejects the text."""
        async with self._lock:
            return await retry_conflicts(
                lambda: self._apply(path, operations, change, retired, before)
            )

    async def record_hand_edits(self, author: Author = "you") -> int:
        """Record the changes since the last version as a version by the person, or by another known
        `author`. Return its number, 0 for none."""
        if not self._versions.is_held():
            return 0
        return await asyncio.to_thread(self._versions.record_hand_edits, author)

    async def note_hand_edits(self) -> None:
        """Record the person's changes as a version before versions are read. A disk failure only
        delays this."""
        try:
            await self.record_hand_edits()
        except StorageError as error:
            logger.warning("manual changes have not been recorded as a version yet: {}", error)

    async def append_today(
        self, text: str, *, before: BeforeChange | None = None, origins: Iterable[str] = ()
    ) -> str:
        """Add a note to today's, and return the path of its file.

        `origins` name untrusted content that may have caused it. The note is then marked with
        them."""
        if not clean_text(text).strip():
            raise ToolError("the note is empty")
        path, now, mark = self.today_path(), self._clock.now(), mark_of(origins)
        first, *more = (line.rstrip() for line in clean_text(text).strip().split("\n"))
        lines = [f"- {now:%H:%M} {mark}{first}", *(f"  {line}".rstrip() for line in more)]

        def with_note(notes: str) -> str:
            begun = notes if notes.strip() else f"# {now.date().isoformat()}\n\n"
            return "\n".join([begun.removesuffix("\n"), *lines, ""])

        await self.edit(path, with_note, Change("agent"), before=before)
        return path

    async def rewrite(self, redact: Callable[[str], str]) -> int:
        """Pass every document, note and digest through `redact`, and count the changed files.

        This erases text for good: the guard does not check it, and no version records it."""
        async with self._lock, self._quiesce():
            try:
                return await asyncio.to_thread(self._rewrite, redact)
            finally:
                self._texts.clear()
                self._memory_text = ((), "")

    async def _apply(
        self,
        path: str,
        operations: Sequence[Operation],
        change: Change,
        retired: Sequence[str],
        before: BeforeChange | None,
    ) -> Outcome:
        text = await asyncio.to_thread(self._read_now, path)
        steps, beyond = list(operations), tuple[Operation, ...]()
        if change.author not in guard.BY_PERSON:
            steps = [clean_operation(one) for one in operations]
            if path in FACTS:
                within = self._losses.within_bounds
                steps, beyond = await asyncio.to_thread(within, path, text, steps)
        applied = await asyncio.to_thread(apply_operations, text, steps)
        made = tuple(operation for operation in steps if operation not in applied.left)
        full = altered(change, operations=made if beyond else change.operations or made)
        going = lines_to_retire(text, applied.text, retired)
        write = _Write(path, applied.text, text, full, before)
        if going:
            # Check before retiring: else a rejected write leaves the lines in both files.
            await asyncio.to_thread(self._guard, write)
            # The operations and their evidence belong to the version of the file itself.
            retiring = altered(change, cursors=(), operations=())
            await self._edit(RETIRED, lambda now: with_retired(now, self.today(), going), retiring)
        return Outcome(await self._put(write), applied.left, beyond)

    async def _edit(
        self,
        path: str,
        edited: Callable[[str], str],
        change: Change,
        before: BeforeChange | None = None,
    ) -> int:
        text = await asyncio.to_thread(self._read_now, path)
        return await self._put(_Write(path, edited(text), text, change, before))

    async def _put(self, write: _Write) -> int:
        path = write.path
        if write.text == write.expected and not write.change.cursors:
            return 0
        try:
            async with self._quiesce() if path in RULES else nullcontext():
                number, loss = await asyncio.to_thread(self._replace, write)
        finally:
            # A replaced file can have the same time, size and even inode as the one before.
            self._texts.pop(path, None)
        logger.debug("{}{} was written by {}", self._prefix, path, write.change.author)
        if loss and self._on_loss:
            await self._on_loss(loss)
        return number

    def _replace(self, write: _Write) -> tuple[int, Loss | None]:
        path, author = write.path, write.change.author
        place = self._root.place(self._prefix + path)
        current = place.read_bytes(LIMIT)
        if text_of(current) != write.expected:
            raise WriteConflict(place.label)
        self._guard(write)
        new = bytes_of(write.text, current)
        if write.before is not None:
            write.before(place.relative, current, new)
        put = partial(place.write_bytes, new, expected=current)
        if path not in TRACKED:
            put()
            return 0, None
        number = self._versions.write(place.relative, current, new, write.change, put)
        if path not in FACTS or author in guard.BY_PERSON:
            return number, None
        return number, self._losses.loss(path, write.expected, write.text, number)

    def _guard(self, write: _Write) -> None:
        """Raise `ToolError` if the text may not replace the previous one."""
        path, author, old, new = write.path, write.change.author, write.expected, write.text
        reason = ""
        if self._prefix and not _is_kept_for_others(path):
            reason = "only the owner has such a file"
        elif path in FACTS and author not in guard.BY_PERSON and not write.change.operations:
            # Operations that would remove too many facts are already left out.
            reason = self._losses.refusal(path, old, new)
        # A sync may exceed the size: it has the facts of both devices.
        if not reason and path in {*FACTS, *RULES} and author != "sync":
            reason = guard.oversize(old, new, _BUDGETS.get(path, guard.SIZE_BUDGET))
        if reason:
            logger.warning("rejected a write to {}{}: {}", self._prefix, path, reason)
            raise ToolError(f"{path} was not written: {reason}")

    def _rewrite(self, redact: Callable[[str], str]) -> int:
        places = [self._root.place(self._prefix + path) for path in sorted(RULES)]
        folder = self._root.place(f"{self._prefix}memory")
        if folder.stat() is not None:
            kept = (name for name in self._names() if name.endswith(".md") and not is_by_hand(name))
            places += map(folder.child, kept)
        return sum(redact_file(place, redact) for place in places)


async def retry_conflicts(write: Callable[[], Awaitable[Result]]) -> Result:
    """Write, and retry each time that an editor has just saved the file."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(WriteConflict):
            return await write()
    return await write()


def clean_operation(step: Operation) -> Operation:
    """Return the operation without invisible characters in the text that it adds."""
    lines = [re.sub(r"\s", " ", clean_text(line)).rstrip() for line in (step.new, step.section)]
    if lines == [step.new, step.section]:
        return step
    return altered(step, new=lines[0], section=lines[1])


def note_path(day: date) -> str:
    return f"memory/{day.isoformat()}.md"


def is_by_hand(name: str) -> bool:
    """Return True for a Markdown file in the memory folder that nanobot does not manage."""
    if day_of(name) or month_of(name) or not name.lower().endswith(".md"):
        return False
    return not name.startswith(".") and f"memory/{name}" not in {*TRACKED, "memory/HISTORY.md"}


def _is_kept_for_others(path: str) -> bool:
    """Return True if scopes other than the owner's have such a document: memory, but no rules that
    other programs may obey."""
    folder, _, name = path.rpartition("/")
    kept = path in {*ALL_FACTS, PENDING}
    return kept or (folder == "memory" and bool(day_of(name) or month_of(name)))


def day_of(name: str) -> date | None:
    """Return the day of a note file with this name, or None."""
    try:
        day = date.fromisoformat(name.removesuffix(".md"))
    except ValueError:
        return None
    return day if name == f"{day.isoformat()}.md" else None
