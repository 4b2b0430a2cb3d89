"""The journal in SQLite, `state/journal.db`, and its log of sends, `state/sends.log`. See
`sql_journal` and `sql_outbox` for the invariants.

The journal syncs each transaction, so its marks of sends are some milliseconds late, and later in a
burst. A line in `sends.log` is written without a sync and survives a kill of the process, because
the kernel has it. So a part is in doubt only if its answer had not come when the process was
killed: the next start takes the marks from there. A power loss may lose or tear lines. Then the
journal's own marks count.

Each line is a CRC-32 and a mark as JSON. The last line of a part counts. The first line holds the
random number of the journal, because parts of other journals have the same numbers. A line begins
with its line end, so half a line on a full disk damages no other line."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import zlib
from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from secrets import randbelow
from typing import Any, Literal, TypeVar

from loguru import logger
from msgspec import DecodeError, Struct, json

from nanobot.bus.damage import (
    Log,
    check_rest,
    damage_reports,
    find_damage,
    finish,
    note_damage,
    rebuild,
)
from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import KEEP_DAYS, Leftovers, OutboxPart, Redact
from nanobot.bus.journal_file import SCHEMA, SqliteState, compact, redact_rows
from nanobot.bus.rows import (
    DAMAGED,
    IS_NOTICE,
    WAITING_PARTS,
    damage_notice,
    encode_event,
    spending_key,
)
from nanobot.bus.sql import Row, Statement, Steps, fetch, send, transaction, when_stored
from nanobot.bus.sql_journal import Journal
from nanobot.bus.sql_queries import USED_DAYS
from nanobot.bus.sqlite import Database, Work, copy_to, execute, storage_error
from nanobot.clock import Clock
from nanobot.errors import DatabaseDamaged, StorageError

T = TypeVar("T")

_BODY = "CASE WHEN json_valid(report) THEN report ELSE '{}' END"


State = Literal["pending", "sending", "sent", "kept"]
"""As in the outbox. `kept` means sent, with the text kept for a day."""

_MOST_LINES = 1_000
"""Number of lines after which the file is rewritten with the lines that are still needed."""
_LONGEST_ID = 200
"""Maximum length of a platform's id. A longer one is omitted."""
_LARGEST = 4_000_000
"""Bytes that are read of a file, which never grows so large."""
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW


class Mark(Struct, frozen=True, array_like=True):
    """The state of a part. `doubts` counts the earlier sends that may have arrived."""

    state: State
    part_id: int
    doubts: int = 0
    platform_id: str = ""


