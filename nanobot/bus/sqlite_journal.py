"""The journal in SQLite, `state/journal.db`: inbox, turns, unfiled lines, outbox, buttons.

Invariants:

- A message is answered or still here. Its row leaves `received`/`working` only in the transaction
  that also stores what the turn produced (`complete`).
- That transaction is a turn's commit point: the lines for the session file, the closed inbox rows
  and the replies exist together or not at all. The session file is appended from it
  afterwards and the copy in `unfiled` is cleared once the file is synced.
- Done rows keep their key for `KEEP_DAYS`, which is how duplicates are recognised, and lose their
  payload.
- No row stops the start: one whose payload is broken is set aside as failed, with a reason, and its
  person is told.

A reply has one row per part that a channel can send at once. A part goes `pending → sending → sent
| dead`. One that is `sending` when the process dies, or that the platform did not answer, is in
doubt: it may have arrived, and is sent once more. That repetition cannot be excluded, because no
platform takes an idempotency key for every kind of message. `sends.log` has these marks before the
disk has them here, so that a part is in doubt only if its answer had not come when the process was
killed; the next start takes them from there.

A button's id on the platform is random, is valid in its own chat only, and expires with the other
traces of its message; the value stays here. A client that makes up an id presses nothing.

One file, though it is long: what is promised depends on which statements share a transaction, and
that is seen only where they stand side by side.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from secrets import randbelow
from typing import Any, Concatenate, ParamSpec, TypeVar

from loguru import logger

from nanobot.bus.damage import Log, check_rest, damage_reports, find_damage, finish, note_damage
from nanobot.bus.events import InboundMessage, decode_inbound, encode_event
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    KEEP_DAYS,
    MOST_DOUBTS,
    NOTICE,
    QUESTION,
    Committed,
    Completion,
    DayTimes,
    DayUsage,
    InboxEntry,
    Leftovers,
    MessageTurn,
    OutboxPart,
    Outgoing,
    QueueCounts,
    QueueRow,
    Redact,
    Spent,
    Step,
    TurnCounts,
    TurnRecord,
    TurnRow,
    Unfiled,
    UsageTotals,
)
from nanobot.bus.journal_file import (
    SCHEMA,
    UNDELIVERED,
    SqliteState,
    compact,
    queue_counts,
    redact_rows,
)
from nanobot.bus.journal_looking import (
    COUNT_TURN,
    USED_DAYS,
    list_turns,
    times_by_day,
    used_by_day,
)
from nanobot.bus.rows import (
    ENTRY,
    MOST_ASKED,
    NOTICES,
    OPEN_MESSAGES,
    OPEN_PARTS,
    PART,
    WAITING_MESSAGES,
    damage_notice,
    decode_helper,
    decode_report,
    failure_notice,
    gather_turns,
    new_parts,
    not_of_chat,
    not_retryable,
    parse_row,
    shown_rows,
    spending_key,
    stored_entry,
    stored_part,
    unknown_turn,
    unreadable_notice,
    unreadable_row,
)
from nanobot.bus.sends import Mark, SendLog
from nanobot.bus.sqlite import Database, copy_to, execute, storage_error
from nanobot.clock import Clock
from nanobot.errors import DatabaseDamaged, StorageError

_ASKED = f"turn_id GLOB '{QUESTION}*'"
"""Which rows of the outbox are questions to the owner."""
_SELECT_PARTS = f"SELECT {PART} FROM outbox"


P = ParamSpec("P")
T = TypeVar("T")


def _transaction(
    work: Callable[Concatenate[SqliteJournal, sqlite3.Connection, P], T],
) -> Callable[Concatenate[SqliteJournal, P], Coroutine[Any, Any, T]]:
    """A method that is run as a transaction by the writer, and returns once that is durable."""

    async def method(self: SqliteJournal, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda db: work(self, db, *args, **kwargs))

    return method


class SqliteJournal:
    """The file at `path`. See `Journal` for what each method does."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self.database = Database(path, SCHEMA)
        self._sends = SendLog(path.with_name("sends.log"))
        self.state = SqliteState(path.parent)
        self._clock = clock
        self._pruned_at = clock.now()

    async def open(self) -> None:
        self._mend()
        try:
            await self._open()
        except DatabaseDamaged as error:  # what is not looked at in a large file
            self.state.close()
            note_damage(self._path, error.cause)
            self._mend()
            await self._open()

    def _mend(self) -> None:
        """Rebuild a damaged file. Only while it is not open. Raises `StorageError`."""
        try:
            finish(self._path)
            log = Log(self._path)  # SQLite makes the index again when it opens the file
            if cause := find_damage(self._path, log):
                from nanobot.bus.repair import rebuild  # which a start hardly ever needs

                rebuild(self._path, cause, log, self._clock.now(), self._settle)
        except (sqlite3.Error, OSError) as error:
            raise storage_error(self._path, error) from error

    async def _open(self) -> None:
        self.database.open()
        try:
            await self.database.run(self._prune)
            ((identity,),) = await self._run("PRAGMA application_id")
        except StorageError:
            await self.database.close()
            raise
        if not identity:  # the one number in a database's header that is free for our use
            identity = 1 + randbelow(2**31 - 1)
            self._post(f"PRAGMA application_id = {identity}")
        self._sends.open(str(identity))

    def watch(self, on_failure: Callable[[StorageError], None]) -> None:
        """Have `on_failure` called, in any thread, if this journal cannot be used any more because
        it is damaged or has been moved."""

        def note(error: StorageError) -> None:
            if isinstance(error, DatabaseDamaged):
                note_damage(self._path, error.cause)
            on_failure(error)

        self.database.on_failure = self.state.on_failure = note

    async def check(self) -> None:
        """Look for damage in what the start did not look at, and report it to the watcher."""
        if found := await asyncio.to_thread(check_rest, self._path):
            self.database.on_failure(DatabaseDamaged(self._path, found))

    def damages(self) -> Iterator[tuple[str, str, str]]:
        """Damages that were mended and that the owner has not put away: name, text and hint."""
        return damage_reports(self._path.parent)

    async def freeze(self, copy: Path, meanwhile: Callable[[], None]) -> None:
        """Write a copy to the file `copy`, which must not exist, and call `meanwhile`, all in a
        moment in which nothing is stored. Raises `OSError` and `StorageError`."""

        def both(db: sqlite3.Connection) -> None:
            copy_to(db, copy)
            meanwhile()

        await self.database.run(lambda _: None, after_commit=both)

    async def close(self) -> None:
        await self.database.close()
        self._sends.close()
        self.state.close()

    @property
    def has_died(self) -> bool:
        return self.database.has_died

    @property
    def refusal(self) -> StorageError | None:
        return self.database.refusal

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> asyncio.Future[tuple[InboxEntry, ...]]:
        now = self._clock.now()

        def work(db: sqlite3.Connection) -> tuple[InboxEntry, ...]:
            if cursor is not None:
                execute(db, "INSERT OR REPLACE INTO cursor VALUES (?, ?)", channel, cursor)
            return _insert_inbound(db, messages, now)

        if now - self._pruned_at > timedelta(days=1):
            self.database.post(self._prune)
        return self.database.run(work)

    async def cursor(self, channel: str) -> str | None:
        rows = await self._run("SELECT value FROM cursor WHERE channel = ?", channel)
        return rows[0][0] if rows else None

    async def has_received(
        self, channel: str, chat_id: str, event_id: str, *, unanswered: bool = False
    ) -> bool:
        query = "SELECT 1 FROM inbox WHERE channel = ? AND chat_id = ? AND event_id = ?"
        query += " AND state IN ('received', 'working')" if unanswered else ""
        return bool(await self._run(query, channel, chat_id, event_id))

    async def find_turn(self, channel: str, chat_id: str, platform_id: str) -> MessageTurn | None:
        rows = await self._run(
            "SELECT turn_id, session_key, (SELECT count(*) FROM inbox AS earlier"
            " WHERE earlier.turn_id = found.turn_id AND earlier.id < found.id)"
            " FROM inbox AS found WHERE channel = ?1 AND chat_id = ?2 AND event_id = ?3"
            " AND turn_id != ''"
            " UNION ALL SELECT turn_id, session_key, -1 FROM outbox JOIN turn"
            " ON turn.id = turn_id WHERE channel = ?1 AND chat_id = ?2 AND platform_id = ?3",
            *(channel, chat_id, platform_id),
        )
        return MessageTurn(*rows[0]) if rows else None

    async def is_busy(self, session_key: str) -> bool:
        query = f"SELECT 1 FROM inbox WHERE {WAITING_MESSAGES} AND session_key = ? LIMIT 1"
        return bool(await self._run(query, session_key))

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        now = self._clock.now().isoformat()

        def work(db: sqlite3.Connection) -> None:
            execute(
                db,
                "INSERT INTO turn (id, session_key, state, started_at) VALUES (?, ?, 'running', ?)"
                " ON CONFLICT (id) DO UPDATE SET progress = 0",
                *(turn_id, session_key, now),
            )
            db.executemany(
                "UPDATE inbox SET state = 'working', turn_id = ?, runs = runs + (turn_id != ?)"
                " WHERE id = ? AND state IN ('received', 'working')",
                [(turn_id, turn_id, entry_id) for entry_id in entry_ids],
            )

        self.database.post(work, can_wait=not at_once)

    async def mark_model_asked(self, turn_id: str) -> None:
        await self._run("UPDATE turn SET progress = 1, asked = asked + 1 WHERE id = ?", turn_id)

    async def mark_owner_asked(self, turn_id: str) -> None:
        await self._run("UPDATE turn SET progress = 1 WHERE id = ?", turn_id)

    async def begin_command(self, entry_id: int) -> None:
        await self._run("UPDATE inbox SET runs = runs + 1 WHERE id = ?", entry_id)

    def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> asyncio.Future[None]:
        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT OR REPLACE INTO step VALUES (?, ?, ?, ?)",
                [(turn_id, first + at, step.kind, step.payload) for at, step in enumerate(steps)],
            )
            db.execute("UPDATE turn SET progress = 1, asked = 0 WHERE id = ?", (turn_id,))
            db.executemany(
                "UPDATE inbox SET state = 'working', turn_id = ? WHERE id = ?",
                [(turn_id, entry_id) for entry_id in joined],
            )

        return self.database.run(work, retry=not joined)

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        self._post(
            "INSERT INTO prompt VALUES (?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at",
            *(prompt_id, text, self._clock.now().isoformat()),
            can_wait=True,
        )

    @_transaction
    def complete(self, db: sqlite3.Connection, completion: Completion) -> Committed:
        done, now = completion, self._clock.now()
        state = "stopped" if done.given_up else done.state
        for entry_id in done.entry_ids:
            execute(
                db,
                "UPDATE inbox SET state = ?, reason = ?, payload = iif(?, payload, NULL)"
                " WHERE id = ?",
                *(state, done.reason, state == "failed", entry_id),
            )
        if done.report:
            running = "SELECT 1 FROM turn WHERE id = ? AND state = 'running'"
            is_first = db.execute(running, (done.turn_id,)).fetchone()
            report = (done.state, done.report, done.turn_id)
            db.execute("UPDATE turn SET state = ?, report = ? WHERE id = ?", report)
            db.execute("DELETE FROM step WHERE turn_id = ?", (done.turn_id,))
            if is_first:  # a completion may be repeated
                db.execute(COUNT_TURN, (done.turn_id,))
        unfiled_id = 0
        if done.lines:
            inserted = execute(
                db,
                "INSERT INTO unfiled (session_key, lines) VALUES (?, ?) RETURNING id",
                *(done.session_key, done.lines),
            )
            unfiled_id = inserted.fetchone()[0]
        if done.replaces_turn:
            db.execute(
                "UPDATE inbox SET state = 'done', payload = NULL"
                f" WHERE {OPEN_MESSAGES} AND turn_id = ? AND state = 'failed'",
                (done.replaces_turn,),
            )
        parts = _insert_outgoing(db, done.turn_id, done.outgoing, now.isoformat())
        return Committed(unfiled_id, parts, _insert_inbound(db, done.republish, now))

    def mark_filed(self, unfiled_ids: Sequence[int]) -> None:
        ids = [(unfiled_id,) for unfiled_id in unfiled_ids]
        self.database.post(
            lambda db: db.executemany("DELETE FROM unfiled WHERE id = ?", ids), can_wait=True
        )

    @_transaction
    def postpone(
        self, db: sqlite3.Connection, entry_ids: Sequence[int], not_before: float, reason: str
    ) -> None:
        for entry_id in entry_ids:
            waiting = "UPDATE inbox SET not_before = ?, reason = ? WHERE id = ?"
            execute(db, waiting, not_before, reason, entry_id)
            db.execute(  # a crash while it waits is not the message's doing
                "UPDATE turn SET progress = 1, asked = 0"
                " WHERE id = (SELECT turn_id FROM inbox WHERE id = ?)",
                (entry_id,),
            )

    async def may_act(self) -> None:
        """At once."""

    async def release(self, scopes: Collection[str] | None = None) -> None:
        try:
            await self._run("UPDATE turn SET progress = 1, asked = 0 WHERE state = 'running'")
        except StorageError as error:
            logger.warning("the clean shutdown could not be recorded: {}", error)

    async def leftovers(self, scopes: Collection[str] | None = None) -> Leftovers:
        marks = tuple(self._sends.marks.values())
        left = await self.database.run(lambda db: self._leftovers(db, marks))
        self._sends.marks.clear()
        self._sends.rewrite()
        return left

    def _leftovers(self, db: sqlite3.Connection, marks: Sequence[Mark]) -> Leftovers:
        for mark in marks:
            _apply(db, mark)
        asked = f"{OPEN_PARTS} AND {_ASKED}"  # by a process that waits no more
        db.execute(f"UPDATE outbox SET state = 'sent', payload = NULL WHERE {asked}")
        # An end without progress is counted once: a turn counts again only when it was claimed
        # again, so one that never got its chance is not blamed. One that had asked the model by
        # then is not blamed either, unless that happened `MOST_ASKED` times in a row.
        working = f"{OPEN_MESSAGES} AND state = 'working'"
        db.execute(
            f"UPDATE inbox SET attempts = attempts + 1 WHERE {working} AND turn_id IN"
            " (SELECT id FROM turn WHERE state = 'running' AND progress = 0)"
        )
        db.execute(
            f"UPDATE inbox SET attempts = ? WHERE {working} AND turn_id IN"
            " (SELECT id FROM turn WHERE state = 'running' AND asked >= ?)",
            (GIVE_UP_AFTER, MOST_ASKED),
        )
        db.execute("UPDATE turn SET progress = 1 WHERE state = 'running'")
        unfiled = db.execute("SELECT id, session_key, lines FROM unfiled ORDER BY id").fetchall()
        entries = _open_entries(db, self._clock.now())
        return Leftovers(tuple(Unfiled(*row) for row in unfiled), entries, tuple(_open_parts(db)))

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        query = "SELECT value, sender_id FROM button WHERE id = ? AND channel = ? AND chat_id = ?"
        rows = await self._run(query, button_id, channel, chat_id)
        return next((value for value, only in rows if not only or only in sender_ids), None)

    def add_outgoing(
        self, turn_id: str, outgoing: Outgoing
    ) -> asyncio.Future[tuple[OutboxPart, ...]]:
        now = self._clock.now().isoformat()
        return self.database.run(lambda db: _insert_outgoing(db, turn_id, (outgoing,), now))

    def mark_sending(self, item: OutboxPart) -> None:
        doubts = item.doubts + 1
        self._sends.write(Mark("sending", item.id, doubts))
        self._post(
            "UPDATE outbox SET state = 'sending', in_doubt = ?, attempts = ? WHERE id = ?",
            *(doubts, item.attempts, item.id),
            can_wait=True,
        )

    async def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False
    ) -> tuple[OutboxPart, ...]:
        self._sends.write(Mark("kept" if keep else "sent", item.id, item.doubts, platform_id))
        place = item.part.channel, item.part.chat_id
        notices = await self.database.run(
            lambda db: _mark_sent(db, item.id, *place, platform_id, keep=keep), until_stored=True
        )
        self._sends.marks.pop(item.id, None)
        return tuple(map(stored_part, notices))

    async def mark_undelivered(self, channel: str, platform_id: str, reason: str) -> str:
        rows = await self._run(
            "UPDATE outbox SET state = 'dead', reason = ? WHERE state = 'sent' AND channel = ?"
            " AND platform_id = ? AND payload IS NOT NULL RETURNING id",
            *(reason, channel, platform_id),
        )
        return f"out-{rows[0][0]}" if rows else ""

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        self._sends.write(Mark("pending", item.id, item.doubts))
        self._post(
            "UPDATE outbox SET state = 'pending', next_try_at = ?, in_doubt = ?, attempts = ?,"
            " reason = ? WHERE id = ?",
            *(item.next_try_at, item.doubts, item.attempts, reason, item.id),
        )

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        now = self._clock.now().isoformat()

        def work(db: sqlite3.Connection) -> tuple[OutboxPart, ...]:
            dead = "UPDATE outbox SET state = 'dead', in_doubt = ?, reason = ? WHERE id = ?"
            execute(db, dead, item.doubts, reason, item.id)
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(NOTICE):
                return ()
            notice = Outgoing(call, (failure_notice(item, reason, _asked_in(db, turn_id)),))
            return _insert_outgoing(db, f"{NOTICE}{turn_id}", (notice,), now)

        told = await self.database.run(work, until_stored=True)
        self._sends.marks.pop(item.id, None)
        return told

    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        row = (helper_id, self._clock.now().isoformat(), encode_event(if_lost))
        await self._run("INSERT OR REPLACE INTO helper VALUES (?, ?, ?)", *row)

    async def remove_helper(self, helper_id: str) -> None:
        await self._run("DELETE FROM helper WHERE id = ?", helper_id)

    async def lost_helpers(
        self, scopes: Collection[str] | None = None
    ) -> list[tuple[str, InboundMessage]]:
        rows = await self._run("SELECT id, if_lost FROM helper ORDER BY started_at")
        read = ((helper_id, decode_helper(helper_id, text)) for helper_id, text in rows)
        return [(helper_id, message) for helper_id, message in read if message is not None]

    async def counts(self) -> QueueCounts:
        return await self.database.run(queue_counts)

    @_transaction
    def queue_rows(self, db: sqlite3.Connection) -> tuple[list[QueueRow], list[QueueRow]]:
        inbox = db.execute(
            "SELECT payload, 'in-' || id, session_key,"
            " iif(state != 'failed' AND not_before, 'waiting', state), attempts, received_at,"
            f" reason FROM inbox WHERE {OPEN_MESSAGES} ORDER BY id"
        )
        outbox = db.execute(
            "SELECT payload, 'out-' || id, channel || ':' || chat_id, state, attempts, created_at,"
            f" reason FROM outbox WHERE {UNDELIVERED} ORDER BY id"
        )
        return shown_rows(inbox), shown_rows(outbox)

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        table, row_id = parse_row(row)
        try:
            if table == "inbox":
                return await self.database.run(lambda db: _retry_message(db, row, row_id))
            dead = await self._run("SELECT id FROM outbox WHERE id = ? AND state = 'dead'", row_id)
            if revived := await self._revive([part_id for (part_id,) in dead]):
                return revived[0]
        except ValueError as error:
            raise unreadable_row(row) from error
        raise not_retryable(row)

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        try:
            return await self._revive(
                await self.database.run(lambda db: _dead_parts(db, row, chat))
            )
        except ValueError as error:
            raise unreadable_row(row) from error

    async def _revive(self, part_ids: Sequence[int]) -> tuple[OutboxPart, ...]:
        for part_id in part_ids:  # an earlier send of it counts no more
            self._sends.write(Mark("pending", part_id))
        return await self.database.run(
            lambda db: tuple(part for part_id in part_ids for part in _revive(db, part_id))
        )

    @_transaction
    def drop_row(self, db: sqlite3.Connection, row: str) -> None:
        table, row_id = parse_row(row)
        ended = "state = 'stopped', payload = NULL WHERE state = 'failed'"
        if table == "outbox":
            ended = "state = 'sent', payload = NULL, reason = 'dropped' WHERE state = 'dead'"
        changed = db.execute(f"UPDATE {table} SET {ended} AND id = ?", (row_id,))
        if not changed.rowcount:
            raise not_retryable(row)

    @_transaction
    def turn_record(self, db: sqlite3.Connection, turn_id: str) -> TurnRecord:
        row = execute(
            db, "SELECT id, session_key, state, started_at, report FROM turn WHERE id = ?", turn_id
        ).fetchone()
        if row is None:
            raise unknown_turn(turn_id)
        report = decode_report(row[4])
        query = "SELECT text FROM prompt WHERE id = ?"
        prompt = db.execute(query, (str(report.get("system_id", "")),)).fetchone()
        return TurnRecord(row[0], row[1], row[2], row[3], report, prompt[0] if prompt else "")

    @_transaction
    def turns(
        self,
        db: sqlite3.Connection,
        *,
        session: str = "",
        state: str = "",
        before: str = "",
        limit: int = 50,
    ) -> list[TurnRow]:
        return list_turns(db, session, state, before, limit)

    @_transaction
    def used_by_day(self, db: sqlite3.Connection, since: date) -> list[DayUsage]:
        return used_by_day(db, since)

    @_transaction
    def times_by_day(self, db: sqlite3.Connection, since: date) -> list[DayTimes]:
        return times_by_day(db, since)

    async def find_mentions(self, name: re.Pattern[str]) -> frozenset[str]:
        query = (
            f"SELECT payload FROM inbox WHERE {OPEN_MESSAGES}"
            " UNION ALL SELECT payload FROM step"
            f" UNION ALL SELECT payload FROM outbox WHERE {OPEN_PARTS}"
        )
        return await self.database.run(
            lambda db: frozenset(
                found for (payload,) in db.execute(query) for found in name.findall(payload or "")
            )
        )

    async def turn_counts(self, since: datetime) -> TurnCounts:
        # Without GROUP BY, for which SQLite would sort all turns that are kept.
        query = (
            "SELECT total(state = 'done'), total(state = 'failed'), total(state = 'stopped')"
            " FROM turn WHERE datetime(started_at) >= datetime(?)"
        )
        return TurnCounts(*await self._numbers(query, since.isoformat()))

    async def usage(self, *, session: str = "", since: datetime | None = None) -> UsageTotals:
        query = (
            "WITH report AS ("
            " SELECT iif(json_valid(report), report, '{}') AS body FROM turn"
            " WHERE (?1 = '' OR session_key = ?1)"
            " AND (?2 = '' OR datetime(started_at) >= datetime(?2)))"
            " SELECT count(json_extract(body, '$.prompt_tokens')),"
            " total(json_extract(body, '$.prompt_tokens')),"
            " total(json_extract(body, '$.cached_tokens')),"
            " total(json_extract(body, '$.completion_tokens')),"
            " sum(json_extract(body, '$.cost')) FROM report"
        )
        return UsageTotals(*await self._numbers(query, session, since.isoformat() if since else ""))

    async def learning_usage(self, since: date) -> UsageTotals:
        query = (
            "SELECT total(calls), total(prompt), total(cached), total(completion), sum(cost)"
            " FROM learning WHERE day >= ?"
        )
        return UsageTotals(*await self._numbers(query, since.isoformat()))

    def add_learning_usage(self, day: date, used: UsageTotals) -> None:
        self._post(
            "INSERT INTO learning VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
            " calls = calls + excluded.calls, prompt = prompt + excluded.prompt,"
            " cached = cached + excluded.cached, completion = completion + excluded.completion,"
            " cost = coalesce(cost + excluded.cost, cost, excluded.cost)",
            *(day.isoformat(), used.turns, used.prompt, used.cached, used.completion, used.cost),
            can_wait=True,
        )

    async def day_tokens(self, day: date, use: str = "") -> Spent:
        query = "SELECT total(tokens), total(warned) FROM spending WHERE day = ?"
        tokens, warned = await self._numbers(query, spending_key(day, use))
        return Spent(tokens, bool(warned))

    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        self._post(
            "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
            " tokens = tokens + excluded.tokens, warned = max(warned, excluded.warned)",
            *(spending_key(day, use), tokens, int(warned)),
            can_wait=True,
        )

    async def erase(self, redact: Redact) -> int:
        changed = await self.database.run(lambda db: redact_rows(db, redact), after_commit=compact)
        await asyncio.to_thread(self.state.copy)
        return changed

    async def _numbers(self, query: str, *values: object) -> list[Any]:
        """The one row that a query has, all whole numbers or None."""
        row = await self.database.run(lambda db: execute(db, query, *values).fetchone())
        return [None if value is None else int(value) for value in row]

    def _run(self, statement: str, *values: object) -> asyncio.Future[list[Any]]:
        """The rows of one statement, once it is durable."""
        return self.database.run(lambda db: execute(db, statement, *values).fetchall())

    def _post(self, statement: str, *values: object, can_wait: bool = False) -> None:
        self.database.post(lambda db: execute(db, statement, *values), can_wait=can_wait)

    def _settle(self, db: sqlite3.Connection, condition: str) -> int:
        """After damage: set aside the messages of a condition. Some of what they asked for may have
        been done, and the journal does not say so."""
        now = self._clock.now().isoformat()
        query = f"SELECT id, channel, chat_id, event_id FROM inbox WHERE {condition}"
        rows = db.execute(query).fetchall()
        for row_id, channel, chat_id, event_id in rows:
            reason = "the journal was damaged while it was under way"
            set_failed = "UPDATE inbox SET state = 'failed', reason = ? WHERE id = ?"
            db.execute(set_failed, (reason, row_id))
            outgoing = damage_notice(channel, chat_id, event_id)
            _insert_outgoing(db, f"damaged-{row_id}", (outgoing,), now)
        working = "SELECT turn_id FROM inbox WHERE state = 'working'"
        ended = "UPDATE turn SET state = 'failed' WHERE state = 'running' AND id NOT IN"
        db.execute(f"{ended} ({working})")
        return len(rows)

    def _prune(self, db: sqlite3.Connection) -> None:
        """Forget what ended and is older than `KEEP_DAYS`."""
        self._pruned_at = self._clock.now()
        horizon = (self._pruned_at - timedelta(days=KEEP_DAYS)).isoformat()
        for ended in (
            "inbox WHERE state IN ('done', 'stopped') AND received_at < :horizon",
            "outbox WHERE created_at < :horizon"
            " AND (state = 'sent' OR (state = 'dead' AND turn_id LIKE :notices))",
            "turn WHERE state != 'running' AND started_at < :horizon",
            "step WHERE turn_id NOT IN (SELECT id FROM turn WHERE state = 'running')",
            "button WHERE created_at < :horizon",
            "prompt WHERE used_at < :horizon",
        ):
            db.execute(f"DELETE FROM {ended}", {"horizon": horizon, "notices": NOTICES})
        db.execute(
            "UPDATE outbox SET payload = NULL WHERE state = 'sent' AND payload IS NOT NULL"
            " AND created_at < ?",
            ((self._pruned_at - timedelta(days=1)).isoformat(),),
        )
        oldest = self._pruned_at.date() - timedelta(days=USED_DAYS)
        db.execute("DELETE FROM used WHERE day < ?", (oldest.isoformat(),))


