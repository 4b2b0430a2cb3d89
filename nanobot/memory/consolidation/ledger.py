"""The commit point of consolidation, and what follows from it.

An entry of the history holds its range and the changes of memory that it stands for. Once it is
appended, the range is consolidated: what comes after (the session's mark, the changes) is carried
out from it, now or after a crash. Everything of a scope happens in the order of its entries, one at
a time, so that one number says how far the changes are carried out; it is kept in
`memory/.applied`. It is a hint: a version that names the entry counts as well, and carrying out a
change twice changes nothing. It is there before the first entry is; where somebody removed or
spoilt it, the newest entry alone is looked at, so that an old change does not bring back what was
forgotten since. A fact that a new one replaces, rather than rewords, is retired with its date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from loguru import logger

from nanobot.errors import NanobotError, PathRefused, StorageError, ToolError, WriteConflict
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.history.log import HistoryEntry
from nanobot.memory.scopes import Memory
from nanobot.memory.store.guard import lost_facts
from nanobot.memory.versions.gitstore import GitStore
from nanobot.memory.versions.version import Change

Standing = Callable[[], AbstractAsyncContextManager[bool]]
"""Keeps what an entry is about as it is, and says whether that still stands."""

_APPLIED = "memory/.applied"
_LONGEST_SUMMARY = 100
_MOST_DIGITS = 16


class Ledger:
    """Appends entries and carries out their changes. `versions` is None where none are kept."""

    def __init__(self, versions: GitStore | None = None) -> None:
        self._versions = versions
        self._scopes: dict[str, asyncio.Lock] = {}

    async def commit(
        self,
        memory: Memory,
        entry: HistoryEntry,
        on_committed: Callable[[], None] = lambda: None,
        standing: Standing = lambda: nullcontext(True),
    ) -> HistoryEntry | None:
        """Append `entry`, call `on_committed`, carry out its changes; returns it with its cursor.

        `standing` is entered as the last thing before, and left once `on_committed` was called:
        where it says that what the entry is about does not stand any more, nothing is done, and
        None is returned. Raises `StorageError` where the entry could not be appended; the changes
        themselves never raise.
        """
        async with self._lock(memory):
            await asyncio.to_thread(_begin, memory)
            async with standing() as stands:
                if not stands:
                    return None
                entry = await asyncio.to_thread(memory.history.append, entry)
                on_committed()
            await self._settle(memory)
        return entry

    async def settle(self, memory: Memory) -> None:
        """Carry out the changes that a crash, or the disk, kept from being carried out."""
        async with self._lock(memory):
            await self._settle(memory)

    async def _settle(self, memory: Memory) -> None:
        """In order; stops at an entry that the disk does not take at present."""
        try:
            done = await asyncio.to_thread(_applied, memory)
            entries = await asyncio.to_thread(memory.history.entries, done)
            carried_out = await self._carried_out(memory, entries)
            for entry in entries:
                if entry.operations and entry.cursor not in carried_out:
                    await self._apply(memory, entry)
                    done = entry.cursor
                    await asyncio.to_thread(_note_applied, memory, done)
            if entries and entries[-1].cursor != done:
                await asyncio.to_thread(_note_applied, memory, entries[-1].cursor)
        except NanobotError as error:
            logger.warning("{}: a change of memory waits: {}", memory.scope, error)

    async def _carried_out(self, memory: Memory, entries: list[HistoryEntry]) -> frozenset[int]:
        if self._versions is None or not any(entry.operations for entry in entries):
            return frozenset()
        return await asyncio.to_thread(self._versions.applied_cursors, memory.prefix)

    async def _apply(self, memory: Memory, entry: HistoryEntry) -> None:
        operations = tuple(replace(change, cursor=entry.cursor) for change in entry.operations)
        change = Change(
            "consolidate",
            summary=entry.summary[:_LONGEST_SUMMARY],
            session=entry.session,
            cursors=(entry.cursor,),
            operations=operations,
            run=f"history {entry.cursor}",
        )
        replaced = [made.old for made in operations if made.new and lost_facts(made.old, made.new)]
        try:
            _, left = await memory.store.apply(LONG_TERM, operations, change, retired=replaced)
        except (PathRefused, WriteConflict):  # not what is written but where: that waits
            raise
        except ToolError as error:  # refused: the entry says it, and Dream reads the entry
            logger.warning("history {}: memory was not changed: {}", entry.cursor, error)
            return
        if left:
            logger.info("history {}: {} changes no longer fit", entry.cursor, len(left))

    def _lock(self, memory: Memory) -> asyncio.Lock:
        return self._scopes.setdefault(memory.scope, asyncio.Lock())


def _applied(memory: Memory) -> int:
    """The cursor up to which changes are carried out."""
    try:
        content = memory.root.place(_APPLIED).read_bytes(64) or b""
    except StorageError:
        raise
    except NanobotError:
        content = b""
    last, number = memory.history.last_cursor(), content.strip()
    if number.isdigit() and len(number) < _MOST_DIGITS and int(number) <= last:
        return int(number)
    return max(0, last - 1)


def _begin(memory: Memory) -> None:
    """Before an entry is appended: write down that it is not carried out yet. Were there nothing to
    go by when the disk keeps its changes back, the next entry would be taken for the only one."""
    memory.root.create()  # somebody's first entry
    if memory.root.place(_APPLIED).stat() is None:
        _note_applied(memory, _applied(memory))


def _note_applied(memory: Memory, cursor: int) -> None:
    memory.root.place(_APPLIED).write_bytes(b"%d\n" % cursor)
