"""Putting a range of a conversation away: from messages to a committed history entry, and its
changes.

Invariant: a range commits only if it still stands as it was read, and in this order: the model's
answer, what waits for the person's word, the history entry (the commit point), the session's mark,
the changes of memory, the archive. A crash before the commit point leaves the range in the prompt;
after it, `catch_up` and `settle` make up for what is missing.

What a person takes back (`/discard`, `/undo`, `/forget`) does not enter memory: from the last look
at the range until the session is marked, `Session.parting` is held, and whatever takes messages
back needs it too. So it comes first, and the range does not stand any more (a retraction that is
only staged counts), or it finds a conversation whose old part is memory's already. Nothing that was
appended ever has to be taken out again, and there is no moment at which a crash could leave both.
The lock is held for a few writes, never for a model.

An entry of the history holds its range and the changes of memory that it stands for, which are
carried out from it, now or after a crash. Everything of a scope happens in the order of its
entries, one at a time, so that one number says how far they are carried out (`HistoryLog.applied`).
It is a hint: a version that names the entry counts as well, and carrying out a change twice changes
nothing. A fact that a new one replaces, rather than rewords, is retired with its date.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import NanobotError, PathRefused, StorageError, ToolError, WriteConflict
from nanobot.memory.consolidation.planning import Chunk, pick_window_boundary
from nanobot.memory.consolidation.summariser import Draft, Summariser
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.forget import Forgotten
from nanobot.memory.gitstore import GitStore
from nanobot.memory.guard import lost_facts
from nanobot.memory.history import HistoryEntry
from nanobot.memory.scopes import OWNER, Memory
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.tasks import Background, is_cancelled
from nanobot.text import counted, shortened

T = TypeVar("T")

Haste = Literal["patient", "urgent", "raw"]
"""What to do where the model is out, or takes too long for who waits: leave the range where it is,
or archive it raw. `raw` does not ask the model at all."""

SECONDS = 30.0
"""How long a turn waits for the model to make room, in all."""

_MOST = 100
"""Messages of one entry, rounded to a turn."""

_LONGEST_SUMMARY, _LONGEST_NOTICE = 100, 160
"""Characters."""


class Patience:
    """Ends calls of the model for conversations whose turn has waited long enough. There is one
    call and one waiting turn at a time for a key."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock, self._background = clock, background
        self._over: set[str] = set()
        self._running: dict[str, asyncio.Task[Any]] = {}

    @contextmanager
    def limited(self, key: str) -> Iterator[None]:
        """Meanwhile the calls for `key` have `SECONDS` in all; the one that runs is among them."""
        timer = self._background.start(self._end_later(key), name=f"patience {key}")
        try:
            yield
        finally:
            timer.cancel()
            self._over.discard(key)

    async def ask(self, key: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What comes of `call`. Raises `TimeoutError` where there is no time for it any more."""
        if key in self._over:
            raise TimeoutError
        task = self._running[key] = self._background.start(call(), name=f"ask for {key}")
        try:
            result: T = await task
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise TimeoutError from None
        finally:
            del self._running[key]
        return result

    async def _end_later(self, key: str) -> None:
        await self._clock.sleep(SECONDS)
        self._over.add(key)
        if (task := self._running.get(key)) is not None:
            task.cancel()


class PutAway(Struct, frozen=True):
    """Whether the whole range was put away, and what was, as a line for people (empty: nothing).

    `changed` says why it was not: the range no longer stood as it was read. Else the model was out.
    """

    done: bool
    notice: str = ""
    changed: bool = False


class _Changed(Exception):
    """The range no longer stands as it was read: it stays where it is."""


class Archivist:
    """Puts ranges away. `memory_of` is the memory that a session belongs to; `versions` is None
    where none are kept."""

    def __init__(
        self,
        *,
        summariser: Summariser,
        patience: Patience,
        sessions: SessionManager,
        memory_of: Callable[[Session], Memory],
        versions: GitStore | None,
    ) -> None:
        self._summariser, self._patience = summariser, patience
        self._sessions, self._memory_of, self._versions = sessions, memory_of, versions
        self._scopes: dict[str, asyncio.Lock] = {}
        self.caught_up: WeakKeyDictionary[Session, int] = WeakKeyDictionary()

    async def catch_up(self, session: Session) -> None:
        """Mark as consolidated what the history holds already. Reads the history once for each
        session in memory, after a range was put away or not, and where its file went back."""
        if session.last_consolidated >= self.caught_up.get(session, math.inf):
            return
        await self._catch_up(session)
        self.caught_up[session] = session.last_consolidated

    async def _catch_up(self, session: Session) -> None:
        history = self._memory_of(session).history
        while (seq := session.last_consolidated + 1) < session.next_seq:
            if await asyncio.to_thread(history.committed, session.key) < seq:
                return
            entry = await asyncio.to_thread(history.covering, session.key, seq)
            # An entry from before the session began is about another one of the same name.
            if entry is None or entry.timestamp < session.created_at.replace(microsecond=0):
                return
            self._sessions.mark_consolidated(session, min(entry.last, session.next_seq - 1))

    async def put_away(
        self, session: Session, last: int, messages: Sequence[Message], haste: Haste
    ) -> PutAway:
        """Put away what follows `last_consolidated`, up to the seq `last`.

        `messages` are those of the range that were not retracted. A long range becomes several
        entries. It is not done where the model is out and nobody is in a hurry, or the session
        changed meanwhile; what is committed by then stays so. Raises `StorageError`.
        """
        self.caught_up.pop(session, None)  # whatever comes of it
        memory, rest = self._memory_of(session), tuple(messages)
        committed = list[Draft]()
        changed = False
        while session.last_consolidated < last:
            count = pick_window_boundary(rest, _MOST + 1, _MOST) or len(rest)
            upto = rest[count].seq - 1 if count < len(rest) else last
            chunk = Chunk(session.key, session.last_consolidated + 1, upto, rest[:count])
            rest = rest[count:]
            if not chunk.shown:
                self._sessions.mark_consolidated(session, chunk.last)
                continue
            if (draft := await self._draft(chunk, memory, haste)) is None:
                break
            try:
                committed.append(await self._commit(session, chunk, memory, draft))
            except _Changed:
                changed = True
                break
        done = session.last_consolidated >= last
        if not committed:
            return PutAway(done, changed=changed)
        try:
            await self._sessions.archive(session)
        except StorageError as error:
            logger.warning("{}: not archived for now: {}", session.key, error)
        count = sum(message.seq <= committed[-1].entry.last for message in messages)
        logger.info("{}: {} messages were put away into memory", session.key, count)
        return PutAway(done, notice(count, committed), changed)

    async def settle(self, memory: Memory) -> None:
        """Carry out the changes that a crash, or the disk, kept from being carried out."""
        async with self._lock(memory):
            await self._settle(memory)

    async def _draft(self, chunk: Chunk, memory: Memory, haste: Haste) -> Draft | None:
        """None where the range has to wait for the model."""
        if haste == "raw" or chunk.is_unattended:
            return self._summariser.raw(chunk)
        draft = None
        if haste == "patient" or not self._summariser.is_out:
            try:
                draft = await self._patience.ask(
                    chunk.session, lambda: self._summariser.summarise(chunk, memory)
                )
            except TimeoutError:
                self._summariser.gave_up(chunk)
        if draft is None and haste == "urgent":
            return self._summariser.raw(chunk)
        return draft

    async def _commit(self, session: Session, chunk: Chunk, memory: Memory, draft: Draft) -> Draft:
        """Commit the entry and carry out its changes, which never fail; the draft as it was
        committed. Raises `_Changed`, or `StorageError` where the entry could not be appended."""
        async with self._lock(memory):
            await asyncio.to_thread(_prepare, memory)
            async with session.parting:
                if not await self._stands(session, chunk, memory):
                    raise _Changed
                # Before the commit point, since held twice is once.
                await self._hold(chunk, memory, draft)
                entry = await asyncio.to_thread(memory.history.append, draft.entry)
                self._sessions.mark_consolidated(session, chunk.last)
            await self._settle(memory)
        return replace(draft, entry=entry)

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

    async def _settle(self, memory: Memory) -> None:
        """In order; stops at an entry that the disk does not take at present."""
        history = memory.history
        try:
            entries = await asyncio.to_thread(history.unapplied)
            known = frozenset[int]()
            if self._versions is not None and any(entry.operations for entry in entries):
                known = await asyncio.to_thread(self._versions.applied_cursors, memory.prefix)
            for entry in entries:
                if entry.operations and entry.cursor not in known:
                    await self._apply(memory, entry)
                await asyncio.to_thread(history.set_applied, entry.cursor)
        except NanobotError as error:
            logger.warning("{}: a change of memory waits: {}", memory.scope, error)

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


def _prepare(memory: Memory) -> None:
    """Make place for somebody's first entry, and see to it that what waits can be told from what is
    carried out. Blocks."""
    memory.root.create()
    memory.history.begin_applying()


def _is_forgotten(memory: Memory, chunk: Chunk) -> bool:
    """Whether `/forget`, which notes that first, takes a message of the range back. Blocks."""
    forgotten = Forgotten(memory.root)
    return any(forgotten.hides_message(chunk.session, message) for message in chunk.messages)


def notice(count: int, committed: Sequence[Draft]) -> str:
    """One line for people: how many messages were put away, and how many facts wait for them."""
    held = sum(len(draft.held) for draft in committed)
    facts = counted(held, "new fact")
    waits = f" {facts} from elsewhere wait for your word." if held else ""
    if any(draft.entry.type == "raw" for draft in committed):
        kept = "put away word for word, not summarised yet; search and Dream find them."
    else:
        kept = f"put away into memory: {shortened(committed[-1].entry.summary, _LONGEST_NOTICE)}"
    return f"{counted(count, 'message')} {kept}{waits}"
