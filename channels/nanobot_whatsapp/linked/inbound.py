"""Events from the helper's spool on their way into the core's inbox, with read receipts, quotes and
files.

The helper already parsed WhatsApp's format. `read` (pure) identifies the people, and whether a
message was meant for the agent. `Ingest` sanitizes names and notes.

An ingested event may be confirmed to the helper: it is in the inbox, irrelevant, or in quarantine.
While the disk refuses, nothing is confirmed and the spool keeps it.

The helper downloads and decrypts files, and this module reads and removes them. A path from the
helper is not trusted to stay in its folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from loguru import logger
from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from nanobot.bus.events import Media, MediaKind, Quote
from nanobot.channel import KEEP, NO_LONGER, ChannelHost, asks_to_keep
from nanobot.channel.documents import Quarantine
from nanobot.channel.health import HealthReporter
from nanobot.clock import Backoff, Clock
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown, StorageError
from nanobot.text import one_line
from nanobot_whatsapp.ingest import OURS, UNREADABLE, IncomingMessage, Ingest, RecentMessages
from nanobot_whatsapp.linked.link import BridgeLink
from nanobot_whatsapp.linked.protocol import Event, Me
from nanobot_whatsapp.people import Person, id_of, is_group, is_id, is_number

_ID_CHARACTERS = 256
_MAX_NOTES = 20
_TAKEN_AWAY = "none"
_QUOTED_CHARACTERS = 16 * 1024
_EXCERPT = 80
_REF_CHARACTERS = 16 * 1024

_MAX_PAUSE = 30.0  # seconds between attempts to store something
_MAX_UNREAD = 256

_DOWNLOADS = "downloads"
_DOWNLOAD_PATH = re.compile(r"downloads/([A-Za-z0-9_-][A-Za-z0-9._-]{0,200})", re.ASCII)
_DOWNLOAD_ATTEMPTS = 4
_DOWNLOAD_PAUSE = 5.0
_DOWNLOAD_SECONDS = 300.0

_MENTION = re.compile(r"\s*@\+?([0-9]{5,20})(?![0-9])[,:]?\s*", re.ASCII)


class Unreadable(Exception):
    """An event that violates the helper's format. The text reveals nothing of its content."""


class ReceivedMessage(Struct, frozen=True):
    """A message, with the JIDs of its chat and its sender."""

    message: IncomingMessage
    chat: str
    sender: str


class _Quote(Struct, frozen=True):
    id: str
    sender: str = ""
    text: str = ""
    ours: bool = False


class _Media(Struct, frozen=True):
    kind: Literal["image", "audio", "voice", "video", "document", "sticker"]
    ref: dict[str, str | int | float]
    mime: str = ""
    name: str = ""
    size: Annotated[int, Meta(ge=0)] = 0


class _Message(Struct, frozen=True):
    """An event of the kind `message`, with the fields of bridge/README.md."""

    id: Annotated[str, Meta(min_length=1, max_length=_ID_CHARACTERS)]
    chat: Annotated[str, Meta(min_length=1, max_length=256)]
    sender: Annotated[str, Meta(min_length=1, max_length=256)]
    at: float = 0.0
    alt: str = ""
    name: str = ""
    from_me: bool = False
    text: str = ""
    mentions_me: bool = False
    quote: _Quote | None = None
    forwarded: bool = False
    title: str = ""
    media: _Media | None = None
    notes: tuple[str, ...] = ()
    edits: str = ""
    deletes: str = ""
    reaction: str = ""
    unanswered: bool = False
    unknown: str = ""


def read(body: Mapping[str, object], me: Me | None, now: datetime) -> ReceivedMessage | None:
    """Parse an event, or return None for an unknown kind. `me` is our account, if known. `now`
    provides the time zone. Raises `Unreadable`."""
    kind = body.get("kind")
    if not isinstance(kind, str):
        raise Unreadable("an event without a kind")
    if kind != "message":
        return None
    try:
        message = convert(body, _Message)
    except ValidationError:  # its text may contain the sender's words
        raise Unreadable("a message with an unexpected value") from None
    if not is_id(message.id):
        raise Unreadable("a message without an id")
    is_theirs = message.quote is not None and not message.quote.ours
    if message.reaction and is_theirs and not find_wish(message):
        return None  # a reaction to another person's message
    heard = parse_incoming(message, me or Me(), now)
    changes = heard.edits or heard.deletes
    if not (heard.text.strip() or heard.media or changes or any(map(one_line, heard.notes))):
        raise Unreadable("a message without content")
    return ReceivedMessage(heard, message.chat, message.sender)


