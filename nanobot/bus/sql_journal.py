"""The journal: the state that must survive a crash. This file has the inbox, turns and unfiled
lines, for both engines.

The contract:

- Writes apply in call order, whether they are awaited or posted. A posted write has no waiting
  caller.
- An awaited method returns once its change is durable.
- Every write is safe to repeat after an unknown outcome of a commit.
- `StorageError` means that nothing of the call was stored, unless the method documents otherwise.

Invariants:

- A message is answered or still here. Its row leaves `received`/`working` only in the transaction
  that also stores the turn's results (`complete`).
- That transaction is a turn's commit point: the lines for the session file, the closed inbox rows
  and the replies exist together or not at all. The lines are appended to the session file
  afterwards, and their copy in `unfiled` is cleared once the file is synced.
- Done rows lose their payload, but keep their key for `KEEP_DAYS` to recognise duplicates.
- No row stops the start. A row with a broken payload is set aside as failed, with a reason, and its
  sender gets a notice.

These promises depend on which statements share a transaction. For the outbox see `sql_outbox`."""

from __future__ import annotations

from abc import abstractmethod
from asyncio import Future
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from loguru import logger

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    NOTICE,
    Committed,
    Completion,
    InboxEntry,
    Leftovers,
    MessageTurn,
    Redact,
    Step,
    Unfiled,
)
from nanobot.bus.rows import (
    DEAD_PARTS,
    ENTRY,
    FAILED_MESSAGES,
    IS_QUESTION,
    MOST_ASKED,
    OPEN_PARTS,
    PART,
    UNREADABLE,
    WAITING_MESSAGES,
    WAITING_PARTS,
    damage_notice,
    decode_entry,
    decode_helper,
    decode_part,
    decode_report,
    encode_event,
    gather_turns,
    number_in,
)
from nanobot.bus.sql import Row, Statement, Steps, fetch, rows_of, send, transaction
from nanobot.bus.sql_outbox import Broken, SqlOutbox, set_aside_parts, split_readable
from nanobot.bus.sql_queries import ADD_USAGE
from nanobot.clock import Clock
from nanobot.errors import StorageError