class SendLog:
    """The file at `path`. All methods belong to the event loop and never raise. While the disk
    rejects the file, only the journal's marks count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = b""
        self._file, self._lines = -1, 0
        self._is_refused = False
        self.marks: dict[int, Mark] = {}
        """Marks by part that the journal may not have yet."""

    def open(self, identity: str) -> None:
        """Read the marks of the previous process, if the file belongs to this journal."""
        self._identity = identity.encode()
        try:
            with os.fdopen(os.open(self._path, os.O_RDONLY | _SAFELY), "rb") as file:
                # The bodies of intact lines, empty for others.
                parts = file.read(_LARGEST).split(b"\n")[1:] or [b""]
                bodies = [
                    part[9:] if _encode_line(part[9:]) == b"\n" + part else b"" for part in parts
                ]
                first, *lines = bodies
        except FileNotFoundError:
            first, lines = b"", []
        except OSError as error:
            first, lines = b"", []
            self._note_refusal(error)
        for line in lines if first == self._identity else ():
            with suppress(DecodeError):
                mark = json.decode(line, type=Mark)
                self.marks[mark.part_id] = mark
        self.rewrite()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def write(self, mark: Mark) -> None:
        """Add a mark, which survives the end of this process."""
        if len(mark.platform_id) > _LONGEST_ID:
            mark = Mark(mark.state, mark.part_id, mark.doubts)
        self.marks[mark.part_id] = mark
        if self._file < 0 or self._lines >= _MOST_LINES:
            self.rewrite()
            return
        try:
            self._append((mark,))
        except OSError as error:
            self._note_refusal(error)

    def rewrite(self) -> None:
        """Replace the file by one with only the needed marks."""
        self.close()
        new = self._path.with_name(f"{self._path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _SAFELY
        try:
            self._file, self._lines = os.open(new, flags, 0o600), 0
            os.write(self._file, _encode_line(self._identity))
            self._append(self.marks.values())
            new.replace(self._path)
        except OSError as error:
            self.close()
            self._note_refusal(error)

    def _append(self, marks: Iterable[Mark]) -> None:
        lines = [_encode_line(json.encode(mark)) for mark in marks]
        data = b"".join(lines)
        if data and os.write(self._file, data) < len(data):
            os.write(self._file, b"\n")  # raises, with the reason
        self._lines += len(lines)
        self._is_refused = False

    def _note_refusal(self, error: OSError) -> None:
        if not self._is_refused:
            logger.warning("{}: {}. After a crash, a reply may be sent twice", self._path, error)
        self._is_refused = True


def _encode_line(body: bytes) -> bytes:
    return b"\n%08x %b" % (zlib.crc32(body), body)


class SqliteJournal(Journal):
    """The file at `path`."""

    database: Database
    AMONG = "IN (SELECT value FROM json_each(?))"
    SCOPE = "''"
    TURN_NUMBER = "rowid"
    BEGAN_SINCE = "datetime(started_at) >= datetime(?)"

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock)
        self._path = path
        self.database = Database(path, SCHEMA)
        self.state = SqliteState(path.parent)
        self._sends = SendLog(path.with_name("sends.log"))

    async def open(self) -> None:
        self._mend()
        try:
            await self._open()
        except DatabaseDamaged as error:  # in a part of a large file that was not checked
            note_damage(self._path, error.cause)
            self._mend()
            await self._open()

    def _mend(self) -> None:
        """Rebuild a damaged file. Raise `StorageError`."""
        self.state.close()  # it may have been used, and an open database can't be read as a file
        try:
            finish(self._path)
            log = Log(self._path)  # before SQLite rebuilds the index on opening
            if cause := find_damage(self._path, log):
                rebuild(self._path, cause, log, self._clock.now(), self._settle)
        except (sqlite3.Error, OSError) as error:
            raise storage_error(self._path, error) from error

    async def _open(self) -> None:
        self.database.open()
        try:
            await self.database.run(self._prune)
            ((identity,),) = await self._read("PRAGMA application_id")
        except StorageError:
            await self.database.close()
            raise
        if not identity:  # the header's number for applications
            identity = 1 + randbelow(2**31 - 1)
            self._post(f"PRAGMA application_id = {identity}")
        self._sends.open(str(identity))

    def watch(self, on_failure: Callable[[StorageError], None]) -> None:
        """Call `on_failure`, in any thread, if the journal turns out to be damaged or moved."""

        def note(error: StorageError) -> None:
            if isinstance(error, DatabaseDamaged):
                note_damage(self._path, error.cause)
            on_failure(error)

        self.database.on_failure = self.state.on_failure = note

    async def check(self) -> None:
        """Check the parts that the start skipped, and report damage to the watcher."""
        if found := await asyncio.to_thread(check_rest, self._path):
            self.database.on_failure(DatabaseDamaged(self._path, found))

    def damages(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, text and hint of each repaired damage that the owner has not dismissed."""
        return damage_reports(self._path.parent)

    async def freeze(self, copy: Path, work: Callable[[], None]) -> None:
        """Write a copy to the new file `copy` and call `work`, while nothing is stored. Raise
        `OSError` and `StorageError`."""

        def both(db: sqlite3.Connection) -> None:
            copy_to(db, copy)
            work()

        await self.database.run(lambda _: None, after_commit=both)

    async def close(self) -> None:
        await self.database.close()
        self._sends.close()
        self.state.close()

    async def may_act(self) -> None:
        """Return at once."""

    def _work(self, steps: Callable[[], Steps[T]]) -> Work[T]:
        return lambda db: run_steps(db, steps())

    async def _read(self, text: str, *values: object) -> list[Row]:
        rows: list[Row] = await self.database.run(lambda db: execute(db, text, *values).fetchall())
        return rows

    def _report_value(self, name: str) -> str:
        number = f"json_extract({_BODY}, '$.{name}')"
        return number if name == "model" else f"CAST({number} AS INTEGER)"

    def _begin_pruning(self) -> None:
        self.database.post(self._prune)

    def mark_sending(self, item: OutboxPart) -> None:
        self._sends.write(Mark("sending", item.id, item.doubts + 1))
        super().mark_sending(item)

    def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False, can_wait: bool = False
    ) -> Future[tuple[OutboxPart, ...]]:
        self._sends.write(Mark("kept" if keep else "sent", item.id, item.doubts, platform_id))
        marked = super().mark_sent(item, platform_id, keep=keep, can_wait=can_wait)
        when_stored(marked, lambda _: self._sends.marks.pop(item.id, None))
        return marked

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        self._sends.write(Mark("pending", item.id, item.doubts))
        super().retry_later(item, reason)

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        told = await super().give_up(item, reason)
        self._sends.marks.pop(item.id, None)
        return told

    async def _revive(self, part_ids: Sequence[int]) -> tuple[OutboxPart, ...]:
        query = f"SELECT id FROM outbox WHERE id {self.AMONG} AND state = 'dead'"
        for (part_id,) in await self._read(query, list(part_ids)):
            self._sends.write(Mark("pending", part_id))  # earlier sends no longer count
        return await super()._revive(part_ids)

    async def leftovers(self, scopes: Collection[str] | None = None) -> Leftovers:
        left = await self._leftovers_after(tuple(self._sends.marks.values()))
        self._sends.marks.clear()
        self._sends.rewrite()
        return left

    @transaction
    def _leftovers_after(self, marks: Sequence[Mark]) -> Steps[Leftovers]:
        for mark in marks:
            query = f"SELECT channel, chat_id FROM outbox WHERE {WAITING_PARTS} AND id = ?"
            for channel, chat_id in (yield from fetch(query, mark.part_id)):
                if mark.state in ("sent", "kept"):
                    sent, keep = (mark.part_id, channel, chat_id), mark.state == "kept"
                    yield from self._mark_sent(*sent, mark.platform_id, keep=keep)
                else:
                    changed = "UPDATE outbox SET state = ?, in_doubt = ? WHERE id = ?"
                    yield from send(changed, mark.state, mark.doubts, mark.part_id)
        return (yield from self._leftovers(None))

    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        row = (helper_id, self._clock.now().isoformat(), encode_event(if_lost))
        await self._run("INSERT OR REPLACE INTO helper VALUES (?, ?, ?)", *row)

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
        redacted = self.database.run(lambda db: redact_rows(db, redact), after_commit=compact)
        changed: int = await redacted
        await asyncio.to_thread(self.state.copy)
        return changed

    def _settle(self, db: sqlite3.Connection, condition: str) -> int:
        """Set messages that match a condition aside after damage. They may be partly done, although
        the journal does not show it."""
        now = self._clock.now()
        query = f"SELECT id, channel, chat_id, event_id FROM inbox WHERE {condition}"
        rows = db.execute(query).fetchall()
        for row_id, channel, chat_id, event_id in rows:
            reason = "the journal was damaged while it was running"
            set_failed = "UPDATE inbox SET state = 'failed', reason = ? WHERE id = ?"
            db.execute(set_failed, (reason, row_id))
            outgoing = damage_notice(DAMAGED, channel, chat_id, event_id)
            run_steps(db, self._insert_outgoing(f"damaged-{row_id}", (outgoing,), now))
        working = "SELECT turn_id FROM inbox WHERE state = 'working'"
        ended = "UPDATE turn SET state = 'failed' WHERE state = 'running' AND id NOT IN"
        db.execute(f"{ended} ({working})")
        return len(rows)

    def _prune(self, db: sqlite3.Connection) -> None:
        """Delete ended entries older than `KEEP_DAYS`."""
        now = self._clock.now()
        horizon = (now - timedelta(days=KEEP_DAYS)).isoformat()
        for ended in (
            "inbox WHERE state IN ('done', 'stopped') AND received_at < :horizon",
            "outbox WHERE created_at < :horizon"
            f" AND (state = 'sent' OR (state = 'dead' AND {IS_NOTICE}))",
            "turn WHERE state != 'running' AND started_at < :horizon",
            "step WHERE turn_id NOT IN (SELECT id FROM turn WHERE state = 'running')",
            "button WHERE created_at < :horizon",
            "prompt WHERE used_at < :horizon",
        ):
            db.execute(f"DELETE FROM {ended}", {"horizon": horizon})
        db.execute(
            "UPDATE outbox SET payload = NULL WHERE state = 'sent' AND payload IS NOT NULL"
            " AND created_at < ?",
            ((now - timedelta(days=1)).isoformat(),),
        )
        oldest = now.date() - timedelta(days=USED_DAYS)
        db.execute("DELETE FROM used WHERE day < ?", (oldest.isoformat(),))


def run_steps(db: sqlite3.Connection, steps: Steps[T]) -> T:
    """Run the steps of a transaction within the caller's transaction."""
    answer: Any = None
    while True:
        try:
            asked = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = asked
        if isinstance(asked, Statement):
            answer = execute(db, asked.text, *asked.values).fetchall()
