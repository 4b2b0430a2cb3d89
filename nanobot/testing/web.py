"""A web site on loopback: pages that a test puts there, search engines, and pages made to hurt.

It is written on bare sockets because half of what it says no proper server would. What it was asked
is in `requests`, and `connections` counts even those who asked nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from nanobot.testing.web_hostile import hostile
from nanobot.testing.web_search import engines
from nanobot.testing.web_values import Asked, Handler, Line, SearchFault, SearchHit

__all__ = ["Asked", "FakeWeb", "Line", "SearchFault", "SearchHit"]


@dataclass
class FakeWeb:
    """An `async with` block. Unknown paths are answered with 404."""

    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    hits: list[SearchHit] = field(default_factory=list)
    search_fault: SearchFault = ""
    requests: list[Asked] = field(default_factory=list)
    connections: int = 0
    sent: int = 0
    _routes: dict[str, Handler] = field(default_factory=dict)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._routes |= {f"/hostile/{name}": handler for name, handler in hostile().items()}
        self._routes |= engines(lambda: self.hits, lambda: self.search_fault)
        self._server = await asyncio.start_server(self._connected, self.host, 0, ssl=self.tls)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        self._over.set()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if self._server is None:
            raise RuntimeError("it is not running")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, path: str = "/") -> str:
        """The address of a page."""
        return f"{'https' if self.tls else 'http'}://{self.place}{path}"

    def put(
        self,
        path: str,
        body: str | bytes,
        kind: str = "text/html; charset=utf-8",
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Serve this at `path`; returns its URL. An empty `kind` sends no type."""
        content = body.encode() if isinstance(body, str) else body
        fields = ({"Content-Type": kind} if kind else {}) | dict(headers or {})

        async def handler(_: Asked, line: Line) -> None:
            await line.answer(content, status=status, headers=fields)

        return self.handle(path, handler)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        """Send whoever asks for `path` to `target`; returns the URL of `path`."""
        return self.put(path, b"", "", status=status, headers={"Location": target})

    def handle(self, path: str, handler: Handler) -> str:
        """Let `handler` answer at `path`; returns its URL."""
        self._routes[path] = handler
        return self.url(path)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        self._writers.add(writer)
        line = Line(writer, self._over)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._answered(await _read(reader), line)
        finally:
            self.sent += line.sent
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answered(self, asked: Asked, line: Line) -> None:
        self.requests.append(asked)
        handler = self._routes.get(asked.path) or self._routes.get(_folder(asked.path))
        if handler is None:
            await line.answer(b"not here", status=404)
        else:
            await handler(asked, line)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] + "/"


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    return Asked(
        method, target, headers, await reader.readexactly(int(headers.get("content-length", 0)))
    )
