"""A web site on loopback: pages of a test, search engines, and pages that harm their reader.

The search engines are DuckDuckGo's page, and the APIs of Brave, Tavily, SearXNG. Harmful pages are
at `/hostile/<name>`. The site uses bare sockets, because no proper server would send half of its
answers. `requests` has the received requests, and `connections` also counts clients without a
request."""

from __future__ import annotations

import asyncio
import json
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from html import escape
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qs, quote, urlsplit

SearchFault = Literal["", "blocked", "bad key", "busy", "garbage"]


@dataclass(frozen=True, slots=True)
class WebRequest:
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
        """Return a value of the query, or an empty text if it is missing."""
        return parse_qs(urlsplit(self.target).query).get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result of the search engines."""

    title: str
    url: str
    snippet: str = ""


class WebConnection:
    """A handler's view of a connection."""

    def __init__(self, writer: asyncio.StreamWriter, over: asyncio.Event) -> None:
        self._writer, self._over = writer, over
        self.sent = 0

    async def send(self, data: bytes) -> None:
        """Send bytes. Raise `ConnectionError` if the client has gone."""
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
        """Send nothing until the site closes."""
        await self._over.wait()


Handler = Callable[[WebRequest, WebConnection], Awaitable[None]]


_MEGABYTE = 1_000_000
_HTML = "Content-Type: text/html\r\n"
MANY_REDIRECTS = 10_000


def hostile() -> Mapping[str, Handler]:
    """Return the pages by name. A name that ends in `/` answers for everything below."""
    return {
        "large": _large,
        "endless": _endless,
        "gzip-bomb": _bomb("gzip", 31),
        "deflate-bomb": _bomb("deflate", 15),
        "brotli": _send_fixed("Content-Encoding: br\r\n", b"\x0b\x02\x80hello\x03"),
        "broken-gzip": _send_fixed(
            "Content-Encoding: gzip\r\n", b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\xff" * 20
        ),
        "short-gzip": _send_fixed("Content-Encoding: gzip\r\n", _pack_zeros(31, 1)[:500]),
        "redirects/": _redirects,
        "to-loopback": _to("http://127.0.0.1/"),
        "to-metadata": _to("http://169.254.169.254/latest/meta-data/"),
        "to-mapped": _to("http://[::ffff:127.0.0.1]/"),
        "to-file": _to("file:///etc/passwd"),
        "to-nowhere": _to("http://:80/"),
        "wrong-charset": _send_fixed(
            "Content-Type: text/html; charset=utf-8\r\n", "<p>Grüße aus Köln</p>".encode("latin-1")
        ),
        "no-charset": _send_fixed("Content-Type: text/html; charset=klingon\r\n", b"<p>plain</p>"),
        "binary": _send_fixed(_HTML, bytes(range(256)) * 40),
        "zip": _send_fixed("Content-Type: application/zip\r\n", b"PK\x03\x04"),
        "silent": _silent,
        "slow": _slow,
        "huge-header": _huge_header,
        "many-headers": _many_headers,
        "truncated": _truncate,
        "no-http": _no_http,
    }


def _send_fixed(headers: str, body: bytes) -> Handler:
    async def handler(_: WebRequest, line: WebConnection) -> None:
        head = f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        await line.send(head.encode() + body)

    return handler


def _to(target: str) -> Handler:
    async def handler(_: WebRequest, line: WebConnection) -> None:
        await line.answer(b"", status=302, headers={"Location": target})

    return handler


async def _large(_: WebRequest, line: WebConnection) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: {50 * _MEGABYTE}\r\n\r\n".encode())
    for _piece in range(50):
        await line.send(b"x" * _MEGABYTE)


async def _endless(_: WebRequest, line: WebConnection) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}\r\n".encode())
    while True:
        await line.send(b"<p>and on</p>" * 5_000)


@cache
def _pack_zeros(window: int, megabytes: int) -> bytes:
    packer = zlib.compressobj(1, wbits=window)
    zeros = bytes(_MEGABYTE)
    return b"".join(packer.compress(zeros) for _ in range(megabytes)) + packer.flush()


def _bomb(encoding: str, window: int) -> Handler:
    async def handler(asked: WebRequest, line: WebConnection) -> None:
        await _send_fixed(f"{_HTML}Content-Encoding: {encoding}\r\n", _pack_zeros(window, 50))(
            asked, line
        )

    return handler


async def _redirects(asked: WebRequest, line: WebConnection) -> None:
    number = int(asked.path.rpartition("/")[2] or 0) + 1
    if number > MANY_REDIRECTS:
        await line.answer(b"the end")
    else:
        await line.answer(b"", status=302, headers={"Location": f"/hostile/redirects/{number}"})


async def _silent(_: WebRequest, line: WebConnection) -> None:
    await line.hang()


async def _slow(_: WebRequest, line: WebConnection) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: 1000\r\n\r\nx".encode())
    await line.hang()


async def _huge_header(_: WebRequest, line: WebConnection) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * _MEGABYTE + b"\r\n\r\n")


async def _many_headers(_: WebRequest, line: WebConnection) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\n" + b"X-Many: x\r\n" * 100_000 + b"\r\n")


