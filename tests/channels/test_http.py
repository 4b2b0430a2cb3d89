"""The HTTP client of adapters: an aborted request ends in any state."""

from __future__ import annotations

import asyncio
import contextlib

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
        await client.request("POST", url, 20, 10, content=b"x" * size)
    assert type(failed.value) is failure
    await client.close()
    server.close()
