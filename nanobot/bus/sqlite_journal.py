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

What is promised depends on which statements share a transaction. The outbox has a file of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from secrets import randbelow

from loguru import logger

from nanobot.bus.damage import Log, check_rest, damage_reports, find_damage, finish, note_damage
from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    KEEP_DAYS,
    Committed,
    Completion,
    InboxEntry,
    Leftovers,
    MessageTurn,
    Redact,
    Step,
    Unfiled,
)
from nanobot.bus.journal_file import (
    SqliteState,
    compact,
    redact_rows,
)
from nanobot.bus.journal_looking import COUNT_TURN, USED_DAYS, transaction
from nanobot.bus.rows import (
    ENTRY,
    MOST_ASKED,
    NOTICES,
    OPEN_MESSAGES,
    OPEN_PARTS,
    WAITING_MESSAGES,
    damage_notice,
    decode_helper,
    encode_event,
    gather_turns,
    stored_entry,
    unreadable_notice,
)
from nanobot.bus.sends import Mark
from nanobot.bus.sqlite import copy_to, execute, storage_error
from nanobot.bus.sqlite_outbox import (
    ASKED,
    SqliteOutbox,
    apply_mark,
    insert_outgoing,
    open_parts,
    set_aside,
)
from nanobot.clock import Clock
from nanobot.errors import DatabaseDamaged, StorageError


class SqliteJournal(SqliteOutbox):
    """The file at `path`. See `Journal` for what each method does."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._path = path
        self.state = SqliteState(path.parent)
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

    @transaction
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
        parts = insert_outgoing(db, done.turn_id, done.outgoing, now.isoformat())
        return Committed(unfiled_id, parts, _insert_inbound(db, done.republish, now))

    def mark_filed(self, unfiled_ids: Sequence[int]) -> None:
        ids = [(unfiled_id,) for unfiled_id in unfiled_ids]
        self.database.post(
            lambda db: db.executemany("DELETE FROM unfiled WHERE id = ?", ids), can_wait=True
        )

    @transaction
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
            apply_mark(db, mark)
        asked = f"{OPEN_PARTS} AND {ASKED}"  # by a process that waits no more
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
        return Leftovers(tuple(Unfiled(*row) for row in unfiled), entries, tuple(open_parts(db)))

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

    async def erase(self, redact: Redact) -> int:
        changed = await self.database.run(lambda db: redact_rows(db, redact), after_commit=compact)
        await asyncio.to_thread(self.state.copy)
        return changed

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
            insert_outgoing(db, f"damaged-{row_id}", (outgoing,), now)
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
            set_aside(db, "inbox", row_id, error)
            outgoing = unreadable_notice(channel, chat_id, event_id)
            insert_outgoing(db, f"unreadable-{row_id}", (outgoing,), now.isoformat())
    query = "SELECT kind, payload FROM step WHERE turn_id = ? ORDER BY number"
    turns = {entry.turn_id for entry in entries if entry.turn_id}
    steps = {turn_id: [Step(*step) for step in db.execute(query, (turn_id,))] for turn_id in turns}
    return gather_turns(entries, steps)
