"""Delivers one part: one request to the helper, or two if a sound has a text.

A message's id is derived from the part. So all attempts have the same id, and a phone that already
has the message drops it: a retry after an unknown outcome is harmless. Keys would not be
enough: a new home starts with the same keys, and phones would drop its messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from nanobot.bus.events import Media, MediaKind, OutboundPart, Receipt
from nanobot.channel.documents import file_facts
from nanobot.errors import SendLater, SendRefused, SendUnknown
from nanobot_whatsapp.ingest import RecentMessages
from nanobot_whatsapp.linked.protocol import Me, Method
from nanobot_whatsapp.markup import render, with_choices
from nanobot_whatsapp.people import People, jid_of
from nanobot_whatsapp.transport import plain_mime, playable_as

MAX_FILE_BYTES = 100 * 1024 * 1024
_MAX_PLAYABLE_BYTES = 16 * 1024 * 1024  # a larger picture, video or sound is sent as a document

_VOICE = "audio/ogg; codecs=opus"
"""Without this, phones do not play a voice note, and some do not even show it."""

_TEXT_SECONDS = 60.0
_SLOWEST_UPLOAD = 100_000  # bytes per second


class Link(Protocol):
    """The connection with the helper: a `BridgeLink`, or a double in tests."""

    @property
    def me(self) -> Me | None:
        """The linked account."""

    async def request(
        self, method: Method, params: Mapping[str, object], patience: float = ...
    ) -> Mapping[str, object]:
        """Send a request. Raises a `SendError`."""


class _File(Struct, frozen=True):
    """A file to send. `size` is in bytes."""

    path: Path
    kind: MediaKind
    mime: str
    name: str
    size: int

    def as_params(self) -> Mapping[str, object]:
        """Return the parameters for the helper."""
        mime = _VOICE if self.kind == "voice" else self.mime
        return {"path": str(self.path), "kind": self.kind, "mime": mime, "name": self.name}


class Outbound:
    """Sender of parts. `media_path` returns the path of an outbound file (see `ChannelHost`).
    `prefix` precedes messages in the chat with oneself."""

    def __init__(
        self,
        link: Link,
        people: People,
        recent: RecentMessages,
        media_path: Callable[[Media], Path],
        prefix: str,
    ) -> None:
        self._link, self._people, self._recent = link, people, recent
        self._media_path, self._prefix = media_path, prefix

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part. Raises a `SendError`, but never `SendUnknown`."""
        text = render(with_choices(part.content, part.buttons))
        files = [describe_file(media, self._media_path(media)) for media in part.media]
        if len(files) > 1:
            raise SendRefused("WhatsApp accepts only one file per message")
        if not files and not text.strip():
            raise SendRefused("there is nothing to send")
        text = self._add_prefix(text, part)
        to = jid_of(self._people.address(part.chat_id))
        quote = self._quote(part, to)
        if not files:
            return await self._send(make_message_id(part), to, text, quote)
        if text and files[0].kind in {"audio", "voice"}:  # WhatsApp shows no text under sound
            await self._send(make_message_id(part, "words"), to, text, quote)
            return await self._send(make_message_id(part), to, "", None, files[0])
        return await self._send(make_message_id(part), to, text, quote, files[0])

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """Edit a sent text: replace its choices by the outcome. Phones accept that for 15 minutes.
        Raises a `SendError`."""
        text = self._add_prefix(render(f"{part.content}\n\n{outcome}"), part)
        to = jid_of(self._people.address(part.chat_id))
        await self._send(make_message_id(part, "closed"), to, text, None, edits=receipt.platform_id)

    async def _send(
        self,
        id: str,
        to: str,
        text: str,
        quote: Mapping[str, object] | None,
        file: _File | None = None,
        edits: str = "",
    ) -> Receipt:
        params: dict[str, object] = {"to": to, "id": id, "text": text, "quote": quote}
        params |= {"edits": edits} if edits else {}
        params["file"] = None if file is None else file.as_params()
        size = 0 if file is None else file.size
        try:
            await self._link.request("send", params, _TEXT_SECONDS + size / _SLOWEST_UPLOAD)
        except SendUnknown as error:
            # The core gives up a part that may arrive twice. Here a repetition is harmless, because
            # the phone knows its id, so it is retried like any other failure.
            raise SendLater(str(error)) from error
        return Receipt(id)

    def _add_prefix(self, text: str, part: OutboundPart) -> str:
        """Add the prefix in the chat with oneself."""
        me = self._link.me
        ours = me is not None and self._people.address(part.chat_id) in me.ids
        return f"{self._prefix}{text}" if text and ours else text

    def _quote(self, part: OutboundPart, to: str) -> Mapping[str, object] | None:
        if not part.reply_to:
            return None
        quoted = self._recent.find(part.reply_to, to)
        if quoted is None:
            return None
        return {"id": part.reply_to, "sender": quoted[0], "text": quoted[1], "from_me": False}


def make_message_id(part: OutboundPart, piece: str = "") -> str:
    """Return the id of a part's message, in the form that phones use. It differs for each part with
    other content, another chat, or another message to answer."""
    files = [(media.ref, media.name) for media in part.media]
    made_of = (part.key, piece, part.chat_id, part.content, files, part.event_ids)
    return f"3EB0{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:18].upper()}"


def describe_file(media: Media, path: Path) -> _File:
    name, mime, size = file_facts(media, path, MAX_FILE_BYTES, "WhatsApp")
    mime = plain_mime(mime) or "application/octet-stream"
    kind = playable_as(media.kind, mime) if size <= _MAX_PLAYABLE_BYTES else "document"
    return _File(path, kind, mime, name, size)