class Journal(SqlOutbox):
    """Store of incoming messages, running turns and outgoing replies. `SqlQueries` adds queries for
    people and the counts outside turns.

    `scopes` limits a method to these scopes of memory if several processes share the store. None
    means all. A single process has no scopes in its rows and may treat it as None."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._pruned_at = clock.now()

    @abstractmethod
    async def open(self) -> None:
        """Open the journal and delete entries older than `KEEP_DAYS`. Raise `StorageError`."""

    @abstractmethod
    async def close(self) -> None:
        """Store the queued changes, then close."""

    @abstractmethod
    async def may_act(self) -> None:
        """Return once this process may do something irreversible, such as running a tool or
        sending.

        A process that has the home to itself never waits. A team's worker that lost its connection
        waits until it is certain that no other worker has taken over."""

    @abstractmethod
    async def erase(self, redact: Redact) -> int:
        """Redact every stored text and leave no byte of the old ones. Return how many changed.

        After a `StorageError`, repeating it finishes the rest."""

    @abstractmethod
    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        """Record that a subagent is about to start. `if_lost` reports its loss after a crash."""

    @abstractmethod
    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        """Add a call's tokens to a day, for one `use` or for all, and record a warning. Posted."""

    @abstractmethod
    def _begin_pruning(self) -> None:
        """Start deleting ended entries older than `KEEP_DAYS`, without waiting."""

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Future[tuple[InboxEntry, ...]]:
        """Store messages and the platform cursor that covers them, even if the future is not
        awaited. The future returns the new entries."""
        now = self._clock.now()

        def steps() -> Steps[tuple[InboxEntry, ...]]:
            if cursor is not None:
                put = "INSERT INTO cursor VALUES (?, ?) ON CONFLICT (channel) DO UPDATE SET"
                yield from send(f"{put} value = excluded.value", channel, cursor)
            return (yield from self._insert_inbound(messages, now))

        if now - self._pruned_at > timedelta(days=1):
            self._pruned_at = now
            self._begin_pruning()
        return self._transact(steps)

    async def cursor(self, channel: str) -> str | None:
        """Return the last stored cursor of a channel."""
        rows = await self._read("SELECT value FROM cursor WHERE channel = ?", channel)
        return rows[0][0] if rows else None

    async def has_received(
        self, channel: str, chat_id: str, event_id: str, *, unanswered: bool = False
    ) -> bool:
        """Return True if an event was received in the last `KEEP_DAYS`. With `unanswered`, only if
        it is still open."""
        query = "SELECT 1 FROM inbox WHERE channel = ? AND chat_id = ? AND event_id = ?"
        query += " AND state IN ('received', 'working')" if unanswered else ""
        return bool(await self._read(query, channel, chat_id, event_id))

    async def find_turn(self, channel: str, chat_id: str, platform_id: str) -> MessageTurn | None:
        """Return the turn of a message that was received as the event `platform_id`, or sent under
        this id. Return None if it has no turn or is older than `KEEP_DAYS`."""
        place = (channel, chat_id, platform_id)
        rows = await self._read(
            "SELECT turn_id, session_key, (SELECT count(*) FROM inbox AS earlier"
            " WHERE earlier.turn_id = found.turn_id AND earlier.id < found.id)"
            " FROM inbox AS found WHERE channel = ? AND chat_id = ? AND event_id = ?"
            " AND turn_id != ''"
            " UNION ALL SELECT turn_id, session_key, -1 FROM outbox JOIN turn"
            " ON turn.id = turn_id WHERE channel = ? AND chat_id = ? AND platform_id = ?"
            " AND platform_id != ''",
            *(*place, *place),
        )
        return MessageTurn(*rows[0]) if rows else None

    async def is_busy(self, session_key: str) -> bool:
        """Return True if a message of this conversation is waiting or being answered."""
        query = f"SELECT 1 FROM inbox WHERE {WAITING_MESSAGES} AND session_key = ? LIMIT 1"
        return bool(await self._read(query, session_key))

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        """Begin or resume a turn for these messages. Posted: after a crash before the write is
        durable, the turn never began. Use `at_once` for suspects, so that their attempts are
        counted even if they crash the process quickly."""
        ids, now = list(entry_ids), self._clock.now().isoformat()

        def steps() -> Steps[None]:
            column, scope, whose = self._whose(entry_ids=ids)
            yield from send(
                f"INSERT INTO turn (id, session_key, state, started_at{column})"
                f" VALUES (?, ?, 'running', ?{scope}) ON CONFLICT (id) DO UPDATE SET progress = 0",
                *(turn_id, session_key, now, *whose),
            )
            yield from send(
                "UPDATE inbox SET state = 'working', turn_id = ?,"
                " runs = runs + CASE WHEN turn_id != ? THEN 1 ELSE 0 END"
                f" WHERE id {self.AMONG} AND state IN ('received', 'working')",
                *(turn_id, turn_id, ids),
            )

        self._post_steps(steps, can_wait=not at_once)

    async def mark_model_asked(self, turn_id: str) -> None:
        """Record that a turn resumed after a crash is asking the model. If the process dies now,
        the turn is no suspect, unless that happens too often in a row."""
        await self._run("UPDATE turn SET progress = 1, asked = asked + 1 WHERE id = ?", turn_id)

    async def mark_owner_asked(self, turn_id: str) -> None:
        """Record that a turn is about to wait for the owner's answer. If the process dies now, the
        turn is no suspect, however often it happens."""
        await self._run("UPDATE turn SET progress = 1 WHERE id = ?", turn_id)

    async def begin_command(self, entry_id: int) -> None:
        """Count a run of a command's entry before an effect that must not happen twice."""
        await self._run("UPDATE inbox SET runs = runs + 1 WHERE id = ?", entry_id)

    def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> Future[None]:
        """Append steps numbered from `first`. `joined` inbox entries become part of the turn. If
        the future holds a `StorageError`, steps without `joined` are stored later, but before the
        turn's next step. Steps that are safe to repeat need not be awaited."""

        def add() -> Steps[None]:
            for number, step in enumerate(steps, first):
                yield from send(
                    "INSERT INTO step VALUES (?, ?, ?, ?) ON CONFLICT (turn_id, number)"
                    " DO UPDATE SET kind = excluded.kind, payload = excluded.payload",
                    *(turn_id, number, step.kind, step.payload),
                )
            yield from send("UPDATE turn SET progress = 1, asked = 0 WHERE id = ?", turn_id)
            if joined:
                taken = "UPDATE inbox SET state = 'working', turn_id = ? WHERE id"
                yield from send(f"{taken} {self.AMONG}", turn_id, list(joined))

        return self._transact(add, retry=not joined)

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        """Store a system prompt, once, for `nanobot turn show`. Posted."""
        now = self._clock.now()
        yesterday = (now - timedelta(days=1)).isoformat()

        def steps() -> Steps[None]:
            # Usually avoids locking a row that other workers of a team use too.
            used = "UPDATE prompt SET used_at = ? WHERE id = ? AND used_at < ?"
            yield from send(used, now.isoformat(), prompt_id, yesterday)
            put = "INSERT INTO prompt VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            yield from send(put, prompt_id, text, now.isoformat())

        self._post_steps(steps, can_wait=True)

    @transaction
    def complete(self, completion: Completion) -> Steps[Committed]:
        """Store the end of a turn or a command. This is its commit point."""
        done, now, ids = completion, self._clock.now(), list(completion.entry_ids)
        state = "stopped" if done.given_up else done.state
        yield from send(
            "UPDATE inbox SET state = ?, reason = ?, payload = CASE WHEN ? THEN payload END"
            f" WHERE id {self.AMONG}",
            *(state, done.reason, state == "failed", ids),
        )
        if done.report:
            yield from self._end_turn(done)
        filed: Any = None
        if done.lines:
            # Before its first turn, only messages show the scope of a conversation.
            column, scope, whose = self._whose(
                turn_id=done.turn_id, entry_ids=ids, session_key=done.session_key
            )
            filed = yield from send(
                f"INSERT INTO unfiled (session_key, lines{column}) VALUES (?, ?{scope})"
                " RETURNING id",
                *(done.session_key, done.lines, *whose),
            )
        if done.replaces_turn:
            yield from send(
                "UPDATE inbox SET state = 'done', payload = NULL"
                f" WHERE {FAILED_MESSAGES} AND turn_id = ? AND turn_id != ''",
                done.replaces_turn,
            )
        parts = yield from self._insert_outgoing(done.turn_id, done.outgoing, now, ids)
        republished = yield from self._insert_inbound(done.republish, now)
        unfiled_id = (yield from rows_of(filed))[0][0] if done.lines else 0
        return Committed(unfiled_id, parts, republished)

    def _end_turn(self, done: Completion) -> Steps[None]:
        """Store a turn's report and add its usage to its day, once even if repeated."""
        report = decode_report(done.report)
        names = ("prompt_tokens", "cached_tokens", "completion_tokens")
        yield from send(
            "INSERT INTO used SELECT substr(started_at, 1, 10), session_key, 1, ?, ?, ?, ?"
            f" FROM turn WHERE id = ? AND state = 'running' {ADD_USAGE}",
            *(number_in(report, name) or 0 for name in names),
            *(number_in(report, "cost"), done.turn_id),
        )
        columns = self._report_columns(done.report)
        changes = ", ".join(f"{name} = ?" for name in columns)
        yield from send(
            f"UPDATE turn SET state = ?, {changes} WHERE id = ?",
            *(done.state, *columns.values(), done.turn_id),
        )
        yield from send("DELETE FROM step WHERE turn_id = ?", done.turn_id)

    def mark_filed(self, unfiled_ids: Sequence[int]) -> None:
        """Delete the copies of lines that are durable in the session file. Posted."""
        gone = f"DELETE FROM unfiled WHERE id {self.AMONG}"
        self._post(gone, list(unfiled_ids), can_wait=True)

    @transaction
    def forget_conversation(self, session_key: str) -> Steps[None]:
        """Drop the failed messages of a conversation that is being deleted, its undelivered replies
        with the notices that quote them, and the copies of its lines."""
        ended = f"UPDATE inbox SET state = 'stopped', payload = NULL WHERE {FAILED_MESSAGES}"
        yield from send(f"{ended} AND session_key = ?", session_key)
        dropped = "UPDATE outbox SET state = 'sent', payload = NULL, reason = 'dropped' WHERE"
        own = f"session_key = ? AND outbox.turn_id IN (turn.id, '{NOTICE}' || turn.id)"
        dropped += f" {DEAD_PARTS} AND EXISTS (SELECT 1 FROM turn WHERE {own})"
        yield from send(dropped, session_key)
        yield from send("DELETE FROM unfiled WHERE session_key = ?", session_key)

    @transaction
    def postpone(self, entry_ids: Sequence[int], not_before: float, reason: str) -> Steps[None]:
        """Let messages wait for the model until `not_before`, in seconds since the epoch."""
        ids = list(entry_ids)
        waiting = f"UPDATE inbox SET not_before = ?, reason = ? WHERE id {self.AMONG}"
        yield from send(waiting, not_before, reason, ids)
        yield from send(  # a crash while it waits is not the message's fault
            "UPDATE turn SET progress = 1, asked = 0"
            f" WHERE id IN (SELECT turn_id FROM inbox WHERE id {self.AMONG})",
            ids,
        )

    async def release(self, scopes: Collection[str] | None = None) -> None:
        """Record a clean end. Running turns resume at the next start, and no attempt is counted."""
        here, values = self._within(scopes)
        running = f"UPDATE turn SET progress = 1, asked = 0 WHERE state = 'running' {here}"
        try:
            await self._run(running, *values)
        except StorageError as error:
            logger.warning("the clean shutdown could not be recorded: {}", error)

    @transaction
    def leftovers(self, scopes: Collection[str] | None = None) -> Steps[Leftovers]:
        """Return the open work after a start. Call it only once, because it counts attempts."""
        return (yield from self._leftovers(scopes))

    def _leftovers(self, scopes: Collection[str] | None) -> Steps[Leftovers]:
        here, values = self._within(scopes)
        # Close the questions of processes that no longer wait.
        void = f"{OPEN_PARTS} AND {IS_QUESTION} AND {self.NOBODY_WAITS} {here}"
        yield from send(f"UPDATE outbox SET state = 'sent', payload = NULL WHERE {void}", *values)
        # Count an end without progress once: a turn counts again only after another claim, so a
        # turn that never ran is not blamed. Nor is a turn that had asked the model, unless that
        # happened `MOST_ASKED` times in a row.
        working = f"WHERE {WAITING_MESSAGES} AND state = 'working' {here} AND turn_id IN"
        working += " (SELECT id FROM turn WHERE state = 'running' AND"
        blame = f"UPDATE inbox SET attempts = attempts + 1 {working} progress = 0)"
        yield from send(blame, *values)
        blame = f"UPDATE inbox SET attempts = ? {working} asked >= ?)"
        yield from send(blame, GIVE_UP_AFTER, *values, MOST_ASKED)
        known = f"UPDATE turn SET progress = 1 WHERE state = 'running' {here}"
        yield from send(known, *values)
        query = f"SELECT id, session_key, lines, {self.SCOPE} FROM unfiled WHERE true {here}"
        unfiled = yield from fetch(f"{query} ORDER BY id", *values)
        entries = yield from self._open_entries(scopes)
        query = f"SELECT {PART}, {self.SCOPE} FROM outbox WHERE {WAITING_PARTS} {here}"
        rows = yield from fetch(f"{query} ORDER BY id", *values)
        parts, broken = split_readable(rows, decode_part)
        yield from set_aside_parts(broken)
        return Leftovers(tuple(Unfiled(*row) for row in unfiled), entries, tuple(parts))

    def _open_entries(self, scopes: Collection[str] | None) -> Steps[tuple[InboxEntry, ...]]:
        """Return the waiting messages, and the interrupted turns with their joined messages."""
        here, values = self._within(scopes)
        begins, mine = self._may_begin()
        query = f"SELECT {ENTRY}, {self.SCOPE}, channel, chat_id, event_id FROM inbox"
        query += f" WHERE {WAITING_MESSAGES}"
        rows = yield from fetch(f"{query} {begins} {here} ORDER BY id", *mine, *values)
        entries, broken = split_readable(rows, partial(self._entry, recovered=True))
        yield from self._set_aside_entries(broken)
        steps: dict[str, list[Step]] = {entry.turn_id: [] for entry in entries if entry.turn_id}
        query = f"SELECT turn_id, kind, payload FROM step WHERE turn_id {self.AMONG}"
        found = yield from fetch(f"{query} ORDER BY turn_id, number", list(steps))
        for turn_id, kind, payload in found:
            steps[turn_id].append(Step(kind, payload))
        return gather_turns(entries, steps)

    def _entry(self, row: Row, *, recovered: bool = False) -> InboxEntry:
        """Return the message in a row of `ENTRY`, a scope, and a channel, chat and event."""
        return decode_entry(row[:-3], recovered=recovered)

    def _set_aside_entries(self, broken: Iterable[Broken]) -> Steps[None]:
        """Mark unreadable messages as failed and notify their senders."""
        for row, error in broken:
            row_id, place, now = row[4], row[-3:], self._clock.now()
            logger.error("in-{} cannot be read: {}", row_id, error)
            failed = "UPDATE inbox SET state = 'failed', reason = ? WHERE id = ?"
            yield from send(failed, f"it cannot be read: {error}", row_id)
            outgoing = (damage_notice(UNREADABLE, *place),)
            yield from self._insert_outgoing(f"unreadable-{row_id}", outgoing, now, [row_id])

    def _insert_inbound(
        self, messages: Sequence[InboundMessage], now: datetime
    ) -> Steps[tuple[InboxEntry, ...]]:
        sent = list[tuple[InboundMessage, Any]]()
        for message in messages:
            sent.append((message, (yield self._new_message(message, now))))
        entries = list[InboxEntry]()
        for message, stored in sent:
            for row_id, scope in (yield from rows_of(stored)):
                since = now.timestamp()
                entries.append(InboxEntry(row_id, message, received_at=since, scope=scope))
        return tuple(entries)

    def _new_message(self, message: InboundMessage, now: datetime) -> Statement:
        """Return the statement that stores a new message and returns its id and scope."""
        return Statement(
            "INSERT INTO inbox"
            " (channel, chat_id, event_id, session_key, group_id, received_at, payload)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            f" ON CONFLICT (channel, chat_id, event_id) DO NOTHING RETURNING id, {self.SCOPE}",
            message_row(message, now),
        )

    async def remove_helper(self, helper_id: str) -> None:
        """Forget a subagent whose report is stored or not needed."""
        await self._run("DELETE FROM helper WHERE id = ?", helper_id)

    async def find_lost_helpers(
        self, scopes: Collection[str] | None = None
    ) -> list[tuple[str, InboundMessage]]:
        """Return the subagents of earlier processes, with the messages that report their loss."""
        here, values = self._within(scopes)
        query = f"SELECT id, if_lost FROM helper WHERE {self.IS_LOST} {here} ORDER BY started_at"
        rows = await self._read(query, *values)
        read = ((helper_id, decode_helper(helper_id, text)) for helper_id, text in rows)
        return [(helper_id, message) for helper_id, message in read if message is not None]


def message_row(message: InboundMessage, now: datetime) -> tuple[object, ...]:
    """Return a row: channel, chat, event, conversation, group, time, and payload."""
    return (
        *(message.channel, message.chat_id, message.event_id, message.session_key),
        *(message.delivery.group_id, now.isoformat(), encode_event(message)),
    )