def _apply(db: sqlite3.Connection, mark: Mark) -> None:
    """Bring a part that is not delivered up to date."""
    row = execute(
        db,
        f"SELECT channel, chat_id FROM outbox WHERE {OPEN_PARTS} AND state != 'dead' AND id = ?",
        mark.part_id,
    ).fetchone()
    if row and mark.state in ("sent", "kept"):
        channel, chat_id = row
        keep = mark.state == "kept"
        _mark_sent(db, mark.part_id, channel, chat_id, mark.platform_id, keep=keep)
    elif row:
        changed = "UPDATE outbox SET state = ?, in_doubt = ? WHERE id = ?"
        execute(db, changed, mark.state, mark.doubts, mark.part_id)


def _mark_sent(
    db: sqlite3.Connection,
    part_id: int,
    channel: str,
    chat_id: str,
    platform_id: str,
    *,
    keep: bool,
) -> list[Any]:
    """The rows of notices of this chat that were refused before, and are to be sent now."""
    execute(
        db,
        "UPDATE outbox SET state = 'sent', platform_id = ?,"
        " payload = iif(?, payload, NULL) WHERE id = ?",
        *(platform_id, keep, part_id),
    )
    rows = execute(
        db,
        f"UPDATE outbox SET state = 'pending' WHERE {OPEN_PARTS} AND state = 'dead'"
        f" AND turn_id LIKE '{NOTICES}' AND in_doubt < {MOST_DOUBTS}"
        f" AND channel = ? AND chat_id = ? RETURNING {PART}",
        *(channel, chat_id),
    ).fetchall()
    return sorted(rows)