def unreadable(body: Mapping[str, object], me: Me | None, now: datetime) -> ReceivedMessage | None:
    """Return a note in place of an unreadable private message, so that its sender gets an answer.
    None if the sender is unclear. A missing id is replaced by a hash of the content."""
    known = {key: body[key] for key in ("chat", "sender", "alt", "from_me") if key in body}
    id = body.get("id")
    if not isinstance(id, str) or not plain_id(id):
        id = f"unreadable-{sha256(json.dumps(body).encode()).hexdigest()[:32]}"
    try:
        message = convert({**known, "id": id, "at": 0}, _Message)
    except ValidationError:
        return None
    if body.get("kind") != "message" or is_group(message.chat):
        return None
    heard = replace(parse_incoming(message, me or Me(), now), notes=(UNREADABLE,))
    return ReceivedMessage(heard, message.chat, message.sender)


def parse_incoming(message: _Message, me: Me, now: datetime) -> IncomingMessage:
    person = find_sender(message, me)
    group = message.chat if is_group(message.chat) else ""
    is_called = message.mentions_me or (message.quote is not None and message.quote.ours)
    media = parse_media(message.media)
    try:  # 0 if WhatsApp has no time for it
        at = datetime.fromtimestamp(message.at, now.tzinfo) if message.at > 0 else now
    except (ValueError, OverflowError, OSError):
        at = now
    return IncomingMessage(
        id=message.id,
        person=person,
        at=at,
        group=group,
        title=message.title if group else "",
        own=message.from_me and not group,
        addressed=not group or is_called,
        text=extract_text(message, me),
        media=media,
        quote=parse_quote(message, person),
        forwarded=message.forwarded,
        notes=describe_rest(message, media),
        edits=plain_id(message.edits),
        deletes=plain_id(message.deletes),
        unanswered=message.unanswered or bool(message.reaction),
    )


def find_sender(message: _Message, me: Me) -> Person:
    """Return the sender. In private the chat is one of their ids. Messages to ourselves have our
    ids, which belong to no other person."""
    jids = [message.sender, message.alt]
    if not is_group(message.chat):
        jids.append(message.chat)
    if message.from_me:
        jids += [me.number, me.lid]
    ids = dict.fromkeys(id_of(jid) for jid in jids if jid)
    if not message.from_me:
        is_us = id_of(message.sender) in me.ids
        ids = dict.fromkeys(id for id in ids if (id in me.ids) == is_us)
    name = message.name or (me.name if message.from_me else "")
    return Person(tuple(sorted(ids, key=lambda id: not is_number(id))), name)


def find_wish(message: _Message) -> str:
    """Return the command for a reaction, if any. WhatsApp does not report which reaction was
    removed."""
    if message.reaction == _TAKEN_AWAY:
        return NO_LONGER
    return KEEP if message.reaction and asks_to_keep([message.reaction]) else ""


def extract_text(message: _Message, me: Me) -> str:
    if wish := find_wish(message):
        return wish
    return strip_mention(message.text, me) if message.mentions_me else message.text


def strip_mention(text: str, me: Me) -> str:
    """Return the text after a leading mention of us. A bare mention stays, because it is a message
    too."""
    mention = _MENTION.match(text)
    ours = {jid.partition("@")[0].partition(":")[0] for jid in (me.number, me.lid)}
    if mention is None or mention[1] not in ours:
        return text
    return text[mention.end() :] or text


def parse_quote(message: _Message, person: Person) -> Quote | None:
    quote = message.quote
    if quote is None or (message.reaction and not find_wish(message)):
        return None
    sender = id_of(quote.sender)
    name = person.name if sender in person.ids and person.name else sender
    if quote.ours:
        name = OURS
    elif name.casefold() == OURS:  # this name is reserved for the agent
        name = f"someone called {name}"
    return Quote(plain_id(quote.id), name, quote.text[:_QUOTED_CHARACTERS] or "(a message)")


def plain_id(id: str) -> str:
    """Return the id of another message, or empty if it is invalid. Senders choose ids."""
    return id if len(id) <= _ID_CHARACTERS and is_id(id) else ""


def parse_media(item: _Media | None) -> Media | None:
    if item is None:
        return None
    ref = json.dumps(item.ref, separators=(",", ":"))
    if len(ref) > _REF_CHARACTERS:
        return None
    kind: MediaKind = "image" if item.kind == "sticker" else item.kind
    mime = item.mime.partition(";")[0].strip().lower()
    return Media(ref, kind, mime, item.name, item.size)


def describe_rest(message: _Message, media: Media | None) -> tuple[str, ...]:
    notes = list(message.notes[:_MAX_NOTES])
    if message.reaction and not find_wish(message):
        to = f" to “{message.quote.text[:_EXCERPT]}”" if message.quote else ""
        notes.append(f"reaction{to}: {message.reaction}")
    if message.media is not None and message.media.kind == "sticker":
        notes.append("sticker")
    if message.media is not None and media is None:
        notes.append(f"{message.media.kind}: could not be fetched")
    if message.unknown:
        notes.append(f"a message of a kind that nanobot cannot read: {message.unknown}")
    return tuple(notes)