async def _truncate(_: WebRequest, line: WebConnection) -> None:
    await line.send(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: 1000\r\n\r\n<p>only".encode())


async def _no_http(_: WebRequest, line: WebConnection) -> None:
    await line.send(b"220 mail.example.com ESMTP\r\n")


KEY = "a-good-key"
"""The valid key of the APIs."""

_JSON = {"Content-Type": "application/json"}


def engines(
    hits: Callable[[], Sequence[SearchHit]], fault: Callable[[], SearchFault]
) -> Mapping[str, Handler]:
    """Return the engines by path. Each gets the results and the fault when it answers."""
    answers = _Answers(hits, fault)
    return {
        "/html/": answers.duckduckgo,
        "/res/v1/web/search": answers.brave,
        "/search": answers.tavily_or_searxng,
    }


@dataclass(frozen=True, slots=True)
class _Answers:
    hits: Callable[[], Sequence[SearchHit]]
    fault: Callable[[], SearchFault]

    async def duckduckgo(self, _: WebRequest, line: WebConnection) -> None:
        if self.fault() == "blocked":
            page = '<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>'
            await line.answer(page.encode(), status=202, headers={"Content-Type": "text/html"})
        elif not await _send_fault(line, self.fault()):
            page = _duckduckgo_page(self.hits())
            await line.answer(page.encode(), headers={"Content-Type": "text/html; charset=UTF-8"})

    async def brave(self, asked: WebRequest, line: WebConnection) -> None:
        if asked.headers.get("x-subscription-token") != KEY:
            await line.answer(b'{"error": {}}', status=422, headers=_JSON)
        elif not await _send_fault(line, self.fault()):
            found = [
                {"title": hit.title, "url": hit.url, "description": f"<b>{escape(hit.snippet)}</b>"}
                for hit in self.hits()
            ]
            await line.answer(json.dumps({"web": {"results": found}}).encode(), headers=_JSON)

    async def tavily_or_searxng(self, asked: WebRequest, line: WebConnection) -> None:
        closed = self.fault() == "bad key" or asked.query("format") != "json"
        if asked.method == "POST" and asked.headers.get("authorization") != f"Bearer {KEY}":
            await line.answer(b'{"detail": {}}', status=401, headers=_JSON)
        elif asked.method == "GET" and closed:
            await line.answer(b"Forbidden", status=403)
        elif not await _send_fault(line, self.fault()):
            found = [
                {"title": hit.title, "url": hit.url, "content": hit.snippet} for hit in self.hits()
            ]
            await line.answer(json.dumps({"results": found}).encode(), headers=_JSON)


async def _send_fault(line: WebConnection, fault: SearchFault) -> bool:
    if fault == "busy":
        await line.answer(b"{}", status=429, headers=_JSON)
    elif fault == "garbage":
        await line.answer(b'{"results": [{"title": "\xff"}]}', headers=_JSON)
    return fault in ("busy", "garbage")


def _duckduckgo_page(hits: Sequence[SearchHit]) -> str:
    advert = (
        '<div class="result result--ad"><a class="result__a" '
        'href="https://duckduckgo.com/y.js?ad_domain=shop.example">Buy!</a></div>'
    )
    counted = "//duckduckgo.com/l/?rut=0&amp;uddg="
    results = "".join(
        '<div class="result results_links"><h2 class="result__title"><a class="result__a" '
        f'href="{counted}{quote(hit.url, safe="")}">{escape(hit.title)}</a></h2>'
        f'<a class="result__snippet" href="#">{escape(hit.snippet)}</a></div>'
        for hit in hits
    )
    return f"<html><body><div id=links>{advert}{results}</div></body></html>"


@dataclass
class FakeWeb:
    """An `async with` block. Unknown paths are answered with 404."""

    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    hits: list[SearchHit] = field(default_factory=list)
    search_fault: SearchFault = ""
    requests: list[WebRequest] = field(default_factory=list)
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
        self._server = await asyncio.start_server(self._connect, self.host, 0, ssl=self.tls)
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
        """Return the address of a page."""
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
        """Serve this at `path`, and return its URL. An empty `kind` sends no type."""
        content = body.encode() if isinstance(body, str) else body
        fields = ({"Content-Type": kind} if kind else {}) | dict(headers or {})

        async def handler(_: WebRequest, line: WebConnection) -> None:
            await line.answer(content, status=status, headers=fields)

        return self.handle(path, handler)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        """Redirect `path` to `target`, and return the URL of `path`."""
        return self.put(path, b"", "", status=status, headers={"Location": target})

    def handle(self, path: str, handler: Handler) -> str:
        """Let `handler` answer at `path`, and return its URL."""
        self._routes[path] = handler
        return self.url(path)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        self._writers.add(writer)
        line = WebConnection(writer, self._over)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._answer(await _read(reader), line)
        finally:
            self.sent += line.sent
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, asked: WebRequest, line: WebConnection) -> None:
        self.requests.append(asked)
        handler = self._routes.get(asked.path) or self._routes.get(_folder(asked.path))
        if handler is None:
            await line.answer(b"not here", status=404)
        else:
            await handler(asked, line)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] + "/"


async def _read(reader: asyncio.StreamReader) -> WebRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    return WebRequest(
        method, target, headers, await reader.readexactly(int(headers.get("content-length", 0)))
    )
