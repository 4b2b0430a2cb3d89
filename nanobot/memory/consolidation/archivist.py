"""Putting a range of a conversation away: from messages to a committed history entry, and its
changes.

Invariant: a range commits only if it still stands as it was read, and in this order: the model's
answer, what waits for the person's word, the history entry (the commit point), the session's mark,
the changes of memory, the archive. A crash before the commit point leaves the range in the prompt;
after it, `catch_up` and `Ledger.settle` make up for what is missing.

What a person takes back (`/discard`, `/undo`, `/forget`) does not enter memory: from the last look
at the range until the session is marked, `Session.parting` is held, and whoever takes messages back
needs it too. So they come first, and the range does not stand any more (a retraction that is only
staged counts), or they find a conversation whose old part is memory's already. Nothing that was
appended ever has to be taken out again, and there is no moment at which a crash could leave both.
The lock is held for a few writes, never for a model.

An entry of the history holds its range and the changes of memory that it stands for, which the
`Ledger` carries out from it, now or after a crash. Everything of a scope happens in the order of
its entries, one at a time, so that one number says how far the changes are carried out; it is kept
in `memory/.applied`. It is a hint: a version that names the entry counts as well, and carrying out
a change twice changes nothing. It is there before the first entry is; where somebody removed or
spoilt it, the newest entry alone is looked at, so that an old change does not bring back what was
forgotten since. A fact that a new one replaces, rather than rewords, is retired with its date.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, PathRefused, StorageError, ToolError, WriteConflict
from nanobot.memory.consolidation.limits import Patience
from nanobot.memory.consolidation.planning import Chunk, line_cost, split_range
from nanobot.memory.consolidation.summariser import Draft, Summariser
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.forgetting.forgotten import Forgotten
from nanobot.memory.history.log import HistoryEntry
from nanobot.memory.scopes import OWNER, Memory
from nanobot.memory.store.guard import lost_facts
from nanobot.memory.versions.gitstore import GitStore
from nanobot.memory.versions.version import Change
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session

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


Haste = Literal["patient", "urgent", "raw"]
"""What to do where the model is out, or takes too long for who waits: leave the range where it is,
or archive it raw. `raw` does not ask the model at all."""

_NOTICE_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class PutAway:
    """Whether the whole range was put away, and what was, as a line for people (empty: nothing).

    `changed` says why it was not: the range no longer stood as it was read. Else the model was out.
    """

    done: bool
    notice: str = ""
    changed: bool = False


@dataclass(frozen=True, slots=True)
class _Committed:
    """What became of a chunk: no entry where it had no content; `held` changes wait."""

    entry: HistoryEntry | None = None
    held: int = 0


class _Changed(Exception):
    """The range no longer stands as it was read: it stays where it is."""


class Archivist:
    """Puts ranges away. `memory_of` is the memory that a session belongs to."""

    def __init__(
        self,
        *,
        summariser: Summariser,
        ledger: Ledger,
        sessions: SessionManager,
        clock: Clock,
        memory_of: Callable[[Session], Memory],
        patience: Patience,
    ) -> None:
        self._summariser, self._ledger, self._sessions = summariser, ledger, sessions
        self._patience = patience
        self._clock, self._memory_of = clock, memory_of
        self._caught_up: WeakKeyDictionary[Session, int] = WeakKeyDictionary()

    async def catch_up(self, session: Session) -> None:
        """Mark as consolidated what the history holds already.

        Costs something only once for each session in memory, and where its file went back.
        """
        known = self._caught_up.get(session)
        if known is not None and session.last_consolidated >= known:
            return
        history = self._memory_of(session).history
        while True:
            seq = session.last_consolidated + 1
            entry = await asyncio.to_thread(history.covering, session.key, seq)
            # An entry from before the session began is about another one of the same name.
            if entry is None or entry.timestamp < session.created_at.replace(microsecond=0):
                break
            if entry.last < seq or seq >= session.next_seq:
                break
            self._sessions.mark_consolidated(session, min(entry.last, session.next_seq - 1))
        self._caught_up[session] = session.last_consolidated

    async def put_away(
        self, session: Session, last: int, messages: Sequence[Message], haste: Haste
    ) -> PutAway:
        """Put away what follows `last_consolidated`, up to the seq `last`.

        `messages` are those of the range that were not retracted. A range that is too long for one
        request becomes several entries. It is not done where the model is out and nobody is in a
        hurry, or the session changed meanwhile; what is committed by then stays so. Raises
        `StorageError`.
        """
        memory = self._memory_of(session)
        results = list[_Committed]()
        changed = False
        try:
            for chunk in self._chunks(session, last, messages, memory, haste):
                result = await self._put_chunk_away(session, chunk, memory, haste)
                if result is None:
                    break
                results.append(result)
        except _Changed:
            changed = True
        done = session.last_consolidated >= last
        entries = [result.entry for result in results if result.entry is not None]
        if not entries:
            return PutAway(done, changed=changed)
        await self._archive(session)
        count = sum(message.seq <= entries[-1].last for message in messages)
        text = notice(count, entries, sum(result.held for result in results))
        logger.info("{}: {} messages were put away into memory", session.key, count)
        return PutAway(done, text, changed)

    async def consolidate(
        self, session_key: str, messages: Sequence[Message], memory: Memory
    ) -> HistoryEntry:
        """Put messages into `memory` whatever session they are from, without marking one."""
        chunk = Chunk(session_key, messages[0].seq, messages[-1].seq, tuple(messages))
        draft = None if self._summariser.is_out else await self._summariser.summarise(chunk, memory)
        draft = draft or self._summariser.raw(chunk)
        await self._hold(chunk, memory, draft)
        entry = self._entry(chunk, draft)
        return await self._ledger.commit(memory, entry) or entry

    def _chunks(
        self,
        session: Session,
        last: int,
        messages: Sequence[Message],
        memory: Memory,
        haste: Haste,
    ) -> list[Chunk]:
        """The range in pieces that fit a request each; their seqs join without a gap."""
        whole = Chunk(session.key, session.last_consolidated + 1, last, tuple(messages))
        if haste == "raw" or whole.is_unattended:
            return [whole]
        room = self._summariser.room(memory)
        costs = [line_cost(message, room) for message in messages]
        first, start = whole.first, 0
        chunks = list[Chunk]()
        for end in split_range(messages, costs, room) or [0]:
            upto = messages[end].seq - 1 if end < len(messages) else last
            chunks.append(Chunk(session.key, first, upto, tuple(messages[start:end])))
            first, start = upto + 1, end
        return chunks

    async def _put_chunk_away(
        self, session: Session, chunk: Chunk, memory: Memory, haste: Haste
    ) -> _Committed | None:
        """None where the range waits for the model. Raises `_Changed`."""

        def mark() -> None:
            self._sessions.mark_consolidated(session, chunk.last)

        if not chunk.shown:
            mark()
            return _Committed()
        draft = await self._draft(chunk, memory, haste)
        if draft is None:
            return None
        standing = partial(self._standing, session, chunk, memory, draft)
        try:
            entry = await self._ledger.commit(memory, self._entry(chunk, draft), mark, standing)
        except BaseException:
            # The entry may stand although this failed: the next one looks before it goes on.
            self._caught_up.pop(session, None)
            raise
        if entry is None:
            raise _Changed
        return _Committed(entry, len(draft.held))

    async def _draft(self, chunk: Chunk, memory: Memory, haste: Haste) -> Draft | None:
        """None where the range has to wait for the model."""
        if haste == "raw" or chunk.is_unattended:
            return self._summariser.raw(chunk)
        hopeless = haste == "urgent" and self._summariser.is_out
        draft = None if hopeless else await self._asked(chunk, memory)
        if draft is None and haste == "urgent":
            return self._summariser.raw(chunk)
        return draft

    async def _asked(self, chunk: Chunk, memory: Memory) -> Draft | None:
        """The model's draft; None where it is out, or somebody waited long enough."""
        if self._patience.is_over(chunk.session):
            return None
        call = self._summariser.summarise(chunk, memory)
        try:
            return await self._patience.allow(chunk.session, call)
        except TimeoutError:
            self._summariser.gave_up(chunk)
            return None

    @asynccontextmanager
    async def _standing(
        self, session: Session, chunk: Chunk, memory: Memory, draft: Draft
    ) -> AsyncIterator[bool]:
        """Keeps the range as it is, and says whether it still is what was read. Where it is, what
        waits for the person is held back now: before the commit point, since held twice is once."""
        async with session.parting:
            stands = await self._stands(session, chunk, memory)
            if stands:
                await self._hold(chunk, memory, draft)
            yield stands

    async def _stands(self, session: Session, chunk: Chunk, memory: Memory) -> bool:
        """Whether nothing of the range was retracted, discarded, erased or put away meanwhile."""
        if await asyncio.to_thread(_is_forgotten, memory, chunk):
            return False
        if session.is_being_retracted(chunk.first, chunk.last):
            return False
        if session.last_consolidated + 1 != chunk.first:
            return False
        if session.epoch_seq >= chunk.last:  # sealed: only the disk has it
            now: Sequence[Message] = await asyncio.to_thread(
                self._sessions.read_window, session.key, chunk.first, chunk.last
            )
        else:
            now = [m for m in session.messages if m.seq <= chunk.last]
        return tuple(now) == chunk.messages

    def _entry(self, chunk: Chunk, draft: Draft) -> HistoryEntry:
        return HistoryEntry(
            cursor=0,
            timestamp=self._clock.now(),
            type=draft.type,
            session=chunk.session,
            first=chunk.first,
            last=chunk.last,
            summary=draft.summary,
            key_facts=draft.key_facts,
            operations=draft.operations,
            origin=chunk.origins,
        )

    async def _hold(self, chunk: Chunk, memory: Memory, draft: Draft) -> None:
        """Let changes wait for the person."""
        if not draft.held:
            return
        try:
            change = Change("consolidate", "held back", session=chunk.session)
            held = await memory.pending.hold(draft.held, LONG_TERM, chunk.origins, change)
            # Others than the owner are not disturbed by what they did not ask for.
            await memory.pending.tell(held, chunk.session if memory.scope == OWNER else "")
        except StorageError:
            raise
        except NanobotError as error:
            logger.warning("{}: unconfirmed facts were dropped: {}", chunk.session, error)

    async def _archive(self, session: Session) -> None:
        try:
            await self._sessions.archive(session)
        except StorageError as error:
            logger.warning("{}: not archived for now: {}", session.key, error)


def _is_forgotten(memory: Memory, chunk: Chunk) -> bool:
    """Whether `/forget`, which notes that first, takes a message of the range back. Blocks."""
    forgotten = Forgotten(memory.root)
    return any(forgotten.hides_message(chunk.session, message) for message in chunk.messages)


def notice(count: int, entries: Sequence[HistoryEntry], held: int = 0) -> str:
    """One line for people: how many messages were put away, and how many facts wait for them."""
    many = f"{count} message{'s' * (count != 1)}"
    waits = (
        f" {held} new fact{'s' * (held != 1)} from elsewhere wait for your word." if held else ""
    )
    if any(entry.type == "raw" for entry in entries):
        kept = "put away word for word, not summarised yet; search and Dream find them."
        return f"{many} {kept}{waits}"
    summary = entries[-1].summary
    if len(summary) > _NOTICE_CHARACTERS:
        summary = f"{summary[: _NOTICE_CHARACTERS - 1].rstrip()}…"
    return f"{many} put away into memory: {summary}{waits}"
