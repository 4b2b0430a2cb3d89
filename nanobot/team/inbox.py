"""The inbox in a team's journal: messages, whose they are, and what of them a worker may begin.

A message has its scope from `scope_of`. What is said into a conversation has the scope of what
waits there, if anything does: the file of a new one does not tell yet whose it is. A worker handles
the rows of scopes whose lease it holds, and asks for them by scope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import API, PULLED, InboundMessage
from nanobot.bus.journal import InboxEntry, MessageTurn, OutboxPart
from nanobot.bus.rows import (
    ENTRY,
    PART,
    encode_event,
    not_retryable,
    parse_row,
    stored_entry,
    unreadable_notice,
    unreadable_row,
)
from nanobot.clock import Clock
from nanobot.team.connection import Connection, Row, execute
from nanobot.team.leases import MAY_BEGIN
from nanobot.team.looking import transaction
from nanobot.team.outbox import PostgresOutbox, read_parts, revive, set_aside_parts
from nanobot.team.postgres import Database
from nanobot.team.schema import WAITING_MESSAGES, WAITING_PARTS

_ENTRIES = f"channel, chat_id, event_id, scope, {ENTRY}"
SELECT_ENTRIES = f"SELECT {_ENTRIES} FROM inbox WHERE {WAITING_MESSAGES} AND {MAY_BEGIN}"
_OF_CONVERSATION = f"""coalesce(
    (SELECT min(scope) FROM inbox WHERE {WAITING_MESSAGES} AND session_key = %s),
    (SELECT nullif(min(scope), '') FROM unfiled WHERE session_key = %s), %s)"""
SELECT_PARTS = f"SELECT scope, {PART} FROM outbox WHERE {WAITING_PARTS}"

AFFINE = frozenset({*PULLED, API})
"""Channels whose replies only the worker can give that took the message: somebody waits there."""

_Broken = tuple[int, ValueError, tuple[str, str, str]]
"""A message that cannot be read: its id, why, and its channel, chat and event."""


class OpenWork(Struct, frozen=True):
    """What is open in some scopes: the ids of all messages and parts, and those messages and parts,
    in the order they came, that were not known yet."""

    entry_ids: frozenset[int]
    part_ids: frozenset[int]
    entries: tuple[InboxEntry, ...]
    parts: tuple[OutboxPart, ...]


class PostgresInbox(PostgresOutbox):
    """What becomes of messages before their turns, among the methods of `Journal`. `scope_of` gives
    the scope whose lease decides who answers a message."""

    def __init__(
        self, database: Database, clock: Clock, scope_of: Callable[[InboundMessage], str]
    ) -> None:
        super().__init__(database, clock)
        self.scope_of = scope_of

    async def cursor(self, channel: str) -> str | None:
        query = "SELECT value FROM cursor WHERE channel = %s"
        rows = await self.database.read(query, channel)
        return rows[0][0] if rows else None

    async def has_received(
        self, channel: str, chat_id: str, event_id: str, *, unanswered: bool = False
    ) -> bool:
        query = "SELECT 1 FROM inbox WHERE (channel, chat_id, event_id) = (%s, %s, %s)"
        query += " AND state IN ('received', 'working')" if unanswered else ""
        return bool(await self.database.read(query, channel, chat_id, event_id))

    async def find_turn(self, channel: str, chat_id: str, platform_id: str) -> MessageTurn | None:
        place = (channel, chat_id, platform_id)
        rows = await self.database.read(
            "SELECT turn_id, session_key, (SELECT count(*) FROM inbox AS earlier"
            " WHERE earlier.turn_id = found.turn_id AND earlier.id < found.id)"
            " FROM inbox AS found WHERE (channel, chat_id, event_id) = (%s, %s, %s)"
            " AND turn_id != ''"
            " UNION ALL SELECT turn_id, session_key, -1 FROM outbox JOIN turn"
            " ON turn.id = turn_id WHERE (channel, chat_id, platform_id) = (%s, %s, %s)"
            " AND platform_id != ''",
            *(*place, *place),
        )
        return MessageTurn(*rows[0]) if rows else None

    async def is_busy(self, session_key: str) -> bool:
        query = f"SELECT 1 FROM inbox WHERE {WAITING_MESSAGES} AND session_key = %s LIMIT 1"
        return bool(await self.database.read(query, session_key))

    async def open_work(
        self,
        scopes: Collection[str],
        entry_ids: Collection[int],
        part_ids: Collection[int],
        channels: Collection[str],
    ) -> OpenWork:
        """What is open in these scopes, as far as parts are for `channels`; what this process was
        given before is in `entry_ids` and `part_ids`."""
        names, me = list(scopes), self.database.worker or 0
        new = "CASE WHEN state IN ('received', 'pending') AND id != ALL(%s)"
        new += " THEN coalesce(payload, '') END"
        here = "AND scope = ANY(%s) ORDER BY id"
        query = f"{SELECT_ENTRIES} {here}".replace("payload", new)
        rows = await self.database.read(query, list(entry_ids), me, names, after_writes=False)
        query = f"{SELECT_PARTS} AND channel = ANY(%s) {here}".replace("payload", new)
        sent = await self.database.read(
            query, list(part_ids), list(channels), names, after_writes=False
        )
        entries, broken = read_entries([row for row in rows if row[4] is not None], recovered=False)
        if broken:
            await self.database.run(lambda db: self._set_aside_entries(db, broken))
        parts, damaged = read_parts([row for row in sent if row[-1] is not None])
        if damaged:
            await self.database.run(lambda db: set_aside_parts(db, damaged))
        ids = frozenset(row[8] for row in rows), frozenset(row[1] for row in sent)
        return OpenWork(*ids, tuple(entries), parts)

    @transaction
    async def count_message(self, db: Connection, sender: str, minute: int, event_id: str) -> int:
        """Count a message of a sender in a minute (since the epoch), once; how many there are by
        now. Those before the minute before are forgotten."""

        await execute(
            db,
            "WITH old AS (DELETE FROM rate WHERE sender = %s AND minute < %s)"
            " INSERT INTO rate VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            *(sender, minute - 1, sender, minute, event_id),
        )
        query = "SELECT count(*) FROM rate WHERE sender = %s AND minute = %s"
        counted = await (await execute(db, query, sender, minute)).fetchone()
        return counted[0] if counted else 0

    def note_outcome(self, entry_id: int, text: str) -> None:
        """Leave to the worker that may answer a message what was done of it here."""
        query = "UPDATE inbox SET reason = %s WHERE id = %s AND state = 'received'"
        self._post(query, text, entry_id)

    def _scope_of(self, message: InboundMessage) -> tuple[str, tuple[str, ...]]:
        """An expression for the scope of a message, and its values."""
        scope, key = self.scope_of(message), message.session_override
        if key and not message.scope:
            return _OF_CONVERSATION, (key, key, scope)
        return "%s::text", (scope,)

    async def _insert_inbound(
        self, db: Connection, messages: Sequence[InboundMessage], now: datetime
    ) -> tuple[InboxEntry, ...]:
        sent = []
        for message in messages:
            (scope, values), place = self._scope_of(message), f"{message.channel}:{message.chat_id}"
            # A chat's row that is right is not locked, so that workers which take messages of the
            # same chats do not wait for each other.
            cursor = await execute(
                db,
                f"WITH whose AS (SELECT {scope} AS scope),"
                " chat AS (SELECT scope FROM whose WHERE NOT %s),"
                " moved AS (UPDATE conversation SET scope = chat.scope FROM chat"
                " WHERE key = %s AND conversation.scope != chat.scope),"
                " met AS (INSERT INTO conversation SELECT %s, scope FROM chat"
                " ON CONFLICT DO NOTHING)"
                " INSERT INTO inbox (channel, chat_id, event_id, session_key, group_id,"
                " received_at, payload, worker, scope)"
                " SELECT %s, %s, %s, %s, %s, %s, %s, %s::bigint, scope FROM whose"
                " ON CONFLICT (channel, chat_id, event_id) DO NOTHING RETURNING id, scope",
                *(*values, message.is_background, place, place),
                *(message.channel, message.chat_id, message.event_id, message.session_key),
                *(message.group_id, now.isoformat(), encode_event(message)),
                self.database.worker if message.channel in AFFINE else None,
            )
            sent.append((message, cursor))
        stored = [(message, await cursor.fetchone()) for message, cursor in sent]
        since = now.timestamp()
        return tuple(
            InboxEntry(row[0], message, received_at=since, scope=row[1])
            for message, row in stored
            if row
        )

    async def _set_aside_entries(self, db: Connection, broken: Sequence[_Broken]) -> None:
        """Messages that cannot be read have failed, and their people are told."""
        for row_id, error, place in broken:
            logger.error("in-{} cannot be read: {}", row_id, error)
            failed = "UPDATE inbox SET state = 'failed', reason = %s WHERE id = %s"
            await execute(db, failed, f"it cannot be read: {error}", row_id)
            notice, now = unreadable_notice(*place), self._clock.now()
            await self._insert_outgoing(db, f"unreadable-{row_id}", (notice,), now, [row_id])

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        table, row_id = parse_row(row)
        try:
            if table == "inbox":
                worker = self.database.worker
                return await self.database.run(lambda db: _retry_message(db, row, row_id, worker))
            if revived := await self.database.run(lambda db: revive(db, (row_id,))):
                return revived[0]
        except ValueError as error:
            raise unreadable_row(row) from error
        raise not_retryable(row)

    @transaction
    async def drop_row(self, db: Connection, row: str) -> None:
        table, row_id = parse_row(row)
        ended = "state = 'stopped', payload = NULL WHERE state = 'failed'"
        if table == "outbox":
            ended = "state = 'sent', payload = NULL, reason = 'dropped' WHERE state = 'dead'"
        changed = await execute(db, f"UPDATE {table} SET {ended} AND id = %s RETURNING 1", row_id)
        if not await changed.fetchone():
            raise not_retryable(row)


def read_entries(rows: Iterable[Row], *, recovered: bool) -> tuple[list[InboxEntry], list[_Broken]]:
    """The messages in rows of `SELECT_ENTRIES`, and those that cannot be read."""
    entries, broken = list[InboxEntry](), list[_Broken]()
    for channel, chat_id, event_id, scope, *row in rows:
        try:
            entry = stored_entry(row, recovered=recovered)
            outcome = "" if entry.turn_id else entry.reason
            entries.append(replace(entry, scope=scope, outcome=outcome))
        except ValueError as error:
            broken.append((row[4], error, (channel, chat_id, event_id)))
    return entries, broken


async def _retry_message(db: Connection, row: str, row_id: int, worker: int | None) -> InboxEntry:
    failed = await execute(
        db,
        "UPDATE inbox SET state = 'received', attempts = 0, not_before = 0, reason = '',"
        " worker = CASE WHEN worker IS NOT NULL THEN %s::bigint END"
        f" WHERE id = %s AND state = 'failed' RETURNING scope, {ENTRY}",
        *(worker, row_id),
    )
    found = await failed.fetchone()
    if found is None:
        raise not_retryable(row)
    entry = stored_entry(found[1:], recovered=False)
    return replace(entry, received_at=0.0, scope=found[0])
