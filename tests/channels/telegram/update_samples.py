"""Raw updates in the form of the Bot API, and reading them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo

import telegram

from nanobot.bus.events import InboundMessage
from nanobot_telegram.content import Me
from nanobot_telegram.updates import ParsedUpdate, parse_update

ME = Me(900, "nano_test_bot", frozenset({"help", "new", "status", "dream-log"}))
BOT = {"id": 900, "is_bot": True, "first_name": "Nano", "username": "Nano_Test_Bot"}
ANN = {"id": 7, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
BOB = {"id": 8, "is_bot": False, "first_name": "Bob"}
PRIVATE = {"id": 7, "type": "private", "first_name": "Ann", "last_name": "Lee"}
GROUP = {"id": -55, "type": "group", "title": "Garden"}
FORUM = {"id": -1001, "type": "supergroup", "title": "Garden", "is_forum": True}
SENT = 1_763_000_000
"""Date of all messages: 2025-11-13 02:13:20 UTC."""

Raw = dict[str, object]


def message(chat: object = PRIVATE, **fields: object) -> Raw:
    """Return a message of Ann. A field that is None is left out."""
    usual = {"message_id": 5, "date": SENT, "chat": chat, "from": ANN}
    return {key: value for key, value in (usual | fields).items() if value is not None}


def entity(kind: str, offset: int, length: int, **more: object) -> Raw:
    """Return one entity. Offset and length are in UTF-16 code units."""
    return {"type": kind, "offset": offset, "length": length, **more}


def read(
    raw: Mapping[str, object],
    kind: str = "message",
    canonical: Callable[[str], str] = str,
    zone: tzinfo = UTC,
) -> ParsedUpdate | None:
    """Parse an update with `raw`, through JSON as in the poll loop."""
    update = json.loads(json.dumps({"update_id": 1, kind: raw}))
    return parse_update(telegram.Update.de_json(update), ME, canonical, zone)


def read_message(raw: Mapping[str, object], kind: str = "message") -> InboundMessage:
    """Parse an update that must hold a message."""
    understood = read(raw, kind)
    assert understood is not None
    assert understood.message is not None
    return understood.message
