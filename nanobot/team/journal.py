"""The journal in PostgreSQL, which several workers share. It keeps what `sqlite_journal` promises.

Rows carry the scope of memory that they belong to. Messages have it from `scope_of`, a turn from
its messages, a part from the chat that gets it, as far as that chat has written, else from its
turn. What is said into a conversation has the scope of what waits there, if anything does: the file
of a new one does not tell yet whose it is. A worker handles the rows of scopes whose lease it
holds, and asks for them by scope.
"""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import API, PULLED, InboundMessage
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    LEARNING,
    MOST_DOUBTS,
    NOTICE,
    QUESTION,
    Committed,
    Completion,
    InboxEntry,
    Leftovers,
    MessageTurn,
    OutboxPart,
    Outgoing,
    Redact,
    Step,
    Unfiled,
    UsageTotals,
)
from nanobot.bus.rows import (
    ENTRY,
    MOST_ASKED,
    PART,
    decode_helper,
    decode_report,
    encode_event,
    failure_notice,
    gather_turns,
    new_parts,
    not_of_chat,
    not_retryable,
    parse_row,
    spending_key,
    stored_entry,
    stored_part,
    unreadable_notice,
    unreadable_row,
)
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.io import FENCE
from nanobot.tasks import Background
from nanobot.team.connection import Connection, Row, execute, storable
from nanobot.team.erasing import erase
from nanobot.team.leases import IS_LOST, MAY_BEGIN, SINGLE
from nanobot.team.looking import IS_NOTICE, Looking
from nanobot.team.postgres import Database
from nanobot.team.pruning import prune
from nanobot.team.schema import OPEN_MESSAGES, OPEN_PARTS, WAITING_MESSAGES, WAITING_PARTS
from nanobot.team.state import PostgresState

P = ParamSpec("P")
T = TypeVar("T")

_PRUNE_SECONDS = 1.0
"""How long closing waits until what is old is forgotten."""

_VOID = (
    f"{OPEN_PARTS} AND starts_with(turn_id, '{QUESTION}')"
    f" AND NOT EXISTS (SELECT FROM approval WHERE turn_id = '{QUESTION}' || code)"
)
"""Which rows of the outbox are questions to the owner whose worker waits no more."""
_ENTRIES = f"channel, chat_id, event_id, scope, {ENTRY}"
_SELECT_ENTRIES = f"SELECT {_ENTRIES} FROM inbox WHERE {WAITING_MESSAGES} AND {MAY_BEGIN}"
_OF_CONVERSATION = f"""coalesce(
    (SELECT min(scope) FROM inbox WHERE {WAITING_MESSAGES} AND session_key = %s),
    (SELECT nullif(min(scope), '') FROM unfiled WHERE session_key = %s), %s)"""
_SELECT_PARTS = f"SELECT scope, {PART} FROM outbox WHERE {WAITING_PARTS}"


AFFINE = frozenset({*PULLED, API})
"""Channels whose replies only the worker can give that took the message: somebody waits there."""


