"""The HTTP server, over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp.web import Request, StreamResponse
from loguru import logger

from nanobot.channel import WebhookReply, WebhookRequest
from nanobot.errors import ChannelOff, NanobotError, StorageError
from nanobot.gateway.webserver import MAX_BODY, WebServer


@dataclass(slots=True)
class Platform:
    """A platform's requests over a separate connection, and a handler that keeps them."""

    seen: list[WebhookRequest] = field(default_factory=list)
    reply: WebhookReply = field(default_factory=WebhookReply)

    async def handle(self, request: WebhookRequest) -> WebhookReply:
        self.seen.append(request)
        return self.reply

    async def send(
        self,
        url: str,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of the answer."""
        address, _, path = url.removeprefix("http://").partition("/")
        sent = {"Host": address, "Content-Length": str(len(body))} | (dict(headers or {}))
        lines = [f"{method} /{path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items()), "", ""]
        return await exchange(url, "\r\n".join(lines).encode() + body)


async def exchange(url: str, raw: bytes) -> tuple[int, Mapping[str, str], bytes]:
    reader, writer = await connect(url)
    try:
        writer.write(raw)
        return await answer(reader)
    finally:
        writer.close()


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition("/")[0].rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port))


async def answer(reader: asyncio.StreamReader) -> tuple[int, Mapping[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    server = WebServer(port=0, public_hosts=("Bot.example.org",))
    yield server
    await server.close()


@pytest.fixture
def lines() -> Iterator[list[str]]:
    written: list[str] = []
    sink = logger.add(
        lambda text: written.append(str(text)), format="{level} {message}", diagnose=False
    )
    yield written
    logger.remove(sink)


async def test_a_handler_gets_the_request_as_it_was_sent(web: WebServer) -> None:
    platform = Platform(reply=WebhookReply(201, b"thanks", {"X-Kind": "test"}))
    async with web.serve("/hook", platform.handle) as url:
        headers = {"X-Secret": "s", "Content-Encoding": "gzip"}
        status, got, body = await platform.send(
            f"{url}/deep/er?a=1&a=2&b=%20", body=b"\x1f\x8braw", headers=headers
        )
    assert (status, got["x-kind"], body) == (201, "test", b"thanks")
    (request,) = platform.seen
    assert (request.method, request.path, request.body) == ("POST", "deep/er", b"\x1f\x8braw")
    assert request.headers["x-secret"] == "s"
    assert request.query == {"a": "2", "b": " "}


async def test_it_listens_on_this_machine_alone_and_only_while_it_is_needed() -> None:
    server = WebServer(port=0)
    async with server.serve("/hook", Platform().handle) as url:
        assert url.startswith("http://127.0.0.1:")
    await server.close()
    with pytest.raises(ConnectionError):
        await connect(url)


async def test_paths_are_served_side_by_side_the_longest_first(web: WebServer) -> None:
    short, long, root = Platform(), Platform(), Platform()
    async with (
        web.serve("/a", short.handle) as at,
        web.serve("/a/b/", long.handle),
        web.serve("/", root.handle) as base,
    ):
        for path in ("", "/", "/bc"):
            assert (await short.send(f"{at}{path}"))[0] == 200
        assert (await short.send(f"{at}/b/c"))[0] == 200
        assert (await short.send(f"{base}/other"))[0] == 200
    assert [request.path for request in short.seen] == ["", "", "bc"]
    assert [request.path for request in long.seen] == ["c"]
    assert [request.path for request in root.seen] == ["other"]


async def test_a_page_gets_requests_of_browsers_whole_and_may_stream_its_answer(
    web: WebServer,
) -> None:
    sizes: list[int] = []

    async def page(request: Request) -> StreamResponse:
        chunks = [len(chunk) async for chunk in request.content.iter_any()]
        sizes.append(sum(chunks))
        response = StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await response.write(b"two")
        return response

    platform = Platform()
    async with web.serve_http("/", page) as base, web.serve("/hook", platform.handle) as hook:
        origin = {"Origin": base.rstrip("/")}
        sent = await platform.send(f"{base}/upload", body=b"x" * (MAX_BODY + 1), headers=origin)
        assert sent[0] == 200
        assert (await platform.send(base, headers={"Host": "evil.example"}))[0] == 421
        assert (await platform.send(hook, headers=origin))[0] == 403
    assert sizes == [MAX_BODY + 1]


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), StorageError("disk", "full"), ConnectionError("another's")]
)
async def test_a_page_that_fails_costs_its_request_and_nothing_else(
    web: WebServer, error: Exception, lines: list[str]
) -> None:
    async def page(_: Request) -> StreamResponse:
        raise error

    platform = Platform()
    async with web.serve_http("/", page) as base, web.serve("/hook", platform.handle) as hook:
        assert (await platform.send(f"{base}/x?secret=1"))[0] == 500
        assert (await platform.send(hook))[0] == 200
    assert "secret" not in "".join(lines)
    assert len(lines) == 2  # its address, and the failure


async def test_a_path_is_served_once(web: WebServer) -> None:
    async with web.serve("/hook", Platform().handle):
        with pytest.raises(ChannelOff, match="the same path /hook"):
            async with web.serve("/hook/", Platform().handle):
                pass
        with pytest.raises(ValueError, match="must begin with a slash"):
            async with web.serve("hook", Platform().handle):
                pass


async def test_a_channel_that_is_away_for_a_moment_is_tried_again(web: WebServer) -> None:
    platform = Platform()
    async with web.serve("/hook", platform.handle) as url:
        pass
    status, headers, _ = await platform.send(url)
    assert (status, "retry-after" in headers) == (503, True)
    async with web.serve("/hook", platform.handle) as again:
        assert again == url
        assert (await platform.send(url))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/unknown", {}, 404),
        ("POST", "/hooked", {}, 404),
        ("GET", "/hook", {}, 200),
        ("HEAD", "/hook", {}, 405),
        ("PUT", "/hook", {}, 405),
        ("POST", "/hook", {"Host": "evil.example.org"}, 421),
        ("POST", "/hook", {"Host": ""}, 421),
        ("POST", "/hook", {"Host": "127.0.0.1.evil.example.org:8087"}, 421),
        ("POST", "/hook", {"Host": "evil.example.org@127.0.0.1"}, 421),
        ("POST", "/hook", {"Host": "localhost:8087"}, 200),
        ("POST", "/hook", {"Host": "[::1]:8087"}, 200),
        ("POST", "/hook", {"Host": "192.168.1.7"}, 200),
        ("POST", "/hook", {"Host": "BOT.example.org"}, 200),
        ("POST", "/hook", {"Origin": "https://evil.example.org"}, 403),
        ("POST", "/hook", {"Content-Length": str(MAX_BODY + 1)}, 413),
        ("POST", "/hook", {"X": "y" * 10_000}, 400),
        ("NONSENSE / \r\n", "/hook", {}, 400),
    ],
)
async def test_what_is_not_for_us_is_refused(
    web: WebServer, method: str, path: str, headers: Mapping[str, str], status: int
) -> None:
    platform = Platform()
    async with web.serve("/hook", platform.handle) as url:
        base = url.removesuffix("/hook")
        got, _, body = await platform.send(f"{base}{path}", method=method, headers=headers)
    assert got == status
    assert len(platform.seen) == (status == 200)
    if status in (403, 404, 405, 421):
        assert body == b""


@pytest.mark.parametrize("hosts", [(), None])
async def test_a_host_that_is_refused_is_told_with_a_setting_where_there_is_one(
    lines: list[str], hosts: tuple[str, ...] | None
) -> None:
    server = WebServer(port=0, section="here", public_hosts=hosts)
    async with server.serve("/hook", Platform().handle) as url:
        assert (await Platform().send(url, headers={"Host": "bot.example.org"}))[0] == 421
    await server.close()
    (told,) = (line for line in lines if "bot.example.org" in line)
    assert ("add it to here.public_hosts" in told) == (hosts is not None)


async def test_a_body_may_be_as_large_as_the_cap_and_no_larger(web: WebServer) -> None:
    platform = Platform()
    async with web.serve("/hook", platform.handle) as url:
        assert (await platform.send(url, body=b"x" * MAX_BODY))[0] == 200
        chunked = f"POST /hook HTTP/1.1\r\nHost: {url[7:-5]}\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = f"{MAX_BODY + 1:x}\r\n".encode() + b"x" * (MAX_BODY + 1)
        assert (await exchange(url, chunked.encode() + chunk))[0] == 413
    assert [len(request.body) for request in platform.seen] == [MAX_BODY]


async def test_a_failing_handler_is_status_500_and_one_line(
    web: WebServer, lines: list[str]
) -> None:
    async def full(_: WebhookRequest) -> WebhookReply:
        raise StorageError("journal.db", "no space")

    async def fail(_: WebhookRequest) -> WebhookReply:
        raise KeyError("bug")

    platform = Platform()
    async with web.serve("/full", full) as url, web.serve("/broken", fail) as other:
        lines.clear()
        secret = {"X-Secret": "canary"}
        assert (await platform.send(url, body=b"canary", headers=secret))[0] == 500
        assert (await platform.send(other, body=b"canary", headers=secret))[0] == 500
    first, second = lines
    assert first.strip() == "WARNING a request to /full failed: cannot use journal.db: no space"
    assert second.startswith("ERROR a request to /broken failed\n")
    assert "canary" not in first + second


async def test_a_refused_name_is_told_of_once_with_what_to_do(
    web: WebServer, lines: list[str]
) -> None:
    platform = Platform()
    async with web.serve("/hook", platform.handle) as url:
        lines.clear()
        for number in (1, 1, *range(2, 30)):
            await platform.send(url, headers={"Host": f"n{number}.example.org"})
    assert "'n1.example.org'. If this is the server's name, add it to http.public_hosts" in lines[0]
    assert len(lines) == 8


async def test_a_header_that_stands_there_twice_is_seen_as_both(web: WebServer) -> None:
    platform = Platform()
    async with web.serve("/hook", platform.handle) as url:
        await platform.send(url, headers={"X-Secret": "right\r\nX-Secret: wrong"})
    assert platform.seen[0].headers["x-secret"] == "right, wrong"


async def test_one_who_sends_too_slowly_does_not_hold_a_connection_for_ever() -> None:
    server = WebServer(port=0, timeout=0.05)
    async with server.serve("/hook", Platform().handle) as url:
        reader, writer = await connect(url)
        writer.write(b"POST /hook HTTP/1.1\r\nHost: local")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        reader, writer = await connect(url)
        writer.write(b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nslow")
        assert (await answer(reader))[0] == 408
        writer.close()
    await server.close()


async def test_a_handler_that_hangs_is_ended_and_the_platform_tries_again() -> None:
    server, platform = WebServer(port=0, handler_seconds=0.05), Platform()

    async def hang(_: WebhookRequest) -> WebhookReply:
        await asyncio.Event().wait()
        return WebhookReply()

    async with server.serve("/hook", hang) as url:
        assert (await platform.send(url))[0] == 500
    await server.close()


async def test_bursts_are_taken_and_too_much_at_once_is_put_off(web: WebServer) -> None:
    release, platform = asyncio.Event(), Platform()
    full, large = asyncio.Semaphore(0), b"x" * 320_000

    async def wait(_: WebhookRequest) -> WebhookReply:
        full.release()
        await release.wait()
        return WebhookReply()

    async with web.serve("/hook", wait) as url, asyncio.TaskGroup() as group:
        waiting = [group.create_task(platform.send(url, body=large)) for _ in range(200)]
        for _ in waiting:
            await full.acquire()
        assert (await platform.send(url, body=b"x"))[0] == 503
        release.set()
    assert {task.result()[0] for task in waiting} == {200}


async def test_a_port_that_is_taken_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = WebServer(port=taken.getsockname()[1])
        with pytest.raises(NanobotError, match=r"cannot listen on 127\.0\.0\.1") as caught:
            async with server.serve("/hook", Platform().handle):
                pass
    assert "http.port" in caught.value.hint
    async with server.serve("/hook", Platform().handle):
        pass  # the port is free now
    await server.close()


async def test_an_answer_says_nothing_of_what_serves_it(web: WebServer) -> None:
    platform = Platform(reply=WebhookReply(body=json.dumps({}).encode()))
    async with web.serve("/hook", platform.handle) as url:
        _, headers, _ = await platform.send(url)
    assert headers["server"] == "nanobot"


async def test_bodies_that_trickle_in_keep_nobody_out(web: WebServer) -> None:
    platform = Platform()
    async with web.serve("/hook", platform.handle) as url:
        slow = [await connect(url) for _ in range(100)]
        head = f"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_BODY}\r\n\r\nx"
        for _, writer in slow:
            writer.write(head.encode())
        assert (await answer(slow[0][0]))[0] == 408  # the first that came is the first that goes
        assert (await platform.send(url, body=b"hello"))[0] == 200
        for _, writer in slow:
            writer.close()
    assert [request.body for request in platform.seen] == [b"hello"]
