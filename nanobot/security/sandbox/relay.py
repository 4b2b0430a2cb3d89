"""The way from a sandbox into the network: an HTTP proxy that listens inside and decides outside.

A sandbox has no network but its own loopback. There, a listener is made before the command starts,
and handed over to this process through a socket that the command never sees. So no program is
needed inside, and whatever a command says arrives here, where `Egress` decides whether it goes on.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

from nanobot.errors import ToolError
from nanobot.security.sandbox.proxying import Ask, read_ask, refusal
from nanobot.tasks import Background

_CONNECTIONS = 32
"""At a time; one more is closed at once."""

_SECONDS_TO_ASK = 30.0
_CHUNK = 64 * 1024


class Connects(Protocol):
    """The way out, as far as a relay needs it: `Egress` is one."""

    async def connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises `ToolError` where it may not be or fails."""
        ...


class NetworkRelay:
    """The network of one command: `async with NetworkRelay(egress) as path`, and `path` is what
    `Sandbox.launch` gets. Nothing of it is left afterwards."""

    def __init__(self, egress: Connects) -> None:
        self._egress = egress
        self._background = Background()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._door: socket.socket | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="nanobot-relay-")
        path = Path(self._folder.name, "relay")
        self._door = socket.socket(socket.AF_UNIX)
        self._door.setblocking(False)
        self._door.bind(str(path))
        self._door.listen(1)
        self._background.start(self._take_listener(self._door), name="network relay")
        return path

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        await self._background.drain(0)
        if self._door is not None:
            self._door.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def _take_listener(self, door: socket.socket) -> None:
        """From the first who comes, which is before any command runs; nobody comes after."""
        loop = asyncio.get_running_loop()
        way, _ = await loop.sock_accept(door)
        door.close()
        with way:
            await _readable(way)
            _, descriptors, _, _ = socket.recv_fds(way, 1, 1)
            if not descriptors:
                return
            listener = socket.socket(fileno=descriptors[0])
            self._server = await asyncio.start_server(self._came, sock=listener, limit=_CHUNK)
            await loop.sock_sendall(way, b"+")

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._background) > _CONNECTIONS:
            writer.close()
            return
        self._background.start(self._serve(reader, writer), name="network relay")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_SECONDS_TO_ASK):
                    ask = await read_ask(reader)
                if isinstance(ask, Ask):
                    await self._answer(ask, reader, writer)
                else:
                    writer.write(ask)
                await writer.drain()
        finally:
            writer.close()

    async def _answer(
        self, ask: Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far_reader, far_writer = await self._egress.connect(ask.host, ask.port)
        except ToolError as error:
            writer.write(refusal(403, str(error)))
            return
        try:
            writer.write(ask.confirmation)
            far_writer.write(ask.forwarded)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, far_writer))
                both.create_task(_pump(far_reader, writer))
        finally:
            far_writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Pass on what comes, and its end."""
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()


async def _readable(connection: socket.socket) -> None:
    """Until there is something to receive."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def come() -> None:
        loop.remove_reader(connection)
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, come)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