def _transaction(
    work: Callable[Concatenate[PostgresJournal, Connection, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PostgresJournal, P], Coroutine[Any, Any, T]]:
    """A method that is run as a transaction by the writer, and returns once that is durable."""

    async def method(self: PostgresJournal, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda db: work(self, db, *args, **kwargs))

    return method


class OpenWork(Struct, frozen=True):
    """What is open in some scopes: the ids of all messages and parts, and those messages and parts,
    in the order they came, that were not known yet."""

    entry_ids: frozenset[int]
    part_ids: frozenset[int]
    entries: tuple[InboxEntry, ...]
    parts: tuple[OutboxPart, ...]


class PostgresJournal(Looking):
    """The journal in `database`, which it opens and closes. See `Journal` for what each method
    does. `scope_of` gives the scope whose lease decides who answers a message. What goes out on the
    channels in `exclusive` belongs to the lease of the channel."""

    def __init__(
        self, database: Database, clock: Clock, scope_of: Callable[[InboundMessage], str]
    ) -> None:
        super().__init__(database)
        self.state = PostgresState(database.address)
        self._clock, self.scope_of = clock, scope_of
        self.exclusive: Collection[str] = ()
        self._background = Background()
        self._pruned_at = clock.now()

    async def open(self) -> None:
        await self.database.open()
        try:
            await self._prune()
        except StorageError:
            await self.database.close()
            raise

    async def freeze(self, copy: Path, meanwhile: Callable[[], None]) -> None:
        """A team's backup is one of its database and of its folder."""
        raise NanobotError(
            "a team's messages are in its database, which `nanobot backup` does not copy",
            hint="Use pg_dump for the database and copy the shared folder afterwards: docs/team.md"
            " has the commands.",
        )

    async def close(self) -> None:
        await self._background.drain(_PRUNE_SECONDS)
        await self.database.close()
        self.state.close()

    @property
    def has_died(self) -> bool:
        return self.database.has_died

    @property
    def refusal(self) -> StorageError | None:
        return self.database.refusal

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Future[tuple[InboxEntry, ...]]:
        now = self._clock.now()

        async def work(db: Connection) -> tuple[InboxEntry, ...]:
            if cursor is not None:
                put = "INSERT INTO cursor VALUES (%s, %s) ON CONFLICT (channel) DO UPDATE SET"
                await execute(db, f"{put} value = excluded.value", channel, cursor)
            return await self._insert_inbound(db, messages, now)

        if now - self._pruned_at > timedelta(days=1):
            self._pruned_at = now
            self._background.start(self._prune(), name="forget what is old")
        return self.database.run(work)

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

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        self._post(
            "WITH claimed AS (UPDATE inbox SET state = 'working', turn_id = %s,"
            " runs = runs + (turn_id != %s)::int"
            " WHERE id = ANY(%s) AND state IN ('received', 'working') RETURNING scope)"
            " INSERT INTO turn (id, session_key, state, started_at, scope)"
            " VALUES (%s, %s, 'running', %s, coalesce((SELECT min(scope) FROM claimed), ''))"
            " ON CONFLICT (id) DO UPDATE SET progress = 0",
            *(turn_id, turn_id, list(entry_ids)),
            *(turn_id, session_key, self._clock.now().isoformat()),
            can_wait=not at_once,
        )

    async def mark_model_asked(self, turn_id: str) -> None:
        await self._run("UPDATE turn SET progress = 1, asked = asked + 1 WHERE id = %s", turn_id)

    async def mark_owner_asked(self, turn_id: str) -> None:
        await self._run("UPDATE turn SET progress = 1 WHERE id = %s", turn_id)

    async def begin_command(self, entry_id: int) -> None:
        await self._run("UPDATE inbox SET runs = runs + 1 WHERE id = %s", entry_id)

    def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> Future[None]:
        values = (
            *(turn_id, turn_id, list(joined), turn_id),
            list(range(first, first + len(steps))),
            [step.kind for step in steps],
            [storable(step.payload) for step in steps],
        )

        async def work(db: Connection) -> None:
            await execute(
                db,
                "WITH moved AS (UPDATE turn SET progress = 1, asked = 0 WHERE id = %s),"
                " taken AS (UPDATE inbox SET state = 'working', turn_id = %s WHERE id = ANY(%s))"
                " INSERT INTO step SELECT %s, * FROM unnest(%s::int[], %s::text[], %s::text[])"
                " ON CONFLICT (turn_id, number)"
                " DO UPDATE SET kind = excluded.kind, payload = excluded.payload",
                *values,
            )

        return self.database.run(work, retry=not joined)

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        now = self._clock.now()
        # Without a lock on a row that other workers use as well.
        self._post(
            "WITH used AS (UPDATE prompt SET used_at = %s WHERE id = %s AND used_at < %s)"
            " INSERT INTO prompt VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            *(now.isoformat(), prompt_id, (now - timedelta(days=1)).isoformat()),
            *(prompt_id, text, now.isoformat()),
            can_wait=True,
        )

    @_transaction
    async def complete(self, db: Connection, completion: Completion) -> Committed:
        done, now, ids = completion, self._clock.now(), list(completion.entry_ids)
        state = "stopped" if done.given_up else done.state
        await execute(
            db,
            "UPDATE inbox SET state = %s, reason = %s, payload = CASE WHEN %s THEN payload END"
            " WHERE id = ANY(%s)",
            *(state, done.reason, state == "failed", ids),
        )
        if done.report:
            await _end_turn(db, done)
        filed: Any = None
        if done.lines:
            filed = await execute(
                db,
                "INSERT INTO unfiled (session_key, lines, scope) VALUES (%s, %s, coalesce("
                "(SELECT min(scope) FROM inbox WHERE id = ANY(%s)),"
                " (SELECT scope FROM turn WHERE id = %s),"
                # before its turn begins, a message is all that tells whose a conversation is
                f" (SELECT min(scope) FROM inbox WHERE {WAITING_MESSAGES} AND session_key = %s),"
                " '')) RETURNING id",
                *(done.session_key, done.lines, ids, done.turn_id, done.session_key),
            )
        if done.replaces_turn:
            await execute(
                db,
                "UPDATE inbox SET state = 'done', payload = NULL"
                " WHERE turn_id = %s AND turn_id != '' AND state = 'failed'",
                done.replaces_turn,
            )
        parts = await self._insert_outgoing(db, done.turn_id, done.outgoing, now, ids)
        republished = await self._insert_inbound(db, done.republish, now)
        unfiled_id = (await filed.fetchone())[0] if filed else 0
        return Committed(unfiled_id, parts, republished)

    def mark_filed(self, unfiled_ids: Sequence[int]) -> None:
        self._post("DELETE FROM unfiled WHERE id = ANY(%s)", list(unfiled_ids), can_wait=True)

    @_transaction
    async def postpone(
        self, db: Connection, entry_ids: Sequence[int], not_before: float, reason: str
    ) -> None:
        ids = list(entry_ids)
        waiting = "UPDATE inbox SET not_before = %s, reason = %s WHERE id = ANY(%s)"
        await execute(db, waiting, not_before, reason, ids)
        await execute(  # a crash while it waits is not the message's doing
            db,
            "UPDATE turn SET progress = 1, asked = 0"
            " WHERE id IN (SELECT turn_id FROM inbox WHERE id = ANY(%s))",
            ids,
        )

    async def may_act(self) -> None:
        if self.database.is_behind:
            # What is done now could not be recorded: after a failover it would be done again.
            await self.database.run(_nothing, until_stored=True)
        await FENCE.wait_aside()

    async def release(self, scopes: Collection[str] | None = None) -> None:
        here, values = _within(scopes)
        running = f"UPDATE turn SET progress = 1, asked = 0 WHERE state = 'running' {here}"
        try:
            await self._run(running, *values)
        except StorageError as error:
            logger.warning("the clean shutdown could not be recorded: {}", error)

    @_transaction
    async def leftovers(self, db: Connection, scopes: Collection[str] | None = None) -> Leftovers:
        # See `sqlite_journal` for whose fault an end is.
        here, values = _within(scopes)
        working = f"WHERE {WAITING_MESSAGES} AND state = 'working' {here} AND turn_id IN"
        working += " (SELECT id FROM turn WHERE state = 'running' AND"
        blame = f"UPDATE inbox SET attempts = attempts + 1 {working} progress = 0)"
        await execute(db, blame, *values)
        blame = f"UPDATE inbox SET attempts = %s {working} asked >= %s)"
        await execute(db, blame, GIVE_UP_AFTER, *values, MOST_ASKED)
        known = f"UPDATE turn SET progress = 1 WHERE state = 'running' {here}"
        await execute(db, known, *values)
        void = f"UPDATE outbox SET state = 'sent', payload = NULL WHERE {_VOID} {here}"
        await execute(db, void, *values)
        query = f"SELECT id, session_key, lines, scope FROM unfiled WHERE true {here} ORDER BY id"
        unfiled = await (await execute(db, query, *values)).fetchall()
        me = self.database.worker or 0
        found = await execute(db, f"{_SELECT_ENTRIES} {here} ORDER BY id", me, *values)
        entries, broken = _read_entries(await found.fetchall(), recovered=True)
        await self._set_aside_entries(db, broken)
        steps = await _steps_of(db, entries)
        found = await execute(db, f"{_SELECT_PARTS} {here} ORDER BY id", *values)
        parts, damaged = _read_parts(await found.fetchall())
        await _set_aside_parts(db, damaged)
        lines = tuple(Unfiled(*row) for row in unfiled)
        return Leftovers(lines, gather_turns(entries, steps), parts)

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
        query = f"{_SELECT_ENTRIES} {here}".replace("payload", new)
        rows = await self.database.read(query, list(entry_ids), me, names, after_writes=False)
        query = f"{_SELECT_PARTS} AND channel = ANY(%s) {here}".replace("payload", new)
        sent = await self.database.read(
            query, list(part_ids), list(channels), names, after_writes=False
        )
        entries, broken = _read_entries(
            [row for row in rows if row[4] is not None], recovered=False
        )
        if broken:
            await self.database.run(lambda db: self._set_aside_entries(db, broken))
        parts, damaged = _read_parts([row for row in sent if row[-1] is not None])
        if damaged:
            await self.database.run(lambda db: _set_aside_parts(db, damaged))
        ids = frozenset(row[8] for row in rows), frozenset(row[1] for row in sent)
        return OpenWork(*ids, tuple(entries), parts)

    async def count_message(self, sender: str, minute: int, event_id: str) -> int:
        """Count a message of a sender in a minute (since the epoch), once; how many there are by
        now. Those before the minute before are forgotten."""

        async def work(db: Connection) -> int:
            await execute(
                db,
                "WITH old AS (DELETE FROM rate WHERE sender = %s AND minute < %s)"
                " INSERT INTO rate VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                *(sender, minute - 1, sender, minute, event_id),
            )
            query = "SELECT count(*) FROM rate WHERE sender = %s AND minute = %s"
            counted = await (await execute(db, query, sender, minute)).fetchone()
            return counted[0] if counted else 0

        return await self.database.run(work)

    async def unfiled_scopes(self, scopes: Collection[str]) -> set[str]:
        """Those of the scopes of which lines may not be in their files yet."""
        query = "SELECT DISTINCT scope FROM unfiled WHERE scope = ANY(%s)"
        return {scope for (scope,) in await self.database.read(query, list(scopes))}

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        query = "SELECT value, sender_id FROM button WHERE (id, channel, chat_id) = (%s, %s, %s)"
        rows = await self.database.read(query, button_id, channel, chat_id)
        return next((value for value, only in rows if not only or only in sender_ids), None)

    def add_outgoing(self, turn_id: str, outgoing: Outgoing) -> Future[tuple[OutboxPart, ...]]:
        now = self._clock.now()
        return self.database.run(lambda db: self._insert_outgoing(db, turn_id, (outgoing,), now))

    def mark_sending(self, item: OutboxPart) -> None:
        self._post(
            "UPDATE outbox SET state = 'sending', in_doubt = %s, attempts = %s WHERE id = %s",
            *(item.doubts + 1, item.attempts, item.id),
            can_wait=True,
        )

    async def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False
    ) -> tuple[OutboxPart, ...]:
        async def work(db: Connection) -> tuple[OutboxPart, ...]:
            refused = await execute(
                db,
                "WITH sent AS (UPDATE outbox SET state = 'sent', platform_id = %s,"
                f" payload = CASE WHEN %s THEN payload END WHERE id = %s)"
                f" UPDATE outbox SET state = 'pending' WHERE state = 'dead' AND {IS_NOTICE}"
                f" AND in_doubt < {MOST_DOUBTS} AND (channel, chat_id) = (%s, %s) AND id != %s"
                f" RETURNING scope, {PART}",
                *(platform_id, keep, item.id, item.part.channel, item.part.chat_id, item.id),
            )
            rows = sorted(await refused.fetchall(), key=lambda row: row[1])
            return _read_parts(rows)[0]

        return await self.database.run(work, until_stored=True)

    async def mark_undelivered(self, channel: str, platform_id: str, reason: str) -> str:
        async def work(db: Connection) -> str:
            rows = await execute(
                db,
                "UPDATE outbox SET state = 'dead', reason = %s WHERE state = 'sent'"
                " AND (channel, platform_id) = (%s, %s) AND payload IS NOT NULL RETURNING id",
                *(reason, channel, platform_id),
            )
            found = await rows.fetchone()
            return f"out-{found[0]}" if found else ""

        return await self.database.run(work)

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        self._post(
            "UPDATE outbox SET state = 'pending', next_try_at = %s, in_doubt = %s, attempts = %s,"
            " reason = %s WHERE id = %s",
            *(item.next_try_at, item.doubts, item.attempts, reason, item.id),
        )

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        now = self._clock.now()

        async def work(db: Connection) -> tuple[OutboxPart, ...]:
            dead = "UPDATE outbox SET state = 'dead', in_doubt = %s, reason = %s WHERE id = %s"
            await execute(db, dead, item.doubts, reason, item.id)
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(NOTICE):
                return ()
            asked_in = await _asked_in(db, turn_id)
            notice = Outgoing(call, (failure_notice(item, reason, asked_in),))
            return await self._insert_outgoing(db, f"{NOTICE}{turn_id}", (notice,), now)

        return await self.database.run(work, until_stored=True)

    def note_outcome(self, entry_id: int, text: str) -> None:
        """Leave to the worker that may answer a message what was done of it here."""
        query = "UPDATE inbox SET reason = %s WHERE id = %s AND state = 'received'"
        self._post(query, text, entry_id)

    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        scope, values = self._scope_of(if_lost)
        await self._run(
            "INSERT INTO helper (id, started_at, if_lost, worker, scope)"
            f" VALUES (%s, %s, %s, %s, {scope}) ON CONFLICT (id) DO UPDATE SET"
            " started_at = excluded.started_at, if_lost = excluded.if_lost,"
            " worker = excluded.worker",
            *(helper_id, self._clock.now().isoformat(), encode_event(if_lost)),
            *(self.database.worker, *values),
        )

    async def remove_helper(self, helper_id: str) -> None:
        await self._run("DELETE FROM helper WHERE id = %s", helper_id)

    async def lost_helpers(
        self, scopes: Collection[str] | None = None
    ) -> list[tuple[str, InboundMessage]]:
        here, values = _within(scopes)
        query = f"SELECT id, if_lost FROM helper WHERE {IS_LOST} {here} ORDER BY started_at"
        rows = await self.database.read(query, *values)
        read = ((helper_id, decode_helper(helper_id, text)) for helper_id, text in rows)
        return [(helper_id, message) for helper_id, message in read if message is not None]

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        table, row_id = parse_row(row)
        try:
            if table == "inbox":
                worker = self.database.worker
                return await self.database.run(lambda db: _retry_message(db, row, row_id, worker))
            if revived := await self.database.run(lambda db: _revive(db, (row_id,))):
                return revived[0]
        except ValueError as error:
            raise unreadable_row(row) from error
        raise not_retryable(row)

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        async def work(db: Connection) -> tuple[OutboxPart, ...]:
            return await _revive(db, await _dead_parts(db, row, chat))

        try:
            return await self.database.run(work)
        except ValueError as error:
            raise unreadable_row(row) from error

    @_transaction
    async def drop_row(self, db: Connection, row: str) -> None:
        table, row_id = parse_row(row)
        ended = "state = 'stopped', payload = NULL WHERE state = 'failed'"
        if table == "outbox":
            ended = "state = 'sent', payload = NULL, reason = 'dropped' WHERE state = 'dead'"
        changed = await execute(db, f"UPDATE {table} SET {ended} AND id = %s RETURNING 1", row_id)
        if not await changed.fetchone():
            raise not_retryable(row)

    async def find_mentions(self, name: re.Pattern[str]) -> frozenset[str]:
        rows = await self.database.read(
            f"SELECT payload FROM inbox WHERE {OPEN_MESSAGES}"
            " UNION ALL SELECT payload FROM step"
            f" UNION ALL SELECT payload FROM outbox WHERE {OPEN_PARTS}"
        )
        return frozenset(found for (payload,) in rows for found in name.findall(payload or ""))

    def add_learning_usage(self, day: date, used: UsageTotals) -> None:
        self._post(
            "INSERT INTO used AS old VALUES (%s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (day, session_key) DO UPDATE SET turns = old.turns + excluded.turns,"
            " prompt = old.prompt + excluded.prompt, cached = old.cached + excluded.cached,"
            " completion = old.completion + excluded.completion,"
            " cost = coalesce(old.cost + excluded.cost, old.cost, excluded.cost)",
            *(day.isoformat(), LEARNING),
            *(used.turns, used.prompt, used.cached, used.completion, used.cost),
            can_wait=True,
        )

    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        self._post(
            "INSERT INTO spending AS old VALUES (%s, %s, %s, %s) ON CONFLICT (day, worker) DO"
            " UPDATE SET tokens = old.tokens + excluded.tokens,"
            " warned = old.warned OR excluded.warned",
            *(spending_key(day, use), self.database.worker or 0, tokens, warned),
            can_wait=True,
        )

    async def erase(self, redact: Redact) -> int:
        return await erase(self.database, redact)

    def _scope_of(self, message: InboundMessage) -> tuple[str, tuple[str, ...]]:
        """An expression for the scope of a message, and its values."""
        scope, key = self.scope_of(message), message.session_override
        if key and not message.scope:
            return _OF_CONVERSATION, (key, key, scope)
        return "%s::text", (scope,)

    async def _run(self, statement: str, *values: object) -> None:
        """Run one statement; returns once that is durable."""
        await self.database.run(lambda db: execute(db, statement, *values))

    def _post(self, statement: str, *values: object, can_wait: bool = False) -> None:
        self.database.post(lambda db: execute(db, statement, *values), can_wait=can_wait)

    async def _prune(self) -> None:
        """Forget what ended and is older than `KEEP_DAYS`."""
        self._pruned_at = self._clock.now()
        await prune(self.database.address, self._pruned_at)

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

    async def _insert_outgoing(
        self,
        db: Connection,
        turn_id: str,
        outgoing: Iterable[Outgoing],
        now: datetime,
        entry_ids: Sequence[int] = (),
    ) -> tuple[OutboxPart, ...]:
        """Store messages, in order, with a random id on each button. One that this turn already
        has is not stored again. `entry_ids`: the messages that it answers."""
        sent = []
        for item in outgoing:
            for number, part in enumerate(new_parts(turn_id, item)):
                cursor = await execute(
                    db,
                    "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload,"
                    " created_at, scope) VALUES (%s, %s, %s, %s, %s, %s, %s, coalesce(%s,"
                    " (SELECT scope FROM conversation WHERE key = %s),"
                    " (SELECT scope FROM turn WHERE id = %s),"
                    " (SELECT min(scope) FROM inbox WHERE id = ANY(%s)), ''))"
                    " ON CONFLICT DO NOTHING RETURNING id, scope",
                    *(turn_id, item.call, number, part.channel, part.chat_id, encode_event(part)),
                    now.isoformat(),
                    f"{SINGLE}{part.channel}" if part.channel in self.exclusive else None,
                    *(f"{part.channel}:{part.chat_id}", turn_id, list(entry_ids)),
                )
                sent.append((part, cursor))
        stored = []
        for part, cursor in sent:
            if row := await cursor.fetchone():
                stored.append(OutboxPart(row[0], part, scope=row[1]))
                if turn_id.startswith(QUESTION) and self.database.worker is not None:
                    # With the question itself: what waits nowhere is not sent.
                    waits = "INSERT INTO approval VALUES (%s, %s) ON CONFLICT DO NOTHING"
                    await execute(db, waits, turn_id.removeprefix(QUESTION), self.database.worker)
                place = part.channel, part.chat_id
                for button in part.buttons:
                    put = "INSERT INTO button VALUES (%s, %s, %s, %s, %s, %s)"
                    values = button.id, *place, button.only, button.value, now.isoformat()
                    await execute(db, put, *values)
        return tuple(stored)

    async def _set_aside_entries(self, db: Connection, broken: Sequence[_Broken]) -> None:
        """Messages that cannot be read have failed, and their people are told."""
        for row_id, error, place in broken:
            logger.error("in-{} cannot be read: {}", row_id, error)
            failed = "UPDATE inbox SET state = 'failed', reason = %s WHERE id = %s"
            await execute(db, failed, f"it cannot be read: {error}", row_id)
            notice, now = unreadable_notice(*place), self._clock.now()
            await self._insert_outgoing(db, f"unreadable-{row_id}", (notice,), now, [row_id])


