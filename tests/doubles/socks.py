"""A SOCKS5 proxy on a loopback port by RFC 1928 (the protocol) and RFC 1929 (name and password): it
accepts one CONNECT for each connection, to a domain name, and connects to the port in `servers` for
that name.

Strict about every MUST in the RFCs: the version, an offered method, the reserved byte. An address
that the client looked up itself is rejected with reply 2 ("not allowed by ruleset"), so a client
that leaks names to the local resolver fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

_NO_AUTHENTICATION, _PASSWORD, _NONE_FITS = 0, 2, 0xFF
_DOMAIN = 3
_SUCCEEDED, _NOT_ALLOWED, _UNREACHABLE = 0, 2, 4


class FakeSocks:
    """`servers` are ports on this machine by host name, and `login` the required name and password.
    `asked` has each requested host and port."""

    def __init__(self, servers: Mapping[str, int], login: tuple[str, str] | None = None) -> None:
        self._servers, self._login = servers, login
        self.asked: list[tuple[str, int]] = []
        self.port = 0
        self._open: set[asyncio.Task[object]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[FakeSocks]:
        """Listen."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            async with _closing(writer):
                await self._greet(reader, writer)
                port = await self._read_target(reader, writer)
                there_in, there_out = await asyncio.open_connection("127.0.0.1", port)
                async with _closing(there_out):
                    writer.write(bytes([5, _SUCCEEDED, 0, 1, 0, 0, 0, 0, 0, 0]))
                    await asyncio.gather(_copy(reader, there_out), _copy(there_in, writer))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = _PASSWORD if self._login else _NO_AUTHENTICATION
        if version != 5 or wanted not in methods:
            writer.write(bytes([5, _NONE_FITS]))
            raise ValueError
        writer.write(bytes([5, wanted]))
        if self._login is None:
            return
        (version,) = await reader.readexactly(1)
        name = (await _read_sized(reader)).decode()
        fits = version == 1 and (name, (await _read_sized(reader)).decode()) == self._login
        writer.write(bytes([1, 0 if fits else 1]))
        if not fits:
            raise ValueError

    async def _read_target(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        version, command, reserved, kind = await reader.readexactly(4)
        if (version, command, reserved, kind) != (5, 1, 0, _DOMAIN):
            writer.write(bytes([5, _NOT_ALLOWED, 0, 1, 0, 0, 0, 0, 0, 0]))
            raise ValueError
        host = (await _read_sized(reader)).decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((host, port))
        if host not in self._servers:
            writer.write(bytes([5, _UNREACHABLE, 0, 1, 0, 0, 0, 0, 0, 0]))
            raise ValueError
        return self._servers[host]


async def _read_sized(reader: asyncio.StreamReader) -> bytes:
    (size,) = await reader.readexactly(1)
    return await reader.readexactly(size)


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
