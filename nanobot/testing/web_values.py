"""What `FakeWeb` and its pages speak of: a request, a connection, a search result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlsplit

SearchFault = Literal["", "blocked", "bad key", "busy", "garbage"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `headers` have lower-case names."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    def query(self, name: str) -> str:
        """A value of the query, empty where it is not there."""
        return parse_qs(urlsplit(self.target).query).get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result that the search engines give."""

    title: str
    url: str
    snippet: str = ""


class Line:
    """A connection, as a handler sees it."""

    def __init__(self, writer: asyncio.StreamWriter, over: asyncio.Event) -> None:
        self._writer, self._over = writer, over
        self.sent = 0

    async def send(self, data: bytes) -> None:
        """Send bytes. Raises `ConnectionError` where nobody takes them."""
        self._writer.write(data)
        await self._writer.drain()
        self.sent += len(data)

    async def answer(
        self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a proper answer."""
        fields = {"Content-Length": str(len(body)), "Connection": "close"} | dict(headers or {})
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def hang(self) -> None:
        """Say nothing until the site closes."""
        await self._over.wait()


Handler = Callable[[Asked, Line], Awaitable[None]]
