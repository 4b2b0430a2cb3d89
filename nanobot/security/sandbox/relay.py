"""What is asked of a proxy, and what it answers: HTTP, as far as that.

The way from a sandbox into the network: an HTTP proxy that listens inside and decides outside.

A sandbox has no network but its own loopback. There, a listener is made before the command starts,
and handed over to this process through a socket that the command never sees. So no program is
needed inside, and whatever a command says arrives here, where `Egress` decides whether it goes on.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from nanobot.errors import ToolError
from nanobot.security.egress import EgressRefused, parse_url
from nanobot.tasks import Background

_LONGEST_HEAD = 32 * 1024
_OURS = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"upgrade:")
"""Beginnings of header lines that are not passed on; the host is the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Where somebody wants to go. `confirmation` tells them that they are there, `forwarded` is
    what they said to the other side so far."""

    host: str
    port: int
    confirmation: bytes
    forwarded: bytes


async def read_ask(reader: asyncio.StreamReader) -> Ask | bytes:
    """Read a request's head: what it asks for, or the answer to one that cannot be."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return refusal(431, "this head is too long")
    if len(head) > _LONGEST_HEAD:
        return refusal(431, "this head is too long")
    try:
        return _asked(head)
    except EgressRefused as error:
        return refusal(403, str(error))
    except (ValueError, UnicodeDecodeError):
        return refusal(400, "this is a proxy for HTTP, and that was not a request to one")


def refusal(status: int, text: str) -> bytes:
    """A whole answer that says no."""
    body = f"nanobot: {text}\n".encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _asked(head: bytes) -> Ask:
    first, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, version = first.decode("ascii").split(" ")
    if not version.startswith("HTTP/1.") or not method.isalpha():
        raise ValueError(version)
    if method == "CONNECT":
        url = parse_url(f"https://{target}/")
        return Ask(url.host, url.port, b"HTTP/1.1 200 Connected\r\n\r\n", b"")
    url = parse_url(target)
    if url.scheme != "http":
        raise ValueError(target)
    lines = [f"{method} {url.target} HTTP/1.1".encode(), f"Host: {url.place}".encode()]
    lines += [line for line in headers if not line.lower().startswith(_OURS)]
    return Ask(url.host, url.port, b"", b"\r\n".join([*lines, b"Connection: close", b"", b""]))


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
