"""The journal in PostgreSQL, which several workers share. It keeps what `sqlite_journal` promises.

Rows carry the scope of memory that they belong to: messages see `inbox`, parts see `outbox`. A turn
has the scope of its messages.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from loguru import logger

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    LEARNING,
    Committed,
    Completion,
    InboxEntry,
    Leftovers,
    Redact,
    Step,
    Unfiled,
    UsageTotals,
)
from nanobot.bus.rows import (
    MOST_ASKED,
    decode_helper,
    decode_report,
    encode_event,
    gather_turns,
    spending_key,
)
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.io import FENCE
from nanobot.tasks import Background
from nanobot.team.connection import Connection, execute, storable
from nanobot.team.erasing import erase
from nanobot.team.inbox import SELECT_ENTRIES, SELECT_PARTS, PostgresInbox, read_entries
from nanobot.team.leases import IS_LOST
from nanobot.team.looking import transaction
from nanobot.team.outbox import ORPHANED, read_parts, set_aside_parts
from nanobot.team.postgres import Database
from nanobot.team.pruning import prune
from nanobot.team.schema import OPEN_MESSAGES, OPEN_PARTS, WAITING_MESSAGES
from nanobot.team.state import PostgresState
from nanobot.team.transaction import only_stamp

_PRUNE_SECONDS = 1.0
"""How long closing waits until what is old is forgotten."""


class PostgresJournal(PostgresInbox):
    """The journal in `database`, which it opens and closes. See `Journal` for what each method
    does."""

    def __init__(
        self, database: Database, clock: Clock, scope_of: Callable[[InboundMessage], str]
    ) -> None:
        super().__init__(database, clock, scope_of)
        self.state = PostgresState(database.address)
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

    @transaction
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

    @transaction
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
            await self.database.run(only_stamp, until_stored=True)
        await FENCE.wait_aside()

    async def release(self, scopes: Collection[str] | None = None) -> None:
        here, values = _within(scopes)
        running = f"UPDATE turn SET progress = 1, asked = 0 WHERE state = 'running' {here}"
        try:
            await self._run(running, *values)
        except StorageError as error:
            logger.warning("the clean shutdown could not be recorded: {}", error)

    @transaction
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
        void = f"{OPEN_PARTS} AND {ORPHANED} {here}"
        void = f"UPDATE outbox SET state = 'sent', payload = NULL WHERE {void}"
        await execute(db, void, *values)
        query = f"SELECT id, session_key, lines, scope FROM unfiled WHERE true {here} ORDER BY id"
        unfiled = await (await execute(db, query, *values)).fetchall()
        me = self.database.worker or 0
        found = await execute(db, f"{SELECT_ENTRIES} {here} ORDER BY id", me, *values)
        entries, broken = read_entries(await found.fetchall(), recovered=True)
        await self._set_aside_entries(db, broken)
        steps = await _steps_of(db, entries)
        found = await execute(db, f"{SELECT_PARTS} {here} ORDER BY id", *values)
        parts, damaged = read_parts(await found.fetchall())
        await set_aside_parts(db, damaged)
        lines = tuple(Unfiled(*row) for row in unfiled)
        return Leftovers(lines, gather_turns(entries, steps), parts)

    async def unfiled_scopes(self, scopes: Collection[str]) -> set[str]:
        """Those of the scopes of which lines may not be in their files yet."""
        query = "SELECT DISTINCT scope FROM unfiled WHERE scope = ANY(%s)"
        return {scope for (scope,) in await self.database.read(query, list(scopes))}

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
        await self.database.flush()
        return await asyncio.to_thread(erase, self.database.address, redact)

    async def _prune(self) -> None:
        """Forget what ended and is older than `KEEP_DAYS`."""
        self._pruned_at = self._clock.now()
        await prune(self.database.address, self._pruned_at)


def _within(scopes: Collection[str] | None) -> tuple[str, tuple[list[str], ...]]:
    """A condition for `scopes`, and its values."""
    return ("", ()) if scopes is None else ("AND scope = ANY(%s)", (list(scopes),))


async def _steps_of(db: Connection, entries: Sequence[InboxEntry]) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = {entry.turn_id: [] for entry in entries if entry.turn_id}
    query = "SELECT turn_id, kind, payload FROM step WHERE turn_id = ANY(%s)"
    found = await execute(db, f"{query} ORDER BY turn_id, number", list(steps))
    for turn_id, kind, payload in await found.fetchall():
        steps[turn_id].append(Step(kind, payload))
    return steps


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
