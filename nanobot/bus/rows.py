"""The journal's rows in every engine: tables, conditions of open rows, and their conversion to
values and texts. No statement runs here.

Events are stored as JSON text. Unknown fields are ignored, so an older version can read them.
Decoding text that `encode_event` did not write raises only `ValueError`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from secrets import token_hex
from typing import Any, TypeVar

from loguru import logger
from msgspec import convert, to_builtins
from msgspec.structs import replace

from nanobot.bus.events import (
    Address,
    Button,
    InboundMessage,
    OutboundMessage,
    OutboundPart,
)
from nanobot.bus.journal import (
    NOTICE,
    QUESTION,
    InboxEntry,
    OutboxPart,
    Outgoing,
    QueueRow,
    Step,
)
from nanobot.errors import NanobotError
from nanobot.text import shorten

TABLES = """
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
    CREATE TABLE cursor (channel TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE turn (
        id TEXT PRIMARY KEY,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped')),
        progress INTEGER NOT NULL DEFAULT 0,
        started_at TEXT NOT NULL,
        report TEXT NOT NULL DEFAULT '',
        asked INTEGER NOT NULL DEFAULT 0
    );
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
        in_doubt INTEGER NOT NULL DEFAULT 0,
        UNIQUE (turn_id, call, part)
    );
    CREATE TABLE button (
        id TEXT PRIMARY KEY,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        sender_id TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE helper (
        id TEXT PRIMARY KEY,
        started_at TEXT NOT NULL,
        if_lost TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE spending (
        day TEXT PRIMARY KEY,
        tokens INTEGER NOT NULL,
        warned INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE used (
        day TEXT NOT NULL,
        session_key TEXT NOT NULL,
        turns INTEGER NOT NULL,
        prompt INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        completion INTEGER NOT NULL,
        cost INTEGER,
        PRIMARY KEY (day, session_key)
    ) WITHOUT ROWID;
    CREATE TABLE document (
        name TEXT PRIMARY KEY,
        content TEXT NOT NULL,
        revision INTEGER NOT NULL
    ) WITHOUT ROWID;
"""
"""The tables of the journal in SQLite's dialect. Each engine adds its indexes."""


def _begins(prefix: str) -> str:
    """Return a condition for turn ids that begin with `prefix`, for any engine's index."""
    return f"(turn_id >= '{prefix}' AND turn_id < '{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}')"


IS_NOTICE = _begins(NOTICE)
"""The part is a notice that another part could not be delivered."""
IS_QUESTION = _begins(QUESTION)
"""The part is a question to the owner."""

RESEND = "/resend"
"""The command under such a notice, with the name of a part."""

_MESSAGES = "state IN ('received', 'working', 'failed')"
WAITING_MESSAGES = f"({_MESSAGES} AND state IN ('received', 'working'))"
FAILED_MESSAGES = f"({_MESSAGES} AND state = 'failed')"
OPEN_MESSAGES = f"({_MESSAGES} AND (state IN ('received', 'working') OR state = 'failed'))"
_PARTS = "state IN ('pending', 'sending', 'dead')"
WAITING_PARTS = f"({_PARTS} AND state IN ('pending', 'sending'))"
DEAD_PARTS = f"({_PARTS} AND state = 'dead')"
OPEN_PARTS = f"({_PARTS} AND (state IN ('pending', 'sending') OR state = 'dead'))"
"""Each condition repeats that of SQLite's index of open rows, then PostgreSQL's, word for word.
Otherwise the engine would read all rows of the last `KEEP_DAYS` instead of the index."""

UNDELIVERED = f"{OPEN_PARTS} AND NOT (state = 'dead' AND {IS_NOTICE})"
"""The row of the outbox is in progress or waits for a decision."""

_WAITS = "(state = 'received' OR not_before != 0)"
COUNT_QUEUE = (
    f"SELECT count(*) FILTER (WHERE {_WAITS}), count(*) FILTER (WHERE NOT {_WAITS}),"
    f" (SELECT count(*) FROM inbox WHERE {FAILED_MESSAGES}),"
    f" (SELECT count(*) FROM outbox WHERE {WAITING_PARTS}),"
    f" (SELECT count(*) FROM outbox WHERE {DEAD_PARTS} AND NOT {IS_NOTICE}),"
    f" count(*) FILTER (WHERE not_before > 0) FROM inbox WHERE {WAITING_MESSAGES}"
)
"""The numbers of `QueueCounts`."""

MOST_ASKED = 10
"""How many times in a row a resumed turn may ask the model and then end uncleanly."""

EXCERPT = 80
"""Characters of a message that are shown in the queue."""

UNREADABLE = (
    "One of your messages was damaged on disk before I could answer it. Please send it again."
)

DAMAGED = (
    "My journal was damaged while I was working on one of your messages, so it may be only partly "
    "done. Check what was done, then send /retry to run it again."
)


_ENCODER = json.JSONEncoder(separators=(",", ":"))
_BESIDE = ("key", "channel", "chat_id")
"""Fields of a part that have columns in the outbox."""
_EMPTY = {"content": "", "sender_id": "", "last": False}
"""Empty values of fields whose default differs or is missing."""

T = TypeVar("T", InboundMessage, OutboundPart)


def encode_event(event: InboundMessage | OutboundPart) -> str:
    """Return one line of ASCII JSON, without empty fields and without a part's columns. Of a
    temporary chat, only the facts are stored."""
    if event.is_temporary:
        event = replace(event, content="")
        if isinstance(event, InboundMessage):
            event = replace(event, origin=replace(event.origin, context=()))
    beside = _BESIDE if isinstance(event, OutboundPart) else ()
    fields = to_builtins(event).items()
    return _ENCODER.encode({name: one for name, one in fields if one and name not in beside})


def decode_event(kind: type[T], text: str, **beside: str) -> T:
    """Reverse `encode_event`, given the values of the columns."""
    return convert(_EMPTY | convert(json.loads(text), dict[str, Any]) | beside, kind)


def excerpt(text: str | None, length: int) -> str:
    """Return the beginning of a message's content in one line. Never fails."""
    try:
        data = json.loads(text or "{}")
        said = data.get("content") or "; ".join(data.get("notes", ()))
        return shorten(said[: 4 * length], length + 1)
    except (ValueError, TypeError, AttributeError):
        return "(unreadable)"


TEXTS = (
    ("inbox", "payload"),
    ("inbox", "reason"),
    ("turn", "report"),
    ("step", "payload"),
    ("prompt", "text"),
    ("unfiled", "lines"),
    ("outbox", "payload"),
    ("outbox", "reason"),
    ("button", "value"),
    ("helper", "if_lost"),
    ("document", "content"),
)
"""Columns with texts of people and models. All others hold ids, states and times."""
KEYS = {"step": "turn_id, number", "document": "name"}
"""The primary keys of these tables that are not `id`."""


def parse_row(row: str) -> tuple[str, int]:
    """Return the table and number of `in-12` or `out-7`. Raise `NanobotError`."""
    found = re.fullmatch(r"(in|out)-([0-9]{1,18})", row)
    if found is None:
        raise not_retryable(row)
    return "inbox" if found[1] == "in" else "outbox", int(found[2])


def not_retryable(row: str) -> NanobotError:
    return NanobotError(
        f"{row!r} is not a failed message or an undelivered reply",
        hint="List them with `nanobot queue list`. Ids look like in-12 and out-7.",
    )


def not_of_chat(row: str) -> NanobotError:
    return NanobotError(
        f"this chat has no message {row!r}", hint="Use the number in the notice, such as out-7."
    )


def unreadable_row(row: str) -> NanobotError:
    return NanobotError(
        f"{row} cannot be read, so it cannot be retried",
        hint=f"Remove it with `nanobot queue drop {row}`, and ask the person to send it again.",
    )


def unknown_turn(turn_id: str) -> NanobotError:
    return NanobotError(
        f"there is no turn {turn_id!r}",
        hint=(
            "To list a conversation's turns, run `nanobot sessions show KEY`. Turns are kept "
            "for 30 days."
        ),
    )


def make_queue_rows(rows: Iterable[Sequence[Any]]) -> list[QueueRow]:
    """Make rows to show from a payload and the first columns of a `QueueRow`."""
    return [QueueRow(*(*row, excerpt(payload, EXCERPT))) for payload, *row in rows]


def spending_key(day: date, use: str) -> str:
    """Return the key of a day's spending for a use, or for all calls if `use` is empty."""
    return f"{day.isoformat()} {use}".rstrip()


def decode_report(report: str | None) -> dict[str, object]:
    """Return a turn's report, or an empty one if it is damaged, so that the rest can be shown."""
    try:
        decoded = json.loads(report or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def number_in(report: Mapping[str, object], name: str) -> int | None:
    """Return a number in a turn's report as an integer."""
    value = report.get(name)
    return int(value) if isinstance(value, int | float) else None


def decode_helper(helper_id: str, if_lost: str) -> InboundMessage | None:
    """Return the report of a lost subagent, or None if it cannot be read."""
    try:
        return decode_event(InboundMessage, if_lost)
    except ValueError as error:
        logger.warning(
            "cannot read the notice about the interrupted subagent {}: {}", helper_id, error
        )
        return None


ENTRY = "payload, state, turn_id, received_at, id, attempts, runs, not_before, reason"
"""The columns that `decode_entry` reads, before the scope."""


def decode_entry(row: Sequence[Any], *, recovered: bool) -> InboxEntry:
    """Return the message in a row of `ENTRY` and a scope, with its turn if it was in progress.
    Raise `ValueError` if it cannot be read."""
    payload, state, turn_id, received_at, row_id, attempts, runs, not_before, reason, scope = row
    under_way = state == "working"
    return InboxEntry(
        *(row_id, decode_event(InboundMessage, str(payload or "")), attempts, runs),
        turn_id=turn_id if under_way else "",
        not_before=not_before,
        reason=reason,
        recovered=recovered,
        previous_turn="" if under_way else turn_id,
        received_at=datetime.fromisoformat(str(received_at)).timestamp(),
        scope=scope,
    )


def gather_turns(
    entries: Sequence[InboxEntry], steps: Mapping[str, Sequence[Step]]
) -> tuple[InboxEntry, ...]:
    """Merge the messages of each turn, with its steps, into its first message. Keep the order."""
    turns: dict[str, list[InboxEntry]] = {}
    for entry in entries:
        if entry.turn_id:
            turns.setdefault(entry.turn_id, []).append(entry)
    waiting = [entry for entry in entries if not entry.turn_id]
    for turn_id, (first, *joined) in turns.items():
        waiting.append(replace(first, joined=tuple(joined), steps=tuple(steps[turn_id])))
    return tuple(sorted(waiting, key=lambda entry: entry.id))


def damage_notice(text: str, channel: str, chat_id: str, event_id: str) -> Outgoing:
    """Return the notice to the sender of a damaged message."""
    return Outgoing("reply", (OutboundMessage(channel, chat_id, text),), (event_id,))


PART = "id, turn_id, call, part, channel, chat_id, attempts, next_try_at, in_doubt, payload"
"""The columns that `decode_part` reads, before the scope."""


def decode_part(row: Sequence[Any]) -> OutboxPart:
    """Return the part in a row of `PART` and a scope. Raise `ValueError` if it cannot be read."""
    row_id, turn_id, call, number, channel, chat_id, attempts, next_try_at, doubts, *rest = row
    payload, scope = rest
    key = f"{turn_id}/{call}/{number}"
    place = {"key": key, "channel": channel, "chat_id": chat_id}
    part = decode_event(OutboundPart, str(payload or ""), **place)
    return OutboxPart(row_id, part, attempts, next_try_at, doubts, scope)


def new_parts(turn_id: str, outgoing: Outgoing) -> Iterator[OutboundPart]:
    """Yield a message's parts as they are stored, in order, with a random id on each button."""
    for number, message in enumerate(outgoing.parts):
        key, last = f"{turn_id}/{outgoing.call}/{number}", number == len(outgoing.parts) - 1
        buttons = tuple(replace(button, id=token_hex(12)) for button in message.buttons)
        shown = replace(message, buttons=buttons) if buttons else message
        yield OutboundPart.of(key, shown, outgoing.event_ids, last)


def failure_notice(
    item: OutboxPart, reason: str, asked_in: tuple[str, str, str] | None
) -> OutboundMessage:
    """Return the notice about an undelivered part. It goes to the chat of the turn's first message
    (channel, chat and conversation), or else to the part's chat."""
    part = item.part
    channel, chat_id, key = asked_in or (part.channel, part.chat_id, "")
    asked = Address.of(key)
    went = "may not have arrived" if item.doubts else "could not be delivered"
    place, thread = f"{'in' if item.doubts else 'to'} {part.channel}:{part.chat_id}", ""
    if (channel, chat_id) == (part.channel, part.chat_id):
        place, thread = "here", part.thread_id
    elif (channel, chat_id) == (asked.channel, asked.chat_id):
        thread = asked.thread_id
    what = f"A message that begins “{shorten(part.content, 60)}”"
    if part.words:
        what = f"A voice message that begins “{shorten(part.words, 60)}”"
    elif part.media:
        what = f"The file {', '.join(media.name or media.ref for media in part.media)}"
    text = (
        f"⚠️ {what} {went} {place}: {reason.rstrip('. ')}. To resend it, send {RESEND} "
        f"out-{item.id}."
    )
    again = Button("Send again", f"{RESEND} out-{item.id}")
    return OutboundMessage(channel, chat_id, text, thread_id=thread, buttons=(again,))
