"""Raw updates as the Bot API sends them, and what the adapter makes of them."""

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
"""When all of it was sent: 2025-11-13 02:13:20 UTC."""

Raw = dict[str, object]


def message(chat: object = PRIVATE, **fields: object) -> Raw:
    """A message of Ann's; a field that is None is left out."""
    usual = {"message_id": 5, "date": SENT, "chat": chat, "from": ANN}
    return {key: value for key, value in (usual | fields).items() if value is not None}


def entity(kind: str, offset: int, length: int, **more: object) -> Raw:
    """One entity; offset and length in UTF-16 code units."""
    return {"type": kind, "offset": offset, "length": length, **more}


def read(
    raw: Mapping[str, object],
    kind: str = "message",
    canonical: Callable[[str], str] = str,
    zone: tzinfo = UTC,
) -> ParsedUpdate | None:
    """What an update that holds `raw` says, by way of JSON as the poll loop gets it."""
    update = json.loads(json.dumps({"update_id": 1, kind: raw}))
    return parse_update(telegram.Update.de_json(update), ME, canonical, zone)


def read_message(raw: Mapping[str, object], kind: str = "message") -> InboundMessage:
    """The message in an update that must hold one."""
    understood = read(raw, kind)
    assert understood is not None
    assert understood.message is not None
    return understood.message
