"""The journal in PostgreSQL, which several workers share. See `sql_journal` and `sql_outbox` for
its invariants.

Rows carry a memory scope, and a worker handles the rows of the scopes whose leases it holds:

- A message has its scope from `scope_of`. A message for a named conversation has the scope of its
  pending messages, if any, because the file of a new one does not show the scope yet.
- A turn has the scope of its messages.
- A part has the scope of its chat if the chat has written, else of its turn. A part for an
  exclusive channel belongs to the channel's lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import API, PULLED, InboundMessage
from nanobot.bus.journal import QUESTION, InboxEntry, OutboxPart, Outgoing, Redact
from nanobot.bus.rows import (
    ENTRY,
    PART,
    WAITING_MESSAGES,
    WAITING_PARTS,
    decode_part,
    decode_report,
    encode_event,
    number_in,
    spending_key,
)
from nanobot.bus.sql import Row, Statement, Steps, fetch, send, transaction
from nanobot.bus.sql_journal import Journal, message_row
from nanobot.bus.sql_outbox import set_aside_parts, split_readable
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.io import FENCE
from nanobot.tasks import Background
from nanobot.team.connection import Connection, execute
from nanobot.team.leases import IS_LOST, MAY_BEGIN, SINGLE
from nanobot.team.maintenance import erase, prune
from nanobot.team.postgres import Database, Work, only_stamp
from nanobot.team.state import PostgresState

T = TypeVar("T")

_PRUNE_SECONDS = 1.0
"""Seconds that closing waits for the pruning."""

_OF_CONVERSATION = f"""coalesce(
    (SELECT min(scope) FROM inbox WHERE {WAITING_MESSAGES} AND session_key = ?),
    (SELECT nullif(min(scope), '') FROM unfiled WHERE session_key = ?), ?)"""

AFFINE = frozenset({*PULLED, API})
"""Channels whose client waits at one worker. Only the worker that took the message can reply."""


class OpenWork(Struct, frozen=True):
    """Open rows of some scopes: the ids of all messages and parts, and the new messages and parts
    in order of arrival."""

    entry_ids: frozenset[int]
    part_ids: frozenset[int]
    entries: tuple[InboxEntry, ...]
    parts: tuple[OutboxPart, ...]


class PostgresJournal(Journal):
    """The journal in `database`, which it opens and closes. `scope_of` returns the scope whose
    lease decides which worker answers a message."""

    database: Database
    AMONG = "= ANY(?)"
    SCOPE = "scope"
    TURN_NUMBER = "number"
    BEGAN_SINCE = "started_at::timestamptz >= ?::timestamptz"
    NOBODY_WAITS = f"NOT EXISTS (SELECT FROM approval WHERE turn_id = '{QUESTION}' || code)"
    IS_LOST = IS_LOST

    def __init__(
        self, database: Database, clock: Clock, scope_of: Callable[[InboundMessage], str]
    ) -> None:
        super().__init__(clock)
        self.database, self.scope_of = database, scope_of
        self.state = PostgresState(database.address)
        self.exclusive: Collection[str] = ()
        """Channels that one worker runs for all."""
        self._background = Background()

    async def open(self) -> None:
        await self.database.open()
        try:
            await prune(self.database.address, self._clock.now())
        except StorageError:
            await self.database.close()
            raise

    async def freeze(self, copy: Path, work: Callable[[], None]) -> None:
        """Raise `NanobotError`: a team's backup consists of its database and its folder."""
        raise NanobotError(
            "a team's messages are in its database, which `nanobot backup` does not copy",
            hint=(
                "Use pg_dump for the database, then copy the shared folder. The commands are in "
                "docs/team.md."
            ),
        )

    async def close(self) -> None:
        await self._background.drain(_PRUNE_SECONDS)
        await self.database.close()
        self.state.close()

    async def may_act(self) -> None:
        if self.database.is_behind:
            # An effect now could not be recorded, and would be repeated after a failover.
            await self.database.run(only_stamp, until_stored=True)
        await FENCE.wait_aside()

    async def erase(self, redact: Redact) -> int:
        await self.database.flush()
        return await asyncio.to_thread(erase, self.database.address, redact)

    def _begin_pruning(self) -> None:
        forgetting = prune(self.database.address, self._clock.now())
        self._background.start(forgetting, name="forget what is old")

    def _work(self, steps: Callable[[], Steps[T]]) -> Work[T]:
        return lambda db: _run_steps(db, steps())

    async def _read(self, text: str, *values: object) -> list[Row]:
        return await self.database.read(text.replace("?", "%s"), *values)

    def _report_value(self, name: str) -> str:
        return name.removesuffix("_tokens")

    def _report_columns(self, report: str) -> dict[str, object]:
        known = decode_report(report)
        names = ("milliseconds", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
        numbers = {self._report_value(name): number_in(known, name) for name in names}
        return {"report": report, "model": str(known.get("model") or ""), **numbers}

    def _within(self, scopes: Collection[str] | None) -> tuple[str, tuple[object, ...]]:
        return ("", ()) if scopes is None else ("AND scope = ANY(?)", (list(scopes),))

    def _may_begin(self) -> tuple[str, tuple[object, ...]]:
        return f"AND {MAY_BEGIN}", (self.database.worker or 0,)

    def _whose(
        self,
        *,
        chat: tuple[str, str] | None = None,
        turn_id: str = "",
        entry_ids: Sequence[int] = (),
        session_key: str = "",
    ) -> tuple[str, str, tuple[object, ...]]:
        if chat and chat[0] in self.exclusive:
            return ", scope", ", ?", (f"{SINGLE}{chat[0]}",)
        places: dict[str, object] = {
            "(SELECT scope FROM conversation WHERE key = ?)": ":".join(chat or ()),
            "(SELECT nullif(scope, '') FROM turn WHERE id = ?)": turn_id,
            "(SELECT min(scope) FROM inbox WHERE id = ANY(?))": list(entry_ids),
            f"(SELECT min(scope) FROM inbox WHERE {WAITING_MESSAGES} AND session_key = ?)": (
                session_key
            ),
        }
        known = {place: value for place, value in places.items() if value}
        return ", scope", f", coalesce({', '.join((*known, repr('')))})", tuple(known.values())

    def _scope_of(self, message: InboundMessage) -> tuple[str, tuple[str, ...]]:
        """Return an SQL expression for the scope of a message, and its values."""
        scope, key = self.scope_of(message), message.session_override
        if key and not message.origin.scope:
            return _OF_CONVERSATION, (key, key, scope)
        return "?::text", (scope,)

    def _new_message(self, message: InboundMessage, now: datetime) -> Statement:
        (scope, values), place = self._scope_of(message), f"{message.channel}:{message.chat_id}"
        # A correct row of a chat is not locked, so workers with messages of the same chats don't
        # wait for each other.
        return Statement(
            f"WITH whose AS (SELECT {scope} AS scope),"
            " chat AS (SELECT scope FROM whose WHERE NOT ?),"
            " moved AS (UPDATE conversation SET scope = chat.scope FROM chat"
            " WHERE key = ? AND conversation.scope != chat.scope),"
            " met AS (INSERT INTO conversation SELECT ?, scope FROM chat"
            " ON CONFLICT DO NOTHING)"
            " INSERT INTO inbox (channel, chat_id, event_id, session_key, group_id,"
            " received_at, payload, worker, scope)"
            " SELECT ?, ?, ?, ?, ?, ?, ?, ?::bigint, scope FROM whose"
            " ON CONFLICT (channel, chat_id, event_id) DO NOTHING RETURNING id, scope",
            (
                *(*values, message.is_background, place, place),
                *message_row(message, now),
                self.database.worker if message.channel in AFFINE else None,
            ),
        )

    def _entry(self, row: Row, *, recovered: bool = False) -> InboxEntry:
        entry = super()._entry(row, recovered=recovered)
        # A worker that may not answer a message stores its outcome as the reason.
        return replace(entry, outcome="" if entry.turn_id else entry.reason)

    def _retry_message(self, row: str, row_id: int) -> Steps[InboxEntry]:
        entry = yield from super()._retry_message(row, row_id)
        taken = "UPDATE inbox SET worker = ? WHERE id = ? AND worker IS NOT NULL"
        yield from send(taken, self.database.worker, row_id)
        return entry

    def _insert_outgoing(
        self,
        turn_id: str,
        outgoing: Iterable[Outgoing],
        now: datetime,
        entry_ids: Sequence[int] = (),
    ) -> Steps[tuple[OutboxPart, ...]]:
        stored = yield from super()._insert_outgoing(turn_id, outgoing, now, entry_ids)
        if stored and turn_id.startswith(QUESTION) and self.database.worker is not None:
            # In the question's transaction: no question is sent that no worker waits for.
            waits = "INSERT INTO approval VALUES (?, ?) ON CONFLICT DO NOTHING"
            yield from send(waits, turn_id.removeprefix(QUESTION), self.database.worker)
        return stored

    async def open_work(
        self,
        scopes: Collection[str],
        entry_ids: Collection[int],
        part_ids: Collection[int],
        channels: Collection[str],
    ) -> OpenWork:
        """Return the open messages, and the open parts for `channels`, of these scopes. `entry_ids`
        and `part_ids` are already known to this process."""
        names, me = list(scopes), self.database.worker or 0
        new = "CASE WHEN state IN ('received', 'pending') AND id != ALL(%s)"
        new += " THEN coalesce(payload, '') END"
        here = "AND scope = ANY(%s) ORDER BY id"
        query = f"SELECT {ENTRY}, scope, channel, chat_id, event_id FROM inbox"
        query = f"{query} WHERE {WAITING_MESSAGES} AND {MAY_BEGIN} {here}".replace("payload", new)
        rows = await self.database.read(query, list(entry_ids), me, names, after_writes=False)
        query = f"SELECT {PART}, scope FROM outbox WHERE {WAITING_PARTS} AND channel = ANY(%s)"
        query = f"{query} {here}".replace("payload", new)
        sent = await self.database.read(
            query, list(part_ids), list(channels), names, after_writes=False
        )
        entries, broken = split_readable([r for r in rows if r[0] is not None], self._entry)
        if broken:
            await self._transact(lambda: self._set_aside_entries(broken))
        parts, damaged = split_readable([row for row in sent if row[-2] is not None], decode_part)
        if damaged:
            await self._transact(lambda: set_aside_parts(damaged))
        ids = frozenset(row[4] for row in rows), frozenset(row[0] for row in sent)
        return OpenWork(*ids, tuple(entries), tuple(parts))

    @transaction
    def count_message(self, sender: str, minute: int, event_id: str) -> Steps[int]:
        """Count a sender's message in a minute (since the epoch), once, and return the number of
        that minute. Counts from before the previous minute are deleted."""
        yield from send(
            "WITH old AS (DELETE FROM rate WHERE sender = ? AND minute < ?)"
            " INSERT INTO rate VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            *(sender, minute - 1, sender, minute, event_id),
        )
        query = "SELECT count(*) FROM rate WHERE sender = ? AND minute = ?"
        ((counted,),) = yield from fetch(query, sender, minute)
        return int(counted)

    def note_outcome(self, entry_id: int, text: str) -> None:
        """Store this worker's outcome of a message for the worker that may answer it."""
        query = "UPDATE inbox SET reason = ? WHERE id = ? AND state = 'received'"
        self._post(query, text, entry_id)

    async def find_unfiled(self, scopes: Collection[str]) -> set[str]:
        """Return the scopes with lines that may not be in their files yet."""
        query = "SELECT DISTINCT scope FROM unfiled WHERE scope = ANY(?)"
        return {scope for (scope,) in await self._read(query, list(scopes))}

    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        scope, values = self._scope_of(if_lost)
        await self._run(
            "INSERT INTO helper (id, started_at, if_lost, worker, scope)"
            f" VALUES (?, ?, ?, ?, {scope}) ON CONFLICT (id) DO UPDATE SET"
            " started_at = excluded.started_at, if_lost = excluded.if_lost,"
            " worker = excluded.worker",
            *(helper_id, self._clock.now().isoformat(), encode_event(if_lost)),
            *(self.database.worker, *values),
        )

    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        self._post(
            "INSERT INTO spending AS old (day, worker, tokens, warned) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (day, worker) DO"
            " UPDATE SET tokens = old.tokens + excluded.tokens,"
            " warned = old.warned OR excluded.warned",
            *(spending_key(day, use), self.database.worker or 0, tokens, warned),
            can_wait=True,
        )


async def _run_steps(db: Connection, steps: Steps[T]) -> T:
    """Run a transaction's steps in the caller's transaction. In a pipeline, only rows are
    awaited."""
    answer: Any = None
    while True:
        try:
            asked = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(asked, Statement):
            answer = await execute(db, asked.text.replace("?", "%s"), *asked.values)
        else:
            answer = await asked.fetchall()
