"""The linked transport between a helper played by a test and the core."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from nanobot.bus.events import Media, OutboundPart
from nanobot.errors import SendError
from nanobot.validation import build
from nanobot_whatsapp.linked.transport import LinkedTransport
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.whatsapp.linked.helpers import (
    PROGRAM,
    Core,
    FakeHelper,
    HelperPool,
    play_helpers,
)

ANN = "15557770000"
PICTURE = Media(json.dumps({"directPath": "/v/t62"}), "image", "image/png", "", 5)


@dataclass
class TransportKit:
    """The running transport, and the tasks of a test."""

    core: Core
    transport: LinkedTransport
    pool: HelperPool
    group: asyncio.TaskGroup
    life: asyncio.Task[None]

    async def open_next(self) -> FakeHelper:
        """Wait for the next started helper, and connect it to WhatsApp."""
        helper = await self.pool.next()
        self.core.account = ""
        await helper.open()
        await self.core.until(lambda: self.core.account)
        return helper

    def sending(self, text: str, chat_id: str = ANN) -> asyncio.Task[str | SendError]:
        """Start sending a part with a fixed key. The result is its id or the error."""
        return self.group.create_task(self._send(OutboundPart("k1", "whatsapp", chat_id, text)))

    def fetching(self, limit: int = 1000) -> asyncio.Task[bytes | SendError]:
        """Start fetching the picture."""
        return self.group.create_task(self._fetch(limit))

    async def _send(self, part: OutboundPart) -> str | SendError:
        try:
            return (await self.transport.send(part)).platform_id
        except SendError as error:
            return error

    async def _fetch(self, limit: int) -> bytes | SendError:
        try:
            return await self.transport.fetch(PICTURE, limit)
        except SendError as error:
            return error


@contextlib.asynccontextmanager
async def running(core: Core, **options: object) -> AsyncIterator[TransportKit]:
    """Run the transport."""
    settings = build(WhatsAppSettings, options)
    transport = LinkedTransport(settings, find_program=lambda _options, _folder: PROGRAM)
    async with play_helpers(core.state_folder) as pool, asyncio.TaskGroup() as group:
        life = group.create_task(transport.run(core))
        yield TransportKit(core, transport, pool, group, life)
        life.cancel()