def _retry_message(db: sqlite3.Connection, row: str, row_id: int) -> InboxEntry:
    found = db.execute(
        "UPDATE inbox SET state = 'received', attempts = 0, not_before = 0, reason = ''"
        " WHERE id = ? AND state = 'failed' RETURNING payload, runs, turn_id",
        (row_id,),
    ).fetchone()
    if found is None:
        raise not_retryable(row)
    message = decode_inbound(found[0] or "")
    return InboxEntry(row_id, message, runs=found[1], previous_turn=found[2])


def _dead_parts(db: sqlite3.Connection, row: str, chat: tuple[str, str] | None) -> list[int]:
    """Of the message that a part belongs to. Raises `NanobotError` if it is not of this chat."""
    table, row_id = parse_row(row)
    query = "SELECT turn_id, call, channel, chat_id FROM outbox WHERE id = ?"
    found = db.execute(query, (row_id,)).fetchone()
    if table != "outbox" or found is None:
        raise not_of_chat(row)
    turn_id, call, *place = found
    if chat not in (None, tuple(place)) and chat != (_asked_in(db, turn_id) or ())[:2]:
        raise not_of_chat(row)
    query = "SELECT id FROM outbox WHERE turn_id = ? AND call = ? AND state = 'dead' ORDER BY id"
    return [part_id for (part_id,) in db.execute(query, (turn_id, call))]


