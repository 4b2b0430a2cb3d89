"""The HTTP client of adapters: an aborted request ends in any state."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from nanobot.channel import WRITING
from nanobot.channel.http import HttpClient, HttpFault, Unconfirmed, Unsent


@pytest.mark.parametrize("steps", range(0, 60, 2))
async def test_no_connection_outlives_the_client_that_was_opening_it(steps: int) -> None:
    open_, gone = set[object](), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await reader.read()
        writer.close()
        open_.discard(writer)
        if not open_:
            gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = HttpClient("secret")
        asking = asyncio.ensure_future(client.request("GET", f"http://127.0.0.1:{port}/", 5, 10))
        for _ in range(steps):
            await asyncio.sleep(0)
        await client.close()
        with contextlib.suppress(HttpFault):
            await asking
        if open_:
            await asyncio.wait_for(gone.wait(), 5)


async def test_no_more_connections_than_are_allowed_are_open_at_once() -> None:
    open_now, most, full, go = 0, 0, asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now == 3:
            full.set()
        while await reader.readline() not in (b"", b"\r\n"):
            pass
        await go.wait()
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        open_now -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    client = HttpClient("secret", most=3)
    asked = [asyncio.ensure_future(client.request("GET", url, 30.0, 1_000)) for _ in range(8)]
    await full.wait()
    go.set()
    assert [answer.status for answer in await asyncio.gather(*asked)] == [204] * 8
    assert most == 3
    await client.close()
    server.close()


async def test_what_sends_hears_when_the_request_is_about_to_be_written_and_not_before() -> None:
    told, known_at_arrival = list[str](), list[list[str]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        known_at_arrival.append(list(told))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    client = HttpClient("secret")
    before = WRITING.set(lambda: told.append("writing"))
    await client.request("POST", url, 5, 10)
    assert (told, known_at_arrival) == (["writing"], [["writing"]])
    server.close()
    await server.wait_closed()
    with pytest.raises(Unsent):
        await client.request("POST", url, 5, 10)
    assert told == ["writing"]
    WRITING.reset(before)
    await client.close()


async def test_who_asks_a_proxy_for_a_connection_has_not_written_the_request() -> None:
    told = list[str]()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient("secret", proxy=f"http://127.0.0.1:{port}")
    before = WRITING.set(lambda: told.append("writing"))
    with pytest.raises(Unsent):
        await client.request("POST", "https://platform.test/", 5, 10)
    WRITING.reset(before)
    assert told == []
    await client.close()
    server.close()


@pytest.mark.parametrize(("size", "failure"), [(10, Unconfirmed), (20_000_000, Unsent)])
async def test_a_request_that_broke_off_while_it_was_written_did_not_arrive(
    size: int, failure: type[HttpFault]
) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"x" * 10)
        writer.transport.abort()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    client = HttpClient("secret")
    with pytest.raises(HttpFault) as failed:
        await client.request("POST", url, 20, 10, json="x" * size)
    assert type(failed.value) is failure
    await client.close()
    server.close()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The address of a server."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_a_request_is_made_once_even_if_it_has_no_effect() -> None:
    requests = list[bytes]()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with serving(hang_up) as url:
        client = HttpClient("secret")
        with pytest.raises(Unconfirmed):
            await client.request("GET", url, 5, 10)
        await client.close()
    assert len(requests) == 1


async def test_what_a_server_says_unasked_answers_no_request() -> None:
    connections, said = 0, asyncio.Event()

    async def give_up_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            said.set()
            await reader.read()
        writer.close()

    async with serving(give_up_waiting) as url:
        client = HttpClient("secret")
        for _ in range(3):
            said.clear()
            assert (await client.request("GET", url, 5, 10)).body == b"ok"
            await said.wait()
            await asyncio.sleep(0.05)
        await client.close()
    assert connections == 3


async def test_a_signed_address_is_asked_for_as_it_is_written() -> None:
    asked = list[bytes]()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    paths = ["f%7e/x?hash=AT%2Bx%3D%2F~a%7E&t=%3a,", "?a=1", "f le/ü", "", "a/../b"]
    async with serving(note) as url:
        client = HttpClient("secret")
        for path in paths:
            await client.request("GET", f"{url}{path}", 5, 10)
        await client.request("GET", f"{url[:-1]}?a", 5, 10, params={"b": "c d"})
        await client.close()
    signed, *others = asked
    assert signed == f"/{paths[0]}".encode()
    assert others == [b"/?a=1", b"/f%20le/%C3%BC", b"/", b"/b", b"/?a&b=c+d"]


async def test_an_answer_is_taken_as_it_comes() -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Encoding: gzip\r\n"
        writer.write(head + b"Retry-After: 7\r\nContent-Length: 4\r\n\r\nfour")
        writer.close()

    async with serving(redirect) as url:
        client = HttpClient("secret")
        answer = await client.request("GET", url, 5, 10)
        await client.close()
    assert (answer.status, answer.body, answer.retry_after) == (302, b"four", "7")


async def test_a_form_has_its_length_and_any_name_of_a_file(tmp_path: Path) -> None:
    received = asyncio.Queue[bytes]()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        received.put_nowait(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    (tmp_path / "file").write_bytes(b"a" * 150_000 + b"z")
    async with serving(read) as url:
        client = HttpClient("secret")
        with (tmp_path / "file").open("rb") as file:
            files = {"document": ('grün "1"\r\n.txt', file, "text/plain")}
            await client.request("POST", url, 5, 10, data={"chat_id": "7"}, files=files)
        await client.close()
    head, _, body = received.get_nowait().partition(b"\r\n\r\n")
    boundary = head.partition(b"boundary=")[2].partition(b"\r\n")[0]
    assert body.decode().replace("a" * 150_000, "a…").split(f"--{boundary.decode()}") == [
        "",
        '\r\nContent-Disposition: form-data; name="chat_id"\r\n\r\n7\r\n',
        '\r\nContent-Disposition: form-data; name="document"; filename="grün %221%22%0D%0A.txt"'
        "\r\nContent-Type: text/plain\r\n\r\na…z\r\n",
        "--\r\n",
    ]


class Shrinking(io.BytesIO):
    """A file that becomes shorter while it is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size) if self.tell() == 0 else b""


async def test_a_file_that_becomes_shorter_is_not_sent() -> None:
    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with serving(read) as url:
        client = HttpClient("secret")
        files = {"document": ("x", Shrinking(b"x" * 200_000), "text/plain")}
        with pytest.raises(Unsent, match="became shorter"):
            await client.request("POST", url, 5, 10, files=files)
        await client.close()


async def test_a_server_that_reads_nothing_does_not_hold_up_the_end() -> None:
    connected, ended, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await ended.wait()
        writer.transport.abort()
        gone.set()

    async with serving(wait) as url:
        client = HttpClient("secret")
        asked = asyncio.ensure_future(client.request("POST", url, 60, 10, json="x" * 20_000_000))
        await connected.wait()
        async with asyncio.timeout(10):
            await client.close()
            with pytest.raises(Unsent):
                await asked
        ended.set()
        await gone.wait()