class Inbox:
    """Ingestion of events. `receipts`: senders see that their messages were read."""

    def __init__(
        self,
        host: ChannelHost,
        ingest: Ingest,
        health: HealthReporter,
        recent: RecentMessages,
        *,
        receipts: bool,
    ) -> None:
        self._clock, self._ingest, self._health = host.clock, ingest, health
        self._recent, self._receipts = recent, receipts
        self._quarantine = Quarantine("whatsapp", host)
        self._unread: asyncio.Queue[ReceivedMessage] = asyncio.Queue(_MAX_UNREAD)

    async def ingest(self, events: Sequence[Event], me: Me | None) -> None:
        """Store events. Returns when they may be confirmed, and retries until the disk accepts
        them."""
        received = [one for event in events if (one := self._read(event, me)) is not None]
        backoff = Backoff(self._clock, _MAX_PAUSE)
        while True:
            try:
                admitted = set(await self._ingest.store([one.message for one in received]))
                break
            except StorageError as error:
                self._health.report("disk", f"new messages can't be stored: {error}")
                await backoff.wait()
        self._health.resolve("disk")
        for one in received:
            if one.message in admitted:
                message = one.message
                self._recent.remember(message.id, one.sender, message.text, one.chat)
                if self._receipts and not message.own and not message.edits:
                    if self._unread.full():  # the oldest get no receipt
                        self._unread.get_nowait()
                    self._unread.put_nowait(one)

    async def send_receipts(self, link: BridgeLink) -> None:
        """Mark admitted messages as read, one after the other. Best effort."""
        while True:
            one = await self._unread.get()
            params = {"chat": one.chat, "id": one.message.id, "sender": one.sender}
            try:
                await link.request("read", params)
            except SendError as error:
                logger.debug("whatsapp: a message was not marked as read: {}", error)

    def _read(self, event: Event, me: Me | None) -> ReceivedMessage | None:
        """Parse an event. An unreadable one goes into quarantine."""
        now = self._clock.now()
        body = event.event if isinstance(event.event, dict) else {}
        try:
            return read(body, me, now)
        except Exception as error:  # noqa: BLE001 - the boundary: one event must not stop the others
            reason = str(error) if isinstance(error, Unreadable) else type(error).__name__
            self._quarantine.keep(event.event, reason)
            return unreadable(body, me, now)


class Downloads:
    """Downloads of files through the helper of `folder`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder / _DOWNLOADS, clock

    def sweep(self, seconds: float | None = None) -> None:
        """Remove files of this age. Without `seconds`, remove all, if no helper runs."""
        now = self._clock.now().timestamp()
        with suppress(OSError):
            for file in self._folder.iterdir():
                with suppress(FileNotFoundError):  # another fetch removed it
                    if seconds is None or now - file.lstat().st_mtime > seconds:
                        file.unlink()

    async def fetch(
        self, connected: Callable[[], Awaitable[BridgeLink]], media: Media, limit: int
    ) -> bytes:
        """Return a file of at most `limit` bytes. `connected` returns the running helper once
        WhatsApp is connected.

        Raises `SendRefused` if it is larger or unavailable, and another `SendError` if WhatsApp
        cannot be reached."""
        if media.size > limit:
            raise SendRefused(f"the file is {media.size:,} bytes, but the limit is {limit:,}")
        try:
            ref = json.loads(media.ref)
        except ValueError:
            ref = None
        if not isinstance(ref, dict):
            raise SendRefused("the file is not from this linked device")
        # No request still waits for files this old.
        await asyncio.to_thread(self.sweep, 2 * _DOWNLOAD_SECONDS)
        data = await self._request(connected, {"ref": ref, "limit": limit})
        path = _DOWNLOAD_PATH.fullmatch(str(data.get("path")))
        if path is None:
            raise SendRefused("the WhatsApp helper put the file in the wrong place")
        return await asyncio.to_thread(self._read, path[1], limit)

    async def _request(
        self, connected: Callable[[], Awaitable[BridgeLink]], params: Mapping[str, object]
    ) -> Mapping[str, object]:
        for _ in range(_DOWNLOAD_ATTEMPTS - 1):
            try:
                return await (await connected()).request("download", params, _DOWNLOAD_SECONDS)
            except SendLater as error:
                await self._clock.sleep(min(error.retry_after, _DOWNLOAD_PAUSE))
            except SendUnknown:  # this helper ended: retry with the next one
                await self._clock.sleep(_DOWNLOAD_PAUSE)
        return await (await connected()).request("download", params, _DOWNLOAD_SECONDS)

    def _read(self, name: str, limit: int) -> bytes:
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(limit + 1)
            path.unlink()
        except OSError as error:
            raise SendError(f"the file was downloaded but can't be read: {error}") from error
        if len(content) > limit:
            raise SendRefused(f"the file is larger than the limit of {limit:,} bytes")
        return content
