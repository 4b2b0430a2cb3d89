"""What must survive a crash: messages on their way in, turns under way, replies on their way out.

What always holds:

- A message is answered or still here. Its row leaves `received`/`working` only in the transaction
  that also stores what the turn produced (`complete`).
- That transaction is a turn's commit point: the lines for the session file, the closed inbox rows
  and the replies exist together or not at all. The session file is appended from it afterwards and
  the copy in `unfiled` is cleared once the file is synced.
- Done rows keep their key for `KEEP_DAYS` (that is how duplicates are known) and lose their
  payload.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from loguru import logger

from nanobot.bus import buttons, recovery
from nanobot.bus.codec import encode_inbound
from nanobot.bus.connecting import storable
from nanobot.bus.database import Database
from nanobot.bus.events import InboundMessage
from nanobot.bus.outbox import OutboxPart, Outgoing, insert_outgoing
from nanobot.bus.records import (
    GIVE_UP_AFTER,
    SUSPECT_AFTER,
    Committed,
    Completion,
    InboxEntry,
    Leftovers,
    Step,
    Unfiled,
)
from nanobot.bus.schema import MIGRATIONS
from nanobot.bus.writer import Work
from nanobot.clock import Clock
from nanobot.errors import StorageError

__all__ = [
    "GIVE_UP_AFTER",
    "KEEP_DAYS",
    "SUSPECT_AFTER",
    "Committed",
    "Completion",
    "InboxEntry",
    "Journal",
    "Leftovers",
    "Step",
    "Unfiled",
]

KEEP_DAYS = 30


class Journal:
    """`state/journal.db`. Every method that is awaited returns once its change is on disk."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.database = Database(path, MIGRATIONS)
        self._clock = clock
        self._pruned_at = clock.now()

    async def open(self) -> None:
        """Open the file and forget what is older than `KEEP_DAYS`. Raises `StorageError`."""
        self.database.open()
        try:
            await self.database.run(self._prune())
        except StorageError:
            await self.database.close()
            raise

    async def close(self) -> None:
        """Write what is queued, then close."""
        await self.database.close()

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> asyncio.Future[tuple[InboxEntry, ...]]:
        """Store messages and the platform cursor that covers them; the entries that were new.

        It happens whether or not somebody waits for the future.
        """
        now = self._clock.now()

        def work(db: sqlite3.Connection) -> tuple[InboxEntry, ...]:
            if cursor is not None:
                db.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?)", (channel, cursor))
            return _insert_inbound(db, messages, now)

        if now - self._pruned_at > timedelta(days=1):
            self.database.post(self._prune(), keep=False)
        return self.database.submit(work)

    async def cursor(self, channel: str) -> str | None:
        """The cursor that was stored last for a channel."""

        def work(db: sqlite3.Connection) -> str | None:
            row = db.execute("SELECT value FROM cursor WHERE channel = ?", (channel,)).fetchone()
            return row[0] if row else None

        return await self.database.run(work)

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        """A turn begins, or is resumed, for these messages. Queued, not awaited: a crash before it
        is on disk only means that the turn never began. `at_once` is for what may have killed a
        process before, so that its attempts are counted however quickly it does so again."""
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
        """A turn that was taken up after a crash has come as far as asking the model: if the
        process dies now, the turn is no suspect."""
        await self.database.run(
            lambda db: db.execute(
                "UPDATE turn SET progress = 1, asked = asked + 1 WHERE id = ?", (turn_id,)
            )
        )

    async def begin_command(self, entry_id: int) -> None:
        """A command is about to do what must not be done twice: its entry counts a run more."""
        await self.database.run(
            lambda db: db.execute("UPDATE inbox SET runs = runs + 1 WHERE id = ?", (entry_id,))
        )

    async def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> None:
        """Append steps numbered from `first`; `joined` inbox rows become part of the turn.

        Where it raises `StorageError` they are stored later, but before the turn's next step.
        """
        await self.database.run(_steps(turn_id, first, steps, joined), keep=True)

    def post_steps(self, turn_id: str, first: int, steps: Sequence[Step]) -> None:
        """The same, queued and not awaited: for steps whose repetition does no harm."""
        self.database.post(_steps(turn_id, first, steps, ()))

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        """Keep a system prompt, once, so that `nanobot turn show` can show it."""
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
        """The commit point. Everything in `completion` becomes durable together."""
        now = self._clock.now()
        return await self.database.run(lambda db: _complete(db, completion, now))

    def filed(self, unfiled_ids: Sequence[int]) -> None:
        """The session file holds these lines on disk: the copy may go."""
        ids = [(unfiled_id,) for unfiled_id in unfiled_ids]
        self.database.post(
            lambda db: db.executemany("DELETE FROM unfiled WHERE id = ?", ids), patient=True
        )

    async def postpone(self, entry_ids: Sequence[int], not_before: float, reason: str) -> None:
        """The model is out: these wait until `not_before` (seconds since the epoch)."""

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
        """Put a message in the outbox outside a completion, whether or not somebody waits."""
        now = self._clock.now().isoformat()
        return self.database.submit(lambda db: insert_outgoing(db, turn_id, (outgoing,), now))

    async def release(self) -> None:
        """A clean end: turns under way resume at the next start and no attempt is counted. If that
        cannot be stored one attempt too many is counted, and the end goes on."""
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
        """What there is to do after a start; counts attempts, so call it once."""
        now = self._clock.now()
        return await self.database.run(lambda db: recovery.leftovers(db, now))

    async def pressed(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        """The value of a button of this chat that a person with these ids may press."""
        return await self.database.run(
            lambda db: buttons.pressed(db, button_id, channel, chat_id, sender_ids)
        )

    async def is_busy(self, session_key: str) -> bool:
        """Whether a message of this conversation waits or is being answered."""
        query = "SELECT 1 FROM inbox WHERE session_key = ? AND state IN ('received', 'working')"
        found = await self.database.run(
            lambda db: db.execute(query, (storable(session_key),)).fetchone()
        )
        return found is not None

    async def knows(self, channel: str, chat_id: str, event_id: str) -> bool:
        """Whether an event was received here, answered or not, in the last `KEEP_DAYS`."""
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
        return lambda db: recovery.prune(db, horizon)


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


def _steps(turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int]) -> Work[None]:
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
