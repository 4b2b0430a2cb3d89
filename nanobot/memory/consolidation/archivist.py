"""The consolidation of a range: from messages to a history entry and its changes.

A range commits only if it is unchanged since it was read, and in this order: the model's answer,
the pending facts, the history entry (the commit point), the session's mark, the changes of memory,
the archive. A crash before the commit point leaves the range in the prompt. After it, `catch_up`
and `apply_pending` finish the rest."""

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
from nanobot.memory.forget import ForgottenFacts
from nanobot.memory.guard import find_lost_facts
from nanobot.memory.history import HistoryEntry
from nanobot.memory.pending import BY_NANOBOT
from nanobot.memory.scopes import OWNER, Memory, is_group
from nanobot.memory.taint import days_of_quotations
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.text import pluralize, shorten

Urgency = Literal["patient", "urgent", "raw"]
"""Response to a model that is out or slow: leave the range in place, or archive it raw. `raw` does
not call the model at all."""

OnTrouble = Callable[[str, str], Awaitable[None]]
"""Receives a text for the owner and a name. Each name is reported once. Must not raise."""

_MOST = 100
"""Messages of one entry, rounded to a turn."""

_LONGEST_SUMMARY, _LONGEST_NOTICE = 100, 160
"""Characters."""


class Archivist:
    """Archives ranges. `on_trouble` reports memory changes that failed to the owner."""

    def __init__(
        self, summariser: Summariser, sessions: SessionManager, on_trouble: OnTrouble | None
    ) -> None:
        self._summariser, self._sessions = summariser, sessions
        self._on_trouble = on_trouble
        self._scopes = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def catch_up(self, session: Session, memory: Memory) -> None:
        """Mark messages that the history contains as consolidated. Raise `StorageError`."""
        newest = (await asyncio.to_thread(memory.history.newest)).get(session.key)
        if newest is None:
            return
        # An older entry than the session belongs to another one of the same name. It does not
        # cover later messages either, which a restored file may have.
        second = timedelta(seconds=1)  # entries have whole seconds
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
        """Consolidate the range after `last_consolidated`, up to the seq `last`. Return a line for
        people, or "" if nothing was consolidated.

        `messages` are the range without retracted ones. A long range becomes several entries.
        `last_consolidated` stays behind `last` if the model is out and the range can wait, or if
        the session changed in the meantime. Raise `StorageError`, which keeps what is committed."""
        rest, committed = tuple(messages), list[Draft]()
        while session.last_consolidated < last:
            count = pick_window_boundary(rest, _MOST + 1, _MOST) or len(rest)
            upto = rest[count].seq - 1 if count < len(rest) else last
            chunk = Chunk(session.key, session.last_consolidated + 1, upto, rest[:count])
            rest = rest[count:]
            if not chunk.contents:  # nothing to remember, so it is only marked
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
            logger.warning("{} has not been archived yet: {}", session.key, error)
        count = sum(message.seq <= committed[-1].entry.last for message in messages)
        logger.info("{}: consolidated {} messages", session.key, count)
        return describe_consolidated(count, committed)

    async def apply_pending(self, memory: Memory) -> None:
        """Apply pending changes in the order of entries, as far as the disk allows. `set_applied`
        is a hint: a version that names an entry counts as well, and applying a change twice is
        harmless."""
        async with self._scopes[memory.scope]:
            try:
                entries = await asyncio.to_thread(memory.history.load_unapplied)
                done = frozenset[int]()
                if any(entry.operations for entry in entries):
                    done = await asyncio.to_thread(memory.versions.find_applied_cursors)
                for entry in entries:
                    if entry.operations and entry.cursor not in done:
                        await self._apply(memory, entry)
                    await asyncio.to_thread(memory.history.set_applied, entry.cursor)
            except NanobotError as error:
                logger.warning("{}: a memory change has not been applied: {}", memory.scope, error)

    async def _draft(self, chunk: Chunk, memory: Memory, urgency: Urgency) -> Draft | None:
        """Return a draft, or None if the range has to wait for the model."""
        draft = None
        if urgency == "patient" or (urgency == "urgent" and not self._summariser.is_out):
            draft = await self._summariser.summarise(chunk, memory)
        return draft if draft or urgency == "patient" else self._summariser.raw(chunk)

    async def _commit(self, session: Session, chunk: Chunk, memory: Memory, draft: Draft) -> bool:
        """Commit the entry and apply its changes, which never fails. Return False if the range has
        changed. Raise `StorageError` if nothing was committed."""
        async with self._scopes[memory.scope]:
            await asyncio.to_thread(memory.root.create)  # for a scope's first entry
            # Removing messages (`/discard`, `/undo`, `/forget`) needs this lock. So a retraction,
            # even a staged one, comes first and the range is rejected, or it finds messages that
            # memory has. The lock is held for a few writes, never for a model.
            async with session.removal_lock:
                if not await self._is_unchanged(session, chunk, memory):
                    return False
                # Before the commit point, because holding a fact twice is harmless.
                await self._hold(chunk, memory, draft)
                await asyncio.to_thread(memory.history.append, draft.entry)
                self._sessions.mark_consolidated(session, chunk.last)
        await self.apply_pending(memory)
        return True

    async def _is_unchanged(self, session: Session, chunk: Chunk, memory: Memory) -> bool:
        """Return True if nothing in the range was retracted, discarded, erased or consolidated."""
        forgotten, key = ForgottenFacts(memory.root), chunk.session

        def is_forgotten() -> bool:  # `/forget` records it first
            return any(forgotten.hides_message(key, message) for message in chunk.messages)

        if await asyncio.to_thread(is_forgotten) or session.last_consolidated + 1 != chunk.first:
            return False
        if session.is_being_retracted(chunk.first, chunk.last):
            return False
        now: Sequence[Message] = [one for one in session.messages if one.seq <= chunk.last]
        if session.epoch_seq >= chunk.last:  # sealed: only on disk
            read = self._sessions.read_window
            now = await asyncio.to_thread(read, session.key, chunk.first, chunk.last)
        return clear_marks(now) == clear_marks(chunk.messages)

    async def _hold(self, chunk: Chunk, memory: Memory, draft: Draft) -> None:
        """Hold changes back for approval."""
        if not draft.held:
            return
        try:
            change = Change("consolidate", "held back", session=chunk.session)
            origins = chunk.origins or (BY_NANOBOT,)
            held = await memory.pending.add(draft.held, LONG_TERM, origins, change)
            # Only the owner is asked about untrusted content, and groups are never asked.
            others = chunk.origins or is_group(memory.scope)
            is_asked = memory.scope == OWNER or not others
            await memory.pending.notify(held, chunk.session if is_asked else "")
        except StorageError:
            raise
        except NanobotError as error:
            logger.warning("{}: unconfirmed facts were dropped: {}", chunk.session, error)

    async def _apply(self, memory: Memory, entry: HistoryEntry) -> None:
        """Apply the changes of an entry. If that fails, the entry is set aside: it stays in the
        history and is not retried."""
        try:
            await self._carry_out(memory, entry)
        except (PathRefused, WriteConflict, StorageError):
            raise  # a problem of the file, not of the change: retried later
        except ToolError as error:  # rejected: Dream reads it in the entry
            logger.warning("history {}: memory was not changed: {}", entry.cursor, error)
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary: no entry may block the start
            logger.opt(exception=error).error("history {}: the memory changes failed", entry.cursor)
            reason = type(error).__name__
        else:
            return
        if self._on_trouble is not None:
            text = (
                f"The memory changes from history entry {entry.cursor} ({memory.scope}) were "
                f"not applied: {reason}. They are kept in memory/history.jsonl, in the line with "
                f"cursor {entry.cursor}."
            )
            with suppress(NanobotError):  # also in the log
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
        replaced = [
            made.old for made in operations if made.new and find_lost_facts(made.old, made.new)
        ]
        said = days_of_quotations(made.new for made in operations)
        await memory.pending.retire_contradicted(said, change)
        # Replaced facts are retired, reworded ones are not.
        done = await memory.store.apply(LONG_TERM, operations, change, retired=replaced)
        if done.left:
            logger.info("history {}: {} changes no longer apply", entry.cursor, len(done.left))
        if waiting := (*done.beyond, *filter(attrgetter("states"), done.left)):
            held = await memory.pending.add(waiting, LONG_TERM, (BY_NANOBOT,), change)
            session = entry.session if memory.scope == OWNER else ""
            await memory.pending.notify(held, session)


def clear_marks(messages: Sequence[Message]) -> list[Message]:
    """Clear the marks to keep, which do not count as changes."""
    return [replace(message, kept=False) if message.kept else message for message in messages]


def describe_consolidated(count: int, committed: Sequence[Draft]) -> str:
    """Describe the consolidated messages and the pending facts in one line for people."""
    held = sum(len(draft.held) for draft in committed)
    waits = f" To review {pluralize(held, 'pending fact')}, send `/memory pending`." if held else ""
    moved, summary = pluralize(count, "message"), committed[-1].entry.summary
    if any(draft.entry.type == "raw" for draft in committed):
        kept = f"Moved {moved} to the history without a summary. Search and Dream still find them."
    else:
        kept = f"Consolidated {moved} into memory: {shorten(summary, _LONGEST_NOTICE)}"
    return f"{kept}{waits}"
