"""Consolidate a range of a conversation: from messages to a history entry and its changes.

Invariant: a range commits only if it is still as it was read, and in this order: the model's
answer, the facts that wait for the person, the history entry (the commit point), the session's
mark, the changes of memory, the archive. A crash before the commit point leaves the range in the
prompt. After it, `catch_up` and `apply_waiting` finish the rest.

Messages that a person takes back (`/discard`, `/undo`, `/forget`) do not enter memory. Whatever
takes messages back needs `Session.removal_lock`, which is held here from the last look at the range
until the session is marked. So a retraction, also one that is only staged, either comes first and
the range is rejected, or it finds messages that belong to memory already. Nothing ever has to be
taken out again. The lock is held for a few writes, never for a model.

An entry holds its range and its changes of memory, which are carried out from it, now or after a
crash, in the order of a scope's entries. So one number says how far they are carried out
(`HistoryLog.set_applied`). It is a hint: a version that names the entry counts as well, and making
a change twice changes nothing. A fact that a new one replaces, rather than rewords, is retired.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from typing import Literal

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import NanobotError, PathRefused, StorageError, ToolError, WriteConflict
from nanobot.memory.consolidation.planning import pick_window_boundary
from nanobot.memory.consolidation.summariser import Chunk, Draft, Summariser
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.forget import Forgotten
from nanobot.memory.guard import lost_facts
from nanobot.memory.history import HistoryEntry
from nanobot.memory.pending import NOT_SAID
from nanobot.memory.scopes import OWNER, Memory, is_group
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.text import pluralize, shorten

Urgency = Literal["patient", "urgent", "raw"]
"""What to do where the model is out, or takes too long for who waits: leave the range where it is,
or archive it raw. `raw` does not ask the model at all."""

OnTrouble = Callable[[str, str], Awaitable[None]]
"""Told a text for the owner and a name: the same name is told once. Must not raise."""

_MOST = 100
"""Messages of one entry, rounded to a turn."""

_LONGEST_SUMMARY, _LONGEST_NOTICE = 100, 160
"""Characters."""


class Archivist:
    """Puts ranges away. `on_trouble` tells the owner which changes of memory were not made."""

    def __init__(
        self, summariser: Summariser, sessions: SessionManager, on_trouble: OnTrouble | None
    ) -> None:
        self._summariser, self._sessions = summariser, sessions
        self._on_trouble = on_trouble
        self._scopes = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def catch_up(self, session: Session, memory: Memory) -> None:
        """Mark as consolidated what the history holds already. Raises `StorageError`."""
        newest = (await asyncio.to_thread(memory.history.newest)).get(session.key)
        if newest is None:
            return
        # An entry from before the session began is about another one of the same name. Nor is it
        # about messages that were said since then in a file that was put back.
        second = timedelta(seconds=1)  # an entry's time is in whole ones
        timed = ((one.seq, one.timestamp) for one in session.messages if one.timestamp)
        later = (seq for seq, said in timed if said - newest.when >= second)
        committed = min(newest.since(session.created_at), next(later, session.next_seq) - 1)
        if committed > session.last_consolidated:
            self._sessions.mark_consolidated(session, committed)

    async def consolidate(
        self,
        session: Session,
        memory: Memory,
        last: int,
        messages: Sequence[Message],
        urgency: Urgency,
    ) -> str:
        """Consolidate what follows `last_consolidated`, up to the seq `last`; say in a line for
        people what was, empty for nothing.

        `messages` are those of the range that were not retracted. A long range becomes several
        entries. `last_consolidated` stays behind `last` where the model is out and nobody is in a
        hurry, or the session changed meanwhile. Raises `StorageError`; what is committed stays so.
        """
        rest, committed = tuple(messages), list[Draft]()
        while session.last_consolidated < last:
            count = pick_window_boundary(rest, _MOST + 1, _MOST) or len(rest)
            upto = rest[count].seq - 1 if count < len(rest) else last
            chunk = Chunk(session.key, session.last_consolidated + 1, upto, rest[:count])
            rest = rest[count:]
            if not chunk.shown:
                self._sessions.mark_consolidated(session, chunk.last)
                continue
            draft = await self._draft(chunk, memory, urgency)
            if draft is None or not await self._commit(session, chunk, memory, draft):
                break
            committed.append(draft)
        if not committed:
            return ""
        try:
            await self._sessions.archive(session)
        except StorageError as error:
            logger.warning("{}: not archived yet: {}", session.key, error)
        count = sum(message.seq <= committed[-1].entry.last for message in messages)
        logger.info("{}: consolidated {} messages", session.key, count)
        return _notice(count, committed)

    async def apply_waiting(self, memory: Memory) -> None:
        """Carry out the changes that are not carried out yet, in order, as far as the disk takes
        them at present."""
        async with self._scopes[memory.scope]:
            try:
                entries = await asyncio.to_thread(memory.history.unapplied)
                done = frozenset[int]()
                if any(entry.operations for entry in entries):
                    done = await asyncio.to_thread(memory.versions.applied_cursors)
                for entry in entries:
                    if entry.operations and entry.cursor not in done:
                        await self._apply(memory, entry)
                    await asyncio.to_thread(memory.history.set_applied, entry.cursor)
            except NanobotError as error:
                logger.warning("{}: a memory change is pending: {}", memory.scope, error)

    async def _draft(self, chunk: Chunk, memory: Memory, urgency: Urgency) -> Draft | None:
        """None where the range has to wait for the model."""
        draft = None
        if urgency == "patient" or (urgency == "urgent" and not self._summariser.is_out):
            draft = await self._summariser.summarise(chunk, memory)
        return draft if draft or urgency == "patient" else self._summariser.raw(chunk)

    async def _commit(self, session: Session, chunk: Chunk, memory: Memory, draft: Draft) -> bool:
        """Commit the entry and carry out its changes, which never fail; False where the range no
        longer stands as it was read. Raises `StorageError` where nothing was committed."""
        async with self._scopes[memory.scope]:
            await asyncio.to_thread(memory.root.create)  # for somebody's first entry
            async with session.removal_lock:
                if not await self._stands(session, chunk, memory):
                    return False
                # Before the commit point, since held twice is once.
                await self._hold(chunk, memory, draft)
                await asyncio.to_thread(memory.history.append, draft.entry)
                self._sessions.mark_consolidated(session, chunk.last)
        await self.apply_waiting(memory)
        return True

    async def _stands(self, session: Session, chunk: Chunk, memory: Memory) -> bool:
        """Whether nothing of the range was retracted, discarded, erased or consolidated
        meanwhile."""
        forgotten, key = Forgotten(memory.root), chunk.session

        def is_forgotten() -> bool:  # which `/forget` notes first
            return any(forgotten.hides_message(key, message) for message in chunk.messages)

        if await asyncio.to_thread(is_forgotten) or session.last_consolidated + 1 != chunk.first:
            return False
        if session.is_being_retracted(chunk.first, chunk.last):
            return False
        now: Sequence[Message] = [one for one in session.messages if one.seq <= chunk.last]
        if session.epoch_seq >= chunk.last:  # sealed: only the disk has it
            read = self._sessions.read_window
            now = await asyncio.to_thread(read, session.key, chunk.first, chunk.last)
        return _said(now) == _said(chunk.messages)

    async def _hold(self, chunk: Chunk, memory: Memory, draft: Draft) -> None:
        """Let changes wait for the person."""
        if not draft.held:
            return
        try:
            change = Change("consolidate", "held back", session=chunk.session)
            origins = chunk.origins or (NOT_SAID,)
            held = await memory.pending.add(draft.held, LONG_TERM, origins, change)
            # Others than the owner are asked about their own words only, and no group is.
            others = chunk.origins or is_group(memory.scope)
            is_asked = memory.scope == OWNER or not others
            await memory.pending.notify(held, chunk.session if is_asked else "")
        except StorageError:
            raise
        except NanobotError as error:
            logger.warning("{}: unconfirmed facts were dropped: {}", chunk.session, error)

    async def _apply(self, memory: Memory, entry: HistoryEntry) -> None:
        """Carry out the changes of an entry. One that cannot be carried out is set aside: it stays
        in the history, and is not tried again."""
        try:
            await self._carry_out(memory, entry)
        except (PathRefused, WriteConflict, StorageError):
            raise  # not what is written but where: that waits
        except ToolError as error:  # refused: the entry says it, and Dream reads the entry
            logger.warning("history {}: memory was not changed: {}", entry.cursor, error)
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary: no entry may block the start
            logger.opt(exception=error).error("history {}: the memory changes failed", entry.cursor)
            reason = type(error).__name__
        else:
            return
        if self._on_trouble is not None:
            text = (
                f"The memory changes of history entry {entry.cursor} ({memory.scope}) were "
                f"not applied: {reason}. They are in memory/history.jsonl, in the line with "
                "this cursor."
            )
            with suppress(NanobotError):  # it is in the log, too
                await self._on_trouble(text, f"set-aside-{memory.scope}-{entry.cursor}")

    async def _carry_out(self, memory: Memory, entry: HistoryEntry) -> None:
        from nanobot.memory.consolidation.changes import MOST_OPERATIONS

        if len(entry.operations) > MOST_OPERATIONS:
            raise ToolError(f"it has too many changes ({len(entry.operations):,})")
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
        done = await memory.store.apply(LONG_TERM, operations, change, retired=replaced)
        if done.left:
            logger.info("history {}: {} changes no longer fit", entry.cursor, len(done.left))
        if waiting := (*done.beyond, *filter(attrgetter("states"), done.left)):
            held = await memory.pending.add(waiting, LONG_TERM, (NOT_SAID,), change)
            session = entry.session if memory.scope == OWNER else ""
            await memory.pending.notify(held, session)


def _said(messages: Sequence[Message]) -> list[Message]:
    """The same whatever was marked to keep meanwhile."""
    return [replace(message, kept=False) if message.kept else message for message in messages]


def _notice(count: int, committed: Sequence[Draft]) -> str:
    """One line for people: how many messages were consolidated, and how many facts wait for
    them."""
    held = sum(len(draft.held) for draft in committed)
    waits = f" {pluralize(held, 'fact')} pending: `/memory pending`." if held else ""
    if any(draft.entry.type == "raw" for draft in committed):
        kept = "moved to the history without a summary. Search and Dream can find them."
    else:
        kept = f"consolidated into memory: {shorten(committed[-1].entry.summary, _LONGEST_NOTICE)}"
    return f"{pluralize(count, 'message')} {kept}{waits}"
