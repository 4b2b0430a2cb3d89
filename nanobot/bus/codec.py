"""Events as JSON text, for the journal. Unknown fields are ignored, so a downgrade can read on.

Decoding raises `ValueError`, and nothing else, for a text that is not what `encode_…` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nanobot.bus.events import BegunBy, Button, InboundMessage, Media, OutboundMessage, Quote

_ENCODER = json.JSONEncoder(separators=(",", ":"))


def encode_inbound(message: InboundMessage) -> str:
    """One line of ASCII JSON; empty fields are left out."""
    quote = message.reply_to
    return _dump(
        {
            "channel": message.channel,
            "chat_id": message.chat_id,
            "sender_id": message.sender_id,
            "content": message.content,
            "event_id": message.event_id,
            "timestamp": message.timestamp.isoformat(),
            "message_id": message.message_id,
            "media": [_encode_media(item) for item in message.media],
            "thread_id": message.thread_id,
            "reply_to": quote and [quote.message_id, quote.sender, quote.text],
            "forwarded_from": message.forwarded_from,
            "group_id": message.group_id,
            "session_override": message.session_override,
            "answers": message.answers,
            "is_group": message.is_group,
            "origin": message.origin,
            "sender_name": message.sender_name,
            "edits": message.edits,
            "deletes": message.deletes,
            "unanswered": message.unanswered,
            "notes": message.notes,
            "begun_by": "" if message.begun_by == "person" else message.begun_by,
            "scope": message.scope,
            "job": message.job,
        }
    )


def decode_inbound(text: str) -> InboundMessage:
    """The reverse of `encode_inbound`."""
    data = _load(text)
    try:
        return InboundMessage(
            channel=_text(data, "channel"),
            chat_id=_text(data, "chat_id"),
            sender_id=_text(data, "sender_id"),
            content=_text(data, "content"),
            event_id=_text(data, "event_id"),
            timestamp=datetime.fromisoformat(_text(data, "timestamp")),
            message_id=_text(data, "message_id"),
            media=tuple(_decode_media(item) for item in data.get("media", ())),
            thread_id=_text(data, "thread_id"),
            reply_to=Quote(*data["reply_to"]) if data.get("reply_to") else None,
            forwarded_from=_text(data, "forwarded_from"),
            group_id=_text(data, "group_id"),
            session_override=_text(data, "session_override"),
            answers=_text(data, "answers"),
            is_group=data.get("is_group") is True,
            origin=_text(data, "origin"),
            sender_name=_text(data, "sender_name"),
            edits=_text(data, "edits"),
            deletes=_text(data, "deletes"),
            unanswered=data.get("unanswered") is True,
            notes=_texts(data, "notes"),
            begun_by=_begun_by(data),
            scope=_text(data, "scope"),
            job=_text(data, "job"),
        )
    except TypeError as error:
        raise ValueError(f"not a message: {error}") from error


def encode_outbound(message: OutboundMessage, event_ids: tuple[str, ...], last: bool) -> str:
    """One part as JSON, with the events it answers and whether it is the last of its message."""
    return _dump(
        {
            "content": message.content,
            "media": [_encode_media(item) for item in message.media],
            "reply_to": message.reply_to,
            "thread_id": message.thread_id,
            "buttons": [[b.label, b.value, b.only, b.id] for b in message.buttons],
            "event_ids": event_ids,
            "last": last,
        }
    )


def decode_outbound(
    channel: str, chat_id: str, text: str
) -> tuple[OutboundMessage, tuple[str, ...], bool]:
    """The reverse of `encode_outbound`."""
    data = _load(text)
    try:
        message = OutboundMessage(
            channel=channel,
            chat_id=chat_id,
            content=_text(data, "content"),
            media=tuple(_decode_media(item) for item in data.get("media", ())),
            reply_to=_text(data, "reply_to"),
            thread_id=_text(data, "thread_id"),
            buttons=tuple(Button(*item) for item in data.get("buttons", ())),
        )
        return message, tuple(data.get("event_ids", ())), bool(data.get("last"))
    except TypeError as error:
        raise ValueError(f"not a message: {error}") from error


def excerpt(text: str | None, length: int) -> str:
    """The beginning of a message's content in one line, for people; never fails."""
    try:
        data = _load(text or "{}")
        said = _text(data, "content") or "; ".join(_texts(data, "notes"))
        content = " ".join(said[: 4 * length].split())
    except ValueError:
        return "(unreadable)"
    return content if len(content) <= length else f"{content[:length]}…"


def _dump(data: Mapping[str, Any]) -> str:
    return _ENCODER.encode({key: value for key, value in data.items() if value})


def _load(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the one error that decoding raises
    return data


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a text")  # noqa: TRY004 - as above
    return value


def _begun_by(data: Mapping[str, Any]) -> BegunBy:
    match data.get("begun_by") or "person":
        case "person" | "job" | "heartbeat" | "report" as known:
            return known
    raise ValueError("begun_by is not known")


def _texts(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = data.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key} is not a list of texts")
    return tuple(values)


def _encode_media(media: Media) -> list[Any]:
    return [media.ref, media.kind, media.mime, media.name, media.size]


def _decode_media(data: list[Any]) -> Media:
    return Media(*data)