def _revive(db: sqlite3.Connection, part_id: int) -> Iterator[OutboxPart]:
    """The part, if it was dead. Its notice is forgotten, so that another failure is told again."""
    found = db.execute(
        "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0, in_doubt = 0,"
        f" reason = '' WHERE id = ? AND state = 'dead' RETURNING {PART}",
        (part_id,),
    ).fetchone()
    if found:
        _, turn_id, call, *_ = found
        told = "DELETE FROM outbox WHERE turn_id = ? AND call = ? AND state IN ('sent', 'dead')"
        db.execute(told, (f"{NOTICE}{turn_id}", call))
        yield stored_part(found)


def _asked_in(db: sqlite3.Connection, turn_id: str) -> tuple[str, str, str] | None:
    """The channel, chat and conversation of a turn's first message."""
    query = "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = ? ORDER BY id LIMIT 1"
    found: tuple[str, str, str] | None = db.execute(query, (turn_id,)).fetchone()
    return found


def _insert_inbound(
    db: sqlite3.Connection, messages: Sequence[InboundMessage], now: datetime
) -> tuple[InboxEntry, ...]:
    entries = []
    for message in messages:
        row = execute(
            db,
            "INSERT INTO inbox"
            " (channel, chat_id, event_id, session_key, group_id, received_at, payload)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (channel, chat_id, event_id) DO NOTHING RETURNING id",
            *(message.channel, message.chat_id, message.event_id, message.session_key),
            *(message.group_id, now.isoformat(), encode_event(message)),
        ).fetchone()
        if row:
            entries.append(InboxEntry(row[0], message, received_at=now.timestamp()))
    return tuple(entries)


