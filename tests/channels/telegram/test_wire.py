"""Connections that are cut end at once, whatever their requests are at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from nanobot_telegram.failures import MaybeSent
from nanobot_telegram.wire import Connections


class SilentServer:
    """Takes connections and never says anything; notes when one came and when it ended."""

    def __init__(self) -> None:
        self.came, self.ended = asyncio.Event(), asyncio.Event()
        self.address = ""

    async def hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read to the end."""
        while await reader.read(1_000):
            self.came.set()
        self.ended.set()
        writer.close()


@pytest.fixture
async def silent() -> AsyncIterator[SilentServer]:
    holder = SilentServer()
    server = await asyncio.start_server(holder.hold, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    holder.address = f"{host}:{port}"
    yield holder
    server.close()
    await server.wait_closed()


class Connecting(httpx.AsyncBaseTransport):
    """A network on which connecting takes for ever; closing it stops nothing."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Connect."""
        self.began.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def given_up(connections: Connections, url: str) -> None:
    """Make a request that is cut."""
    with pytest.raises(MaybeSent, match="given up"):
        async with connections.one() as client:
            await client.get(url)


async def test_cutting_ends_a_request_that_waits_for_its_answer(silent: SilentServer) -> None:
    client = httpx.AsyncClient(trust_env=False, timeout=30.0)
    connections = Connections(lambda: client, 30.0)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(given_up(connections, f"http://{silent.address}/"))
        await silent.came.wait()
        await connections.cut()
        await silent.ended.wait()
    assert client.is_closed


async def test_cutting_ends_a_request_that_still_connects() -> None:
    network = Connecting()
    client = httpx.AsyncClient(transport=network)
    connections = Connections(lambda: client, 30.0)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(given_up(connections, "http://127.0.0.1/"))
        await network.began.wait()
        await connections.cut()
    assert client.is_closed


async def test_cutting_closes_what_is_idle(silent: SilentServer) -> None:
    client = httpx.AsyncClient(trust_env=False)
    connections = Connections(lambda: client, 30.0)
    async with connections.one():
        pass
    assert not client.is_closed
    await connections.cut()
    assert client.is_closed


async def test_a_request_that_runs_out_of_its_own_time_is_not_one_that_was_cut(
    silent: SilentServer,
) -> None:
    client = httpx.AsyncClient(trust_env=False)
    connections = Connections(lambda: client, 30.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), connections.one() as one:
            await one.get(f"http://{silent.address}/")
    assert not client.is_closed  # another request may have it
    await connections.cut()