_Broken = tuple[int, ValueError, tuple[str, str, str]]
"""A message that cannot be read: its id, why, and its channel, chat and event."""


async def _nothing(db: Connection) -> None:
    """Takes part in a transaction, so that its outcome is known."""


def _within(scopes: Collection[str] | None) -> tuple[str, tuple[list[str], ...]]:
    """A condition for `scopes`, and its values."""
    return ("", ()) if scopes is None else ("AND scope = ANY(%s)", (list(scopes),))


def _read_entries(
    rows: Iterable[Row], *, recovered: bool
) -> tuple[list[InboxEntry], list[_Broken]]:
    """The messages in rows of `_SELECT_ENTRIES`, and those that cannot be read."""
    entries, broken = list[InboxEntry](), list[_Broken]()
    for channel, chat_id, event_id, scope, *row in rows:
        try:
            entry = stored_entry(row, recovered=recovered)
            outcome = "" if entry.turn_id else entry.reason
            entries.append(replace(entry, scope=scope, outcome=outcome))
        except ValueError as error:
            broken.append((row[4], error, (channel, chat_id, event_id)))
    return entries, broken


async def _steps_of(db: Connection, entries: Sequence[InboxEntry]) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = {entry.turn_id: [] for entry in entries if entry.turn_id}
    query = "SELECT turn_id, kind, payload FROM step WHERE turn_id = ANY(%s)"
    found = await execute(db, f"{query} ORDER BY turn_id, number", list(steps))
    for turn_id, kind, payload in await found.fetchall():
        steps[turn_id].append(Step(kind, payload))
    return steps


