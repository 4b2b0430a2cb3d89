"""The journal in SQLite, `state/journal.db`: inbox, turns, unfiled lines, outbox, buttons.

Invariants:

- A message is answered or still here. Its row leaves `received`/`working` only in the transaction
  that also stores what the turn produced (`complete`).
- That transaction is a turn's commit point: the lines for the session file, the closed inbox rows
  and the replies exist together or not at all. The session file is appended from it afterwards and
  the copy in `unfiled` is cleared once the file is synced.
- Done rows keep their key for `KEEP_DAYS`, which is how duplicates are recognised, and lose their
  payload.
- No row stops the start: one whose payload is broken is set aside as failed, with a reason, and its
  person is told.

A reply has one row per part that a channel can send at once. A part goes `pending → sending → sent
| dead`. One that is `sending` when the process dies, or that the platform did not answer, is in
doubt: it may have arrived, and is sent once more. That repetition cannot be excluded, because no
platform takes an idempotency key for every kind of message.

A button's id on the platform is random, is valid in its own chat only, and expires with the other
traces of its message; the value stays here. A client that makes up an id presses nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from loguru import logger

from nanobot.bus.events import (
    Address,
    InboundMessage,
    OutboundMessage,
    OutboundPart,
    decode_inbound,
    encode_inbound,
    encode_outbound,
)
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    KEEP_DAYS,
    Committed,
    Completion,
    InboxEntry,
    JournalReports,
    Leftovers,
    OutboxPart,
    Outgoing,
    Step,
    Unfiled,
)
from nanobot.bus.sqlite import Database, Work, copy_to, open_file, storable
from nanobot.bus.sqlite_reports import (
    NOTICE,
    NOTICES,
    SELECT_PARTS,
    SqliteReports,
    decode_helper,
    load_part,
    stored_part,
)
from nanobot.bus.sqlite_state import TABLE as DOCUMENT_TABLE
from nanobot.bus.sqlite_state import SqliteState, take_in
from nanobot.clock import Clock
from nanobot.errors import StorageError

MIGRATIONS = (
    """
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        event_id TEXT NOT NULL,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'received'
            CHECK (state IN ('received', 'working', 'done', 'failed', 'stopped')),
        attempts INTEGER NOT NULL DEFAULT 0,
        runs INTEGER NOT NULL DEFAULT 0,
        not_before REAL NOT NULL DEFAULT 0,
        group_id TEXT NOT NULL DEFAULT '',
        turn_id TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        received_at TEXT NOT NULL,
        payload TEXT,
        UNIQUE (channel, chat_id, event_id)
    );
    CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('received', 'working', 'failed');

    CREATE TABLE cursor (channel TEXT PRIMARY KEY, value TEXT NOT NULL);

    CREATE TABLE turn (
        id TEXT PRIMARY KEY,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped')),
        progress INTEGER NOT NULL DEFAULT 0,
        started_at TEXT NOT NULL,
        report TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX turn_running ON turn (state) WHERE state = 'running';

    CREATE TABLE step (
        turn_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        PRIMARY KEY (turn_id, number)
    ) WITHOUT ROWID;

    CREATE TABLE prompt (id TEXT PRIMARY KEY, text TEXT NOT NULL, used_at TEXT NOT NULL);

    CREATE TABLE unfiled (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_key TEXT NOT NULL,
        lines TEXT NOT NULL
    );

    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id TEXT NOT NULL,
        call TEXT NOT NULL,
        part INTEGER NOT NULL,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending'
            CHECK (state IN ('pending', 'sending', 'sent', 'dead')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_try_at REAL NOT NULL DEFAULT 0,
        platform_id TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        payload TEXT,
        created_at TEXT NOT NULL,
        UNIQUE (turn_id, call, part)
    );
    CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('pending', 'sending', 'dead')
    """,
    """
    CREATE TABLE learning (
        day TEXT PRIMARY KEY,
        calls INTEGER NOT NULL,
        prompt INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        completion INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE button (
        id TEXT PRIMARY KEY,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        sender_id TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE helper (
        id TEXT PRIMARY KEY,
        started_at TEXT NOT NULL,
        if_lost TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE spending (
        day TEXT PRIMARY KEY,
        tokens INTEGER NOT NULL,
        warned INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # Whether an earlier attempt may have arrived.
    "ALTER TABLE outbox ADD COLUMN in_doubt INTEGER NOT NULL DEFAULT 0",
    # How often a turn that was taken up asked the model since it last made progress.
    "ALTER TABLE turn ADD COLUMN asked INTEGER NOT NULL DEFAULT 0",
    DOCUMENT_TABLE,
)


def documents_of(folder: Path) -> SqliteState:
    """The documents beside the journal in `folder`, without the journal."""
    path = folder / "journal.db"
    return SqliteState(lambda: open_file(path, MIGRATIONS, take_in), folder)


def with_button_ids(db: sqlite3.Connection, message: OutboundMessage, now: str) -> OutboundMessage:
    """The message with an id on each button, which is stored in the caller's transaction."""
    buttons = []
    for button in message.buttons:
        row = db.execute(
            "INSERT INTO button VALUES (lower(hex(randomblob(12))), ?, ?, ?, ?, ?) RETURNING id",
            (
                message.channel,
                storable(message.chat_id),
                storable(button.only),
                storable(button.value),
                now,
            ),
        ).fetchone()
        buttons.append(replace(button, id=row[0]))
    return replace(message, buttons=tuple(buttons))


def find_pressed(
    db: sqlite3.Connection, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
) -> str | None:
    """The value of a button of this chat, for a person with these ids; None for any other."""
    row = db.execute(
        "SELECT value, sender_id FROM button WHERE id = ? AND channel = ? AND chat_id = ?",
        (storable(button_id), channel, storable(chat_id)),
    ).fetchone()
    if row is None or (row[1] and row[1] not in sender_ids):
        return None
    value: str = row[0]
    return value


def insert_outgoing(
    db: sqlite3.Connection, turn_id: str, outgoing: Sequence[Outgoing], now: str
) -> tuple[OutboxPart, ...]:
    """Store messages, in order. One that this turn already has is not stored again."""
    stored = []
    for item in outgoing:
        for number, message in enumerate(item.parts):
            last = number == len(item.parts) - 1
            row = db.execute(
                "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                (
                    turn_id,
                    item.call,
                    number,
                    message.channel,
                    storable(message.chat_id),
                    encode_outbound(message, item.event_ids, last),
                    now,
                ),
            ).fetchone()
            if row:
                key = f"{turn_id}/{item.call}/{number}"
                sent = with_button_ids(db, message, now)
                if message.buttons:
                    payload = encode_outbound(sent, item.event_ids, last)
                    db.execute("UPDATE outbox SET payload = ? WHERE id = ?", (payload, row[0]))
                stored.append(OutboxPart(row[0], OutboundPart.of(key, sent, item.event_ids, last)))
    return tuple(stored)


def open_parts(db: sqlite3.Connection) -> Iterator[OutboxPart]:
    """What was not confirmed, oldest first. A part that cannot be read any more is dead."""
    rows = db.execute(
        f"{SELECT_PARTS} WHERE state IN ('pending', 'sending') ORDER BY id"
    ).fetchall()
    for row in rows:
        try:
            yield stored_part(row)
        except ValueError as error:
            logger.error("reply out-{} cannot be read: {}", row[0], error)
            db.execute(
                "UPDATE outbox SET state = 'dead', reason = ? WHERE id = ?",
                (f"it cannot be read: {error}", row[0]),
            )


_EXCERPT = 60


def _notice(db: sqlite3.Connection, item: OutboxPart, reason: str, turn_id: str) -> OutboundMessage:
    """What is said of a part that was given up: in the chat where its turn was asked for, else in
    its own."""
    part = item.part
    row = db.execute(
        "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = ? ORDER BY id LIMIT 1",
        (turn_id,),
    ).fetchone()
    channel, chat_id, key = row or (part.channel, part.chat_id, "")
    here = (channel, chat_id) == (part.channel, part.chat_id)
    asked = Address.of(key)
    thread = asked.thread_id if (asked.channel, asked.chat_id) == (channel, chat_id) else ""
    what = ", ".join(media.name or media.ref for media in part.media)
    what = f"The file {what}" if what else f"A message that begins “{_beginning(part.content)}”"
    place = "here" if here else f"to {part.channel}:{part.chat_id}"
    text = (
        f"⚠️ {what} could not be delivered {place}: {reason.rstrip('. ')}. It is kept:"
        f" `nanobot queue retry out-{item.id}` sends it again."
    )
    return OutboundMessage(channel, chat_id, text, thread_id=part.thread_id if here else thread)


def _beginning(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _EXCERPT else f"{words[:_EXCERPT].rstrip()}…"


_MOST_ASKED = 10
_UNREADABLE = (
    "A message of yours was damaged on my disk before I could answer it. Please send it again."
)


def find_leftovers(db: sqlite3.Connection, now: datetime) -> Leftovers:
    """What there is to do. An end without progress is counted once: a turn counts again only when
    it was claimed again, so one that never got its chance is not blamed. One that had asked the
    model by then is not blamed either, unless that happened `_MOST_ASKED` times in a row."""
    db.execute(
        "UPDATE inbox SET attempts = attempts + 1 WHERE state = 'working' AND turn_id IN"
        " (SELECT id FROM turn WHERE state = 'running' AND progress = 0)"
    )
    db.execute(
        "UPDATE inbox SET attempts = ? WHERE state = 'working' AND turn_id IN"
        " (SELECT id FROM turn WHERE state = 'running' AND asked >= ?)",
        (GIVE_UP_AFTER, _MOST_ASKED),
    )
    db.execute("UPDATE turn SET progress = 1 WHERE state = 'running'")
    unfiled = db.execute("SELECT id, session_key, lines FROM unfiled ORDER BY id").fetchall()
    entries = _open_entries(db, now)
    return Leftovers(tuple(Unfiled(*row) for row in unfiled), entries, tuple(open_parts(db)))


def prune(db: sqlite3.Connection, horizon: str) -> None:
    """Forget what ended and is older than `horizon`, an ISO time."""
    db.execute(
        "DELETE FROM inbox WHERE state IN ('done', 'stopped') AND received_at < ?", (horizon,)
    )
    db.execute(
        "DELETE FROM outbox WHERE created_at < ?"
        " AND (state = 'sent' OR (state = 'dead' AND turn_id LIKE ?))",
        (horizon, NOTICES),
    )
    db.execute("DELETE FROM turn WHERE state != 'running' AND started_at < ?", (horizon,))
    db.execute(
        "DELETE FROM step WHERE turn_id NOT IN (SELECT id FROM turn WHERE state = 'running')"
    )
    db.execute("DELETE FROM button WHERE created_at < ?", (horizon,))
    db.execute("DELETE FROM prompt WHERE used_at < ?", (horizon,))


def _open_entries(db: sqlite3.Connection, now: datetime) -> tuple[InboxEntry, ...]:
    rows = db.execute(
        "SELECT id, channel, chat_id, event_id, payload, attempts, runs, turn_id, not_before,"
        " reason, received_at, state FROM inbox WHERE state IN ('received', 'working') ORDER BY id"
    ).fetchall()
    waiting: list[InboxEntry] = []
    turns: dict[str, list[InboxEntry]] = {}
    for row_id, channel, chat_id, event_id, payload, *rest in rows:
        attempts, runs, turn_id, not_before, reason, received_at, state = rest
        message = _decoded(db, row_id, payload)
        if message is None:
            _tell(db, row_id, OutboundMessage(channel, chat_id, _UNREADABLE), event_id, now)
        elif state == "working":
            entry = InboxEntry(row_id, message, attempts, runs, turn_id, not_before, reason)
            entry = replace(entry, recovered=True, received_at=_seconds(received_at))
            turns.setdefault(turn_id, []).append(entry)
        else:
            entry = InboxEntry(row_id, message, attempts, runs, "", not_before, reason)
            entry = replace(entry, recovered=True, received_at=_seconds(received_at))
            waiting.append(replace(entry, previous_turn=turn_id))
    resumed = [
        replace(entries[0], joined=tuple(entries[1:]), steps=_load_steps(db, turn_id))
        for turn_id, entries in turns.items()
    ]
    return tuple(sorted((*resumed, *waiting), key=lambda entry: entry.id))


def _seconds(stored: str) -> float:
    """A stored time in seconds since the epoch; 0 where it cannot be read."""
    try:
        return datetime.fromisoformat(stored).timestamp()
    except ValueError:
        return 0.0


def _decoded(db: sqlite3.Connection, row_id: int, payload: str | None) -> InboundMessage | None:
    try:
        return decode_inbound(payload or "")
    except ValueError as error:
        logger.error("message in-{} cannot be read: {}", row_id, error)
        db.execute(
            "UPDATE inbox SET state = 'failed', reason = ? WHERE id = ?",
            (f"it cannot be read: {error}", row_id),
        )
        return None


def _tell(
    db: sqlite3.Connection, row_id: int, message: OutboundMessage, event_id: str, now: datetime
) -> None:
    outgoing = Outgoing("reply", (message,), (event_id,))
    insert_outgoing(db, f"unreadable-{row_id}", (outgoing,), now.isoformat())


def _load_steps(db: sqlite3.Connection, turn_id: str) -> tuple[Step, ...]:
    rows = db.execute(
        "SELECT kind, payload FROM step WHERE turn_id = ? ORDER BY number", (turn_id,)
    )
    return tuple(Step(kind, payload) for kind, payload in rows)


class SqliteJournal:
    """The file at `path`. See `Journal` for what each method does."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.database = Database(path, MIGRATIONS, take_in)
        self.state = documents_of(path.parent)
        self.reports: JournalReports = SqliteReports(self.database, self.state)
        self._clock = clock
        self._pruned_at = clock.now()

    async def open(self) -> None:
        self.database.open()
        try:
            await self.database.run(self._prune())
        except StorageError:
            await self.database.close()
            raise

    async def freeze(self, copy: Path, meanwhile: Callable[[], None]) -> None:
        """Write a copy to the file `copy`, which must not exist, and call `meanwhile`, all in a
        moment in which nothing is stored. Raises `OSError` and `StorageError`."""

        def both(db: sqlite3.Connection) -> None:
            copy_to(db, copy)
            meanwhile()

        await self.database.run(lambda _: None, afterwards=both)

    async def close(self) -> None:
        await self.database.close()
        self.state.close()

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> asyncio.Future[tuple[InboxEntry, ...]]:
        now = self._clock.now()

        def work(db: sqlite3.Connection) -> tuple[InboxEntry, ...]:
            if cursor is not None:
                db.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?)", (channel, cursor))
            return _insert_inbound(db, messages, now)

        if now - self._pruned_at > timedelta(days=1):
            self.database.post(self._prune(), keep=False)
        return self.database.submit(work)

    async def cursor(self, channel: str) -> str | None:
        def work(db: sqlite3.Connection) -> str | None:
            row = db.execute("SELECT value FROM cursor WHERE channel = ?", (channel,)).fetchone()
            return row[0] if row else None

        return await self.database.run(work)

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        now = self._clock.now().isoformat()

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO turn (id, session_key, state, started_at) VALUES (?, ?, 'running', ?)"
                " ON CONFLICT (id) DO UPDATE SET progress = 0",
                (turn_id, storable(session_key), now),
            )
            db.executemany(
                "UPDATE inbox SET state = 'working', turn_id = ?, runs = runs + (turn_id != ?)"
                " WHERE id = ? AND state IN ('received', 'working')",
                [(turn_id, turn_id, entry_id) for entry_id in entry_ids],
            )

        self.database.post(work, patient=not at_once)

    async def asking(self, turn_id: str) -> None:
        await self.database.run(
            lambda db: db.execute(
                "UPDATE turn SET progress = 1, asked = asked + 1 WHERE id = ?", (turn_id,)
            )
        )

    async def begin_command(self, entry_id: int) -> None:
        await self.database.run(
            lambda db: db.execute("UPDATE inbox SET runs = runs + 1 WHERE id = ?", (entry_id,))
        )

    async def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> None:
        await self.database.run(_store_steps(turn_id, first, steps, joined), keep=True)

    def post_steps(self, turn_id: str, first: int, steps: Sequence[Step]) -> None:
        self.database.post(_store_steps(turn_id, first, steps, ()))

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        now = self._clock.now().isoformat()
        self.database.post(
            lambda db: db.execute(
                "INSERT INTO prompt VALUES (?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at",
                (prompt_id, storable(text), now),
            ),
            patient=True,
            keep=False,
        )

    async def complete(self, completion: Completion) -> Committed:
        now = self._clock.now()
        return await self.database.run(lambda db: _complete(db, completion, now))

    def filed(self, unfiled_ids: Sequence[int]) -> None:
        ids = [(unfiled_id,) for unfiled_id in unfiled_ids]
        self.database.post(
            lambda db: db.executemany("DELETE FROM unfiled WHERE id = ?", ids), patient=True
        )

    async def postpone(self, entry_ids: Sequence[int], not_before: float, reason: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                "UPDATE inbox SET not_before = ?, reason = ? WHERE id = ?",
                [(not_before, storable(reason), entry_id) for entry_id in entry_ids],
            )
            db.executemany(  # a crash while it waits is not the message's doing
                "UPDATE turn SET progress = 1, asked = 0"
                " WHERE id = (SELECT turn_id FROM inbox WHERE id = ?)",
                [(entry_id,) for entry_id in entry_ids],
            )

        await self.database.run(work)

    def send(self, turn_id: str, outgoing: Outgoing) -> asyncio.Future[tuple[OutboxPart, ...]]:
        now = self._clock.now().isoformat()
        return self.database.submit(lambda db: insert_outgoing(db, turn_id, (outgoing,), now))

    async def release(self) -> None:
        if not self.database.is_open:
            return
        try:
            await self.database.run(
                lambda db: db.execute(
                    "UPDATE turn SET progress = 1, asked = 0 WHERE state = 'running'"
                )
            )
        except StorageError as error:
            logger.warning("the clean end could not be noted: {}", error)

    async def leftovers(self) -> Leftovers:
        now = self._clock.now()
        return await self.database.run(lambda db: find_leftovers(db, now))

    async def pressed(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        return await self.database.run(
            lambda db: find_pressed(db, button_id, channel, chat_id, sender_ids)
        )

    async def is_busy(self, session_key: str) -> bool:
        query = "SELECT 1 FROM inbox WHERE session_key = ? AND state IN ('received', 'working')"
        found = await self.database.run(
            lambda db: db.execute(query, (storable(session_key),)).fetchone()
        )
        return found is not None

    async def knows(self, channel: str, chat_id: str, event_id: str) -> bool:
        return await self.database.run(
            lambda db: (
                db.execute(
                    "SELECT 1 FROM inbox WHERE channel = ? AND chat_id = ? AND event_id = ?",
                    (channel, storable(chat_id), storable(event_id)),
                ).fetchone()
                is not None
            )
        )

    def _prune(self) -> Work[None]:
        self._pruned_at = self._clock.now()
        horizon = (self._pruned_at - timedelta(days=KEEP_DAYS)).isoformat()
        return lambda db: prune(db, horizon)

    @property
    def has_died(self) -> bool:
        return self.database.has_died

    @property
    def refusal(self) -> str:
        return self.database.refusal

    def mark_sending(self, part_id: int) -> None:
        self.database.post(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE id = ?",
                (part_id,),
            ),
            patient=True,
            keep=False,
        )

    async def mark_sent(self, item: OutboxPart, platform_id: str) -> tuple[OutboxPart, ...]:
        def work(db: sqlite3.Connection) -> tuple[OutboxPart, ...]:
            db.execute(
                "UPDATE outbox SET state = 'sent', platform_id = ?, payload = NULL WHERE id = ?",
                (storable(platform_id), item.id),
            )
            rows = db.execute(
                "UPDATE outbox SET state = 'pending' WHERE state = 'dead' AND turn_id LIKE ?"
                " AND channel = ? AND chat_id = ? RETURNING id",
                (NOTICES, item.part.channel, storable(item.part.chat_id)),
            ).fetchall()
            return tuple(load_part(db, row_id) for (row_id,) in rows)

        return await self.database.insist(work)

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        self.database.post(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'pending', next_try_at = ?, in_doubt = ?, reason = ?"
                " WHERE id = ?",
                (item.next_try_at, item.in_doubt, storable(reason), item.id),
            )
        )

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        now = self._clock.now().isoformat()

        def work(db: sqlite3.Connection) -> tuple[OutboxPart, ...]:
            db.execute(
                "UPDATE outbox SET state = 'dead', reason = ? WHERE id = ?",
                (storable(reason), item.id),
            )
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(NOTICE):
                return ()
            notice = Outgoing(call, (_notice(db, item, reason, turn_id),))
            return insert_outgoing(db, f"{NOTICE}{turn_id}", (notice,), now)

        return await self.database.insist(work)

    async def helper_begun(self, helper_id: str, if_lost: InboundMessage) -> None:
        row = (helper_id, self._clock.now().isoformat(), encode_inbound(if_lost))
        await self.database.run(
            lambda db: db.execute("INSERT OR REPLACE INTO helper VALUES (?, ?, ?)", row)
        )

    async def helper_ended(self, helper_id: str) -> None:
        await self.database.run(
            lambda db: db.execute("DELETE FROM helper WHERE id = ?", (helper_id,))
        )

    async def lost_helpers(self) -> list[tuple[str, InboundMessage]]:
        rows = await self.database.run(
            lambda db: db.execute("SELECT id, if_lost FROM helper ORDER BY started_at").fetchall()
        )
        read = [(helper_id, decode_helper(helper_id, text)) for helper_id, text in rows]
        return [(helper_id, message) for helper_id, message in read if message is not None]


def _insert_inbound(
    db: sqlite3.Connection, messages: Sequence[InboundMessage], now: datetime
) -> tuple[InboxEntry, ...]:
    entries = []
    for message in messages:
        row = db.execute(
            "INSERT INTO inbox"
            " (channel, chat_id, event_id, session_key, group_id, received_at, payload)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (channel, chat_id, event_id) DO NOTHING RETURNING id",
            (
                message.channel,
                storable(message.chat_id),
                storable(message.event_id),
                storable(message.session_key),
                storable(message.group_id),
                now.isoformat(),
                encode_inbound(message),
            ),
        ).fetchone()
        if row:
            entries.append(InboxEntry(row[0], message, received_at=now.timestamp()))
    return tuple(entries)


def _store_steps(
    turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int]
) -> Work[None]:
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

    return work


def _complete(db: sqlite3.Connection, done: Completion, now: datetime) -> Committed:
    payload = "payload" if done.state == "failed" else "NULL"
    db.executemany(
        f"UPDATE inbox SET state = ?, reason = ?, payload = {payload} WHERE id = ?",  # noqa: S608 - one of two words
        [(done.state, storable(done.reason), entry_id) for entry_id in done.entry_ids],
    )
    if done.report:
        db.execute(
            "UPDATE turn SET state = ?, report = ? WHERE id = ?",
            (done.state, done.report, done.turn_id),
        )
        db.execute("DELETE FROM step WHERE turn_id = ?", (done.turn_id,))
    unfiled_id = 0
    if done.lines:
        inserted = db.execute(
            "INSERT INTO unfiled (session_key, lines) VALUES (?, ?) RETURNING id",
            (storable(done.session_key), done.lines),
        )
        unfiled_id = inserted.fetchone()[0]
    if done.replaces_turn:
        db.execute(
            "UPDATE inbox SET state = 'done', payload = NULL"
            " WHERE turn_id = ? AND state = 'failed'",
            (done.replaces_turn,),
        )
    parts = insert_outgoing(db, done.turn_id, done.outgoing, now.isoformat())
    return Committed(unfiled_id, tuple(parts), _insert_inbound(db, done.republish, now))
