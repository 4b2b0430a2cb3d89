"""Network access of a sandbox: an HTTP proxy that listens inside and decides outside.

A sandbox has only its own loopback. There a listener is made before the command starts, and passed
to this process through a socket that the command never sees. So the sandbox needs no program, and
each request arrives here, where `Egress` decides."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nanobot.errors import ToolError
from nanobot.security.egress import Egress
from nanobot.security.egress.urls import parse_url
from nanobot.tasks import Background

_OURS = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"upgrade:")
"""Prefixes of header lines that are not forwarded. `Host` is set to the requested host."""

_CONNECTIONS = 32
"""Simultaneous connections. Others are closed at once."""

_SECONDS_TO_ASK = 30.0
_LONGEST_HEAD = 32 * 1024
_CHUNK = 64 * 1024


@asynccontextmanager
async def network_relay(egress: Egress) -> AsyncIterator[Path]:
    """Yield the socket for `Sandbox.launch`, the network access of one command. Everything is
    removed afterwards."""
    background, servers = Background(), list[asyncio.Server]()

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(background) > _CONNECTIONS:
            writer.close()
        else:
            background.start(serve_connection(egress, reader, writer), name="network relay")

    async def take_listener(door: socket.socket) -> None:
        """Receive the listener from the first connection, which comes before any command runs. No
        other is accepted."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        way, _ = await loop.sock_accept(door)
        door.close()
        with way:
            loop.add_reader(way, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(way)
            _, descriptors, _, _ = socket.recv_fds(way, 1, 1)
            if descriptors:
                listener = socket.socket(fileno=descriptors[0])
                servers.append(
                    await asyncio.start_server(on_connection, sock=listener, limit=_LONGEST_HEAD)
                )
                await loop.sock_sendall(way, b"+")

    with (
        tempfile.TemporaryDirectory(prefix="nanobot-relay-") as folder,
        socket.socket(socket.AF_UNIX) as door,
    ):
        path = Path(folder, "relay")
        door.setblocking(False)
        door.bind(str(path))
        door.listen(1)
        background.start(take_listener(door), name="network relay")
        try:
            yield path
        finally:
            for server in servers:
                server.close()
            await background.drain(0)


async def serve_connection(
    egress: Egress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            await answer_request(egress, reader, writer)
            await writer.drain()
    finally:
        writer.close()


async def answer_request(
    egress: Egress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(_SECONDS_TO_ASK):
            host, port, confirmation, forwarded = parse_request(await reader.readuntil(b"\r\n\r\n"))
        far_reader, far_writer = await egress.connect(host, port)
    except asyncio.LimitOverrunError:
        writer.write(build_refusal(431, "the request headers are too long"))
        return
    except ToolError as error:
        writer.write(build_refusal(403, str(error)))
        return
    except ValueError:
        writer.write(build_refusal(400, "this proxy accepts only HTTP requests"))
        return
    try:
        writer.write(confirmation)
        far_writer.write(forwarded)
        async with asyncio.TaskGroup() as both:
            both.create_task(forward_stream(reader, far_writer))
            both.create_task(forward_stream(far_reader, writer))
    finally:
        far_writer.close()


def parse_request(head: bytes) -> tuple[str, int, bytes, bytes]:
    """Return host, port, the confirmation for the client, and the bytes to forward. Raise
    `EgressRefused` and `ValueError`."""
    first, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, version = first.decode("ascii").split(" ")
    if not version.startswith("HTTP/1.") or not method.isalpha():
        raise ValueError(version)
    if method == "CONNECT":
        url = parse_url(f"https://{target}/")
        return url.host, url.port, b"HTTP/1.1 200 Connected\r\n\r\n", b""
    url = parse_url(target)
    if url.scheme != "http":
        raise ValueError(target)
    lines = [f"{method} {url.target} HTTP/1.1".encode(), f"Host: {url.place}".encode()]
    lines += [line for line in headers if not line.lower().startswith(_OURS)]
    forwarded = b"\r\n".join([*lines, b"Connection: close", b"", b""])
    return url.host, url.port, b"", forwarded


def build_refusal(status: int, text: str) -> bytes:
    """Return a complete error response."""
    body = f"nanobot: {text}\n".encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def forward_stream(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Forward all bytes and the end of the stream."""
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