def _read_parts(
    rows: Iterable[Row],
) -> tuple[tuple[OutboxPart, ...], list[tuple[int, ValueError]]]:
    """The parts in rows of `_SELECT_PARTS`, and those that cannot be read."""
    parts, broken = list[OutboxPart](), list[tuple[int, ValueError]]()
    for scope, *row in rows:
        try:
            parts.append(replace(stored_part(row), scope=scope))
        except ValueError as error:
            broken.append((row[0], error))
    return tuple(parts), broken


async def _set_aside_parts(db: Connection, broken: Sequence[tuple[int, ValueError]]) -> None:
    """Parts that cannot be read wait for a person's decision."""
    for row_id, error in broken:
        logger.error("out-{} cannot be read: {}", row_id, error)
        dead = "UPDATE outbox SET state = 'dead', reason = %s WHERE id = %s"
        await execute(db, dead, f"it cannot be read: {error}", row_id)


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


async def _dead_parts(db: Connection, row: str, chat: tuple[str, str] | None) -> list[int]:
    """Of the message that a part belongs to. Raises `NanobotError` if it is not of this chat."""
    table, row_id = parse_row(row)
    query = "SELECT turn_id, call, channel, chat_id FROM outbox WHERE id = %s"
    found = await (await execute(db, query, row_id)).fetchone()
    if table != "outbox" or found is None:
        raise not_of_chat(row)
    turn_id, call, *place = found
    if chat not in (None, tuple(place)) and chat != (await _asked_in(db, turn_id) or ())[:2]:
        raise not_of_chat(row)
    query = "SELECT id FROM outbox WHERE (turn_id, call) = (%s, %s) AND state = 'dead' ORDER BY id"
    return [part_id for (part_id,) in await (await execute(db, query, turn_id, call)).fetchall()]


