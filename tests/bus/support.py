"""Helpers of the bus's tests: short names for messages, and journals like a process's own."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nanobot.bus.events import InboundMessage, OutboundMessage
from nanobot.bus.journal import Completion, InboxEntry, OutboxPart, Outgoing
from nanobot.bus.sql_journal import Journal
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.clock import Clock
from nanobot.testing.clock import DEFAULT_START

if TYPE_CHECKING:
    from nanobot.team.journal import PostgresJournal

HELLO = InboundMessage("fake", "1", "person", "hello", "m1", DEFAULT_START)


def make_message(event_id: str, text: str = "hello", chat_id: str = "1") -> InboundMessage:
    """Return a person's message."""
    return replace(HELLO, event_id=event_id, content=text, chat_id=chat_id)


def reply(*texts: str, call: str = "reply", chat_id: str = "1", channel: str = "fake") -> Outgoing:
    """Return a reply in parts."""
    return Outgoing(call, tuple(OutboundMessage(channel, chat_id, text) for text in texts), ("m1",))


def end_turn(turn_id: str, *entries: InboxEntry, **more: object) -> Completion:
    """Return the end of a turn for these messages."""
    completion = Completion(turn_id, "fake:1", tuple(entry.id for entry in entries), "done")
    return replace(completion, **more)


async def give_up(journal: Journal, item: OutboxPart) -> None:
    """Give up a part and mark its notice as sent."""
    for notice in await journal.give_up(item, "blocked"):
        await journal.mark_sent(notice, "1")


@contextlib.asynccontextmanager
async def open_journal(path: Path, clock: Clock) -> AsyncIterator[SqliteJournal]:
    """Open a journal as a process does, and close it at the end."""
    journal = SqliteJournal(path, clock)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


@contextlib.asynccontextmanager
async def open_team_journal(dsn: str, clock: Clock) -> AsyncIterator[PostgresJournal]:
    """Open a journal in a team's database, in a process that is not a worker and is never
    fenced."""
    from nanobot.team.journal import PostgresJournal
    from nanobot.team.postgres import Database

    def scope_of(message: InboundMessage) -> str:
        return message.origin.scope or f"person:{message.sender_id}"

    journal = PostgresJournal(Database(dsn, lambda: None), clock, scope_of)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """Query the file without the journal."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def change(path: Path, statement: str, *values: object) -> None:
    """Change the file like damage or another process."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


@contextlib.contextmanager
def no_file_may_grow_beyond(size: int) -> Iterator[None]:
    """Make the system reject writes beyond this size, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
