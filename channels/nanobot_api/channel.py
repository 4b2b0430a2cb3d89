"""The API as a channel of nanobot: puts the parts together, and takes what the core delivers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from nanobot.bus.events import API, Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits, Operation, Overview
from nanobot.channel.health import ConnectionSlot
from nanobot.channel.keys import ApiKeys
from nanobot.clock import first_error
from nanobot.errors import NanobotError
from nanobot_api.exchanges import Exchanges
from nanobot_api.memory import McpEndpoint
from nanobot_api.server import Server
from nanobot_api.settings import ApiSettings

PATH, MEMORY_PATH = "/v1", "/mcp"

_NO_LIMIT = 1 << 62
_SWEEP_SECONDS = 86_400.0


class ApiChannel:
    """Implements `nanobot.channel.Channel` and `Overseeing`."""

    name = API
    limits = Limits(caption=_NO_LIMIT, files=0, closing=True)

    def __init__(self, options: ApiSettings | None = None) -> None:
        self._options = options or ApiSettings()
        self._exchanges = Exchanges()
        self._slot: ConnectionSlot[Server] = ConnectionSlot()
        self._overview: Overview | None = None

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """See `Overseeing`."""
        self._overview = overview
        return {}

    async def run(self, host: ChannelHost) -> None:
        """Serve until cancelled."""
        server = Server(host, ApiKeys(host.state_folder), self._exchanges, self._options)
        self._slot.fill(server)
        memory = McpEndpoint(self._ask)
        try:
            async with (
                asyncio.TaskGroup() as group,
                host.serve_http(PATH, server.handle) as address,
                host.serve_http(MEMORY_PATH, partial(server.handle_memory, memory)),
            ):
                host.report_connected(address)
                group.create_task(memory.run())
                while True:
                    now = host.clock.now().timestamp()
                    await asyncio.to_thread(server.records.sweep, now)
                    await host.clock.sleep(_SWEEP_SECONDS)
        except BaseExceptionGroup as failures:
            raise first_error(failures) from None
        finally:
            await self._slot.clear()

    async def _ask(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Do an operation of the gateway. Raises `NanobotError`."""
        if self._overview is None:
            raise NanobotError("this gateway has no operations")
        data = await self._overview.operations[name](arguments)
        assert isinstance(data, Mapping)
        return data

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`."""
        async with self._slot.used() as server:
            await self._exchanges.deliver(part, server.records)
        return Receipt()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of a file that came with a request; see `nanobot.channel`."""
        server = await self._slot.wait()
        return await asyncio.to_thread(server.records.file, media, limit)

    async def show_progress(self, event: Progress) -> None:
        """Pass progress on to streams."""
        self._exchanges.show(event)
