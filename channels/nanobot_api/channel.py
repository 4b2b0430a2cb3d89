"""The API as a channel of nanobot: connects its parts to the core."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

from nanobot.bus.events import (
    API,
    Address,
    ApprovalAsked,
    ApprovalClosed,
    Media,
    OutboundPart,
    Progress,
    Receipt,
)
from nanobot.channel import ChannelHost, GatewayEvent, Limits, Operation, Overview
from nanobot.channel.health import ConnectionSlot
from nanobot.channel.keys import ApiKeys
from nanobot.clock import Clock, first_error
from nanobot.errors import NanobotError
from nanobot_api.exchanges import Exchanges, OwnerQuestion
from nanobot_api.memory import McpEndpoint
from nanobot_api.server import Server
from nanobot_api.settings import ApiSettings

PATH, MEMORY_PATH = "/v1", "/mcp"

_NO_LIMIT = 1 << 62
_SWEEP_SECONDS = 86_400.0


class ApiChannel:
    """An implementation of `nanobot.channel.Channel` and `Overseer`."""

    name = API
    limits = Limits(caption=_NO_LIMIT, files=0, closing=True, shown_once=True)
    paths = (PATH, MEMORY_PATH)

    def __init__(self, options: ApiSettings | None = None) -> None:
        self._exchanges = Exchanges()
        self._slot: ConnectionSlot[Server] = ConnectionSlot()
        self._overview: Overview | None = None

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """See `Overseer`."""
        self._overview = overview
        return {}

    async def run(self, host: ChannelHost) -> None:
        """Serve until cancelled."""
        keys, memory = ApiKeys(host.state_folder), McpEndpoint(self._ask, host.clock)
        server = Server(host, keys, self._exchanges, self._ask)
        watcher = partial(self._pass_question, host.clock)
        self._slot.fill(server)
        try:
            with self._overview.watch(watcher) if self._overview else nullcontext():
                await self._serve(host, server, memory)
        except BaseExceptionGroup as failures:
            raise first_error(failures) from None
        finally:
            await self._slot.clear()

    async def _serve(self, host: ChannelHost, server: Server, memory: McpEndpoint) -> None:
        """Serve requests, wake the pending ones, and sweep the records each day."""
        async with (
            asyncio.TaskGroup() as group,
            host.serve_http(PATH, server.handle) as address,
            host.serve_http(MEMORY_PATH, partial(server.handle_memory, memory)),
        ):
            host.report_connected(address)
            group.create_task(memory.run())
            group.create_task(self._exchanges.tick(host.clock))
            while True:
                now = host.clock.now().timestamp()
                await asyncio.to_thread(server.records.sweep, now)
                await host.clock.sleep(_SWEEP_SECONDS)

    def _pass_question(self, clock: Clock, happening: GatewayEvent) -> None:
        """Pass on the questions to the owner in conversations of programs."""
        event, (channel, _, chat) = happening.event, happening.session_key.partition(":")
        if channel != API:
            return
        if isinstance(event, ApprovalAsked):
            place = Address(event.channel, event.chat_id, event.thread_id)
            self._exchanges.ask(
                chat, OwnerQuestion(event.code, event.what, place, clock.monotonic())
            )
        elif isinstance(event, ApprovalClosed):
            self._exchanges.close_question(chat, event.code)

    async def _ask(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Run an operation of the gateway. Raises `NanobotError`."""
        if self._overview is None:
            raise NanobotError("this gateway has no operations")
        data = await self._overview.operations[name](arguments)
        assert isinstance(data, Mapping)
        return data

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part. See `nanobot.channel`."""
        async with self._slot.use() as server:
            if turn := await self._exchanges.deliver(part, server.records):
                taken = {"key": f"{API}:{part.chat_id}", "turn": turn, "by": API}
                await self._ask("conversations.take_back", taken)
        return Receipt()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Return the content of a file that came with a request. See `nanobot.channel`."""
        server = await self._slot.wait()
        return await asyncio.to_thread(server.records.file, media, limit)

    async def show_progress(self, event: Progress) -> None:
        """Pass progress to the streams."""
        self._exchanges.show(event)
