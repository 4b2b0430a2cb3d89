"""From the helper's spool to the core's inbox, with read receipts, quotes and files.

An event that was ingested here may be confirmed to the helper: it is in the inbox, or it was
nothing for us, or it is in quarantine. While the disk refuses, nothing is confirmed and the spool
keeps it.

Files that people sent are downloaded and decrypted by the helper; we read and remove what it wrote.
A path that the helper gives is not trusted to stay in its folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from nanobot.bus.events import Media
from nanobot.channel import ChannelHost
from nanobot.channel.health import HealthReporter, RateLimitedLog
from nanobot.channel.quarantine import Quarantine
from nanobot.channel.waiting import Backoff
from nanobot.clock import Clock
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown, StorageError
from nanobot_whatsapp.ingest import Ingest
from nanobot_whatsapp.linked.events import Received, Unreadable, read, unreadable
from nanobot_whatsapp.linked.link import BridgeLink
from nanobot_whatsapp.linked.protocol import Event, Me

_MAX_PAUSE = 30.0
"""Seconds between attempts to store something."""
_MAX_UNREAD = 256
_MAX_QUOTABLE = 1000
_QUOTE_CHARACTERS = 500

_DOWNLOADS = "downloads"
_DOWNLOAD_PATH = re.compile(r"downloads/([A-Za-z0-9_-][A-Za-z0-9._-]{0,200})", re.ASCII)
_DOWNLOAD_ATTEMPTS = 4
_DOWNLOAD_PAUSE = 5.0
_DOWNLOAD_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Quotable:
    """A message that came in: its sender's JID as it was sent from, and how it begins."""

    id: str
    sender: str
    text: str


class Quotables:
    """The latest messages, in memory. WhatsApp wants the words and the sender of a quoted message
    again, not only its id; a reply to an older one goes without the quote."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Quotable] = OrderedDict()

    def add(self, received: Received) -> None:
        """Another message under the same id does not replace it: senders choose them."""
        id, text = received.message.id, received.message.text
        quotable = Quotable(id, received.sender, text[:_QUOTE_CHARACTERS])
        self._known.setdefault((received.chat, id), quotable)
        if len(self._known) > _MAX_QUOTABLE:
            self._known.popitem(last=False)

    def find(self, chat: str, id: str) -> Quotable | None:
        """The message with this id in the chat with this JID."""
        return self._known.get((chat, id))


class Inbox:
    """Ingests events. `receipts`: senders are shown that their messages were read."""

    def __init__(
        self,
        host: ChannelHost,
        ingest: Ingest,
        health: HealthReporter,
        quotables: Quotables,
        *,
        receipts: bool,
    ) -> None:
        self._clock, self._ingest, self._health = host.clock, ingest, health
        self._quotables, self._receipts = quotables, receipts
        self._quarantine = Quarantine(
            host.state_folder, host.clock, RateLimitedLog("whatsapp", host.clock).warn
        )
        self._unread: deque[Received] = deque(maxlen=_MAX_UNREAD)
        self._arrived = asyncio.Event()

    async def ingest(self, events: Sequence[Event], me: Me | None) -> None:
        """Returns when they may be confirmed; tries until the disk accepts them."""
        received = [one for event in events if (one := self._read(event, me)) is not None]
        backoff = Backoff(self._clock, _MAX_PAUSE)
        while True:
            try:
                admitted = set(await self._ingest.store([one.message for one in received]))
                break
            except StorageError as error:
                self._health.report("disk", f"messages wait: {error}")
                await backoff.wait()
        self._health.resolve("disk")
        for one in received:
            if one.message in admitted:
                self._quotables.add(one)
                if self._receipts and not one.message.own and not one.message.edits:
                    self._unread.append(one)
                    self._arrived.set()

    async def send_receipts(self, link: BridgeLink) -> None:
        """Show senders that what was admitted is read; best effort, one after the other."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._unread:
                one = self._unread.popleft()
                params = {"chat": one.chat, "id": one.message.id, "sender": one.sender}
                try:
                    await link.request("read", params)
                except SendError as error:
                    logger.debug("whatsapp: a message was not marked as read: {}", error)

    def _read(self, event: Event, me: Me | None) -> Received | None:
        now = self._clock.now()
        try:
            return read(event.body, me, now)
        except Exception as error:  # noqa: BLE001 - the boundary: one event, whatever is in it
            reason = str(error) if isinstance(error, Unreadable) else type(error).__name__
            self._quarantine.keep(event.body, reason)
            return unreadable(event.body, me, now)


class Downloads:
    """Fetches files through the helper of `folder`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder / _DOWNLOADS, clock

    def sweep(self, seconds: float | None = None) -> None:
        """Remove what is that old; without `seconds` everything, for a time when no helper runs."""
        now = self._clock.now().timestamp()
        with suppress(OSError):
            for file in self._folder.iterdir():
                with suppress(FileNotFoundError):  # another fetch was faster
                    if seconds is None or now - file.lstat().st_mtime > seconds:
                        file.unlink()

    async def fetch(
        self, connected: Callable[[], Awaitable[BridgeLink]], media: Media, limit: int
    ) -> bytes:
        """The content of a file of at most `limit` bytes. `connected` gives the helper that runs,
        once WhatsApp is connected.

        Raises `SendRefused` if it is larger or unavailable, and another `SendError` if WhatsApp
        cannot be reached.
        """
        if media.size > limit:
            raise SendRefused(f"the file has {media.size:,} bytes, more than {limit:,}")
        try:
            ref = json.loads(media.ref)
        except ValueError:
            ref = None
        if not isinstance(ref, dict):
            raise SendRefused("the file is not one of this linked device")
        # Nobody waits for files that were fetched so long ago.
        await asyncio.to_thread(self.sweep, 2 * _DOWNLOAD_SECONDS)
        data = await self._request(connected, {"ref": ref, "limit": limit})
        path = _DOWNLOAD_PATH.fullmatch(str(data.get("path")))
        if path is None:
            raise SendRefused("the WhatsApp helper put the file where it does not belong")
        return await asyncio.to_thread(self._read, path[1], limit)

    async def _request(
        self, connected: Callable[[], Awaitable[BridgeLink]], params: Mapping[str, object]
    ) -> Mapping[str, object]:
        for _ in range(_DOWNLOAD_ATTEMPTS - 1):
            try:
                return await (await connected()).request("download", params, _DOWNLOAD_SECONDS)
            except SendLater as error:
                await self._clock.sleep(min(error.retry_after, _DOWNLOAD_PAUSE))
            except SendUnknown:  # this helper ended, and the next one can do it as well
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
            raise SendError(f"the file was downloaded and cannot be read: {error}") from error
        if len(content) > limit:
            raise SendRefused(f"the file has more than {limit:,} bytes")
        return content