def _insert_outgoing(
    db: sqlite3.Connection, turn_id: str, outgoing: Sequence[Outgoing], now: str
) -> tuple[OutboxPart, ...]:
    """Store messages, in order, with a random id on each button. One that this turn already has is
    not stored again."""
    stored = []
    for item in outgoing:
        for number, part in enumerate(new_parts(turn_id, item)):
            place = part.channel, part.chat_id
            row = execute(
                db,
                "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                *(turn_id, item.call, number, *place, encode_event(part), now),
            ).fetchone()
            for button in part.buttons if row else ():
                values = button.id, *place, button.only, button.value, now
                execute(db, "INSERT INTO button VALUES (?, ?, ?, ?, ?, ?)", *values)
            if row:
                stored.append(OutboxPart(row[0], part))
    return tuple(stored)


def _open_entries(db: sqlite3.Connection, now: datetime) -> tuple[InboxEntry, ...]:
    """The messages that wait, and the turns that were under way with what had joined them. One that
    cannot be read any more has failed, and its person is told."""
    rows = db.execute(
        f"SELECT channel, chat_id, event_id, {ENTRY} FROM inbox"
        f" WHERE {WAITING_MESSAGES} ORDER BY id"
    ).fetchall()
    entries: list[InboxEntry] = []
    for channel, chat_id, event_id, *row in rows:
        try:
            entries.append(stored_entry(row, recovered=True))
        except ValueError as error:
            row_id = row[4]
            _set_aside(db, "inbox", row_id, error)
            outgoing = unreadable_notice(channel, chat_id, event_id)
            _insert_outgoing(db, f"unreadable-{row_id}", (outgoing,), now.isoformat())
    query = "SELECT kind, payload FROM step WHERE turn_id = ? ORDER BY number"
    turns = {entry.turn_id for entry in entries if entry.turn_id}
    steps = {turn_id: [Step(*step) for step in db.execute(query, (turn_id,))] for turn_id in turns}
    return gather_turns(entries, steps)


def _open_parts(db: sqlite3.Connection) -> Iterator[OutboxPart]:
    """What was not confirmed, oldest first. A part that cannot be read any more is dead."""
    here = f"WHERE {OPEN_PARTS} AND state != 'dead' ORDER BY id"
    for row in db.execute(f"{_SELECT_PARTS} {here}").fetchall():
        try:
            yield stored_part(row)
        except ValueError as error:
            _set_aside(db, "outbox", row[0], error)


def _set_aside(db: sqlite3.Connection, table: str, row_id: int, error: ValueError) -> None:
    """A row cannot be read: it waits for a person's decision."""
    name, state = (f"in-{row_id}", "failed") if table == "inbox" else (f"out-{row_id}", "dead")
    logger.error("{} cannot be read: {}", name, error)
    execute(
        db,
        f"UPDATE {table} SET state = ?, reason = ? WHERE id = ?",
        *(state, f"it cannot be read: {error}", row_id),
    )