async def _revive(db: Connection, part_ids: Sequence[int]) -> tuple[OutboxPart, ...]:
    """Those that were dead. Their notice is forgotten, so that another failure is told again."""
    dead = await execute(
        db,
        "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0, in_doubt = 0,"
        f" reason = '' WHERE id = ANY(%s) AND state = 'dead' RETURNING scope, {PART}",
        list(part_ids),
    )
    rows = sorted(await dead.fetchall(), key=lambda row: row[1])
    for _, _, turn_id, call, *_ in rows:
        told = "DELETE FROM outbox WHERE (turn_id, call) = (%s, %s) AND state IN ('sent', 'dead')"
        await execute(db, told, f"{NOTICE}{turn_id}", call)
    return tuple(replace(stored_part(row), scope=scope) for scope, *row in rows)


async def _asked_in(db: Connection, turn_id: str) -> tuple[str, str, str] | None:
    """The channel, chat and conversation of a turn's first message."""
    query = "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = %s AND turn_id != ''"
    found = await execute(db, f"{query} ORDER BY id LIMIT 1", turn_id)
    asked: tuple[str, str, str] | None = await found.fetchone()
    return asked


async def _end_turn(db: Connection, done: Completion) -> None:
    """A turn has its report; what it used counts to its day, once though this may be repeated."""
    report = decode_report(done.report)
    names = ("milliseconds", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
    numbers = [_number(report.get(name)) for name in names]
    await execute(
        db,
        "WITH old AS (SELECT id, state FROM turn WHERE id = %s), ended AS ("
        " UPDATE turn SET state = %s, report = %s, model = %s, milliseconds = %s, prompt = %s,"
        " cached = %s, completion = %s, cost = %s FROM old WHERE turn.id = old.id"
        " RETURNING old.state AS was, started_at, session_key, prompt, cached, completion, cost),"
        " forgotten AS (DELETE FROM step WHERE turn_id = %s)"
        " INSERT INTO used AS day SELECT left(started_at, 10), session_key, 1,"
        " coalesce(prompt, 0), coalesce(cached, 0), coalesce(completion, 0), cost"
        " FROM ended WHERE was = 'running'"
        " ON CONFLICT (day, session_key) DO UPDATE SET turns = day.turns + 1,"
        " prompt = day.prompt + excluded.prompt, cached = day.cached + excluded.cached,"
        " completion = day.completion + excluded.completion,"
        " cost = coalesce(day.cost + excluded.cost, day.cost, excluded.cost)",
        *(done.turn_id, done.state, done.report, str(report.get("model") or ""), *numbers),
        done.turn_id,
    )


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
