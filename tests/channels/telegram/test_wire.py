"""Aborted connections end at once, in any state of their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nanobot_telegram.client import MaybeSent, NotSent, Wire


class SilentServer:
    """Accepts connections without ever answering, and records their beginnings and ends."""

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
    holder.address = f"http://{host}:{port}/"
    yield holder
    server.close()
    await server.wait_closed()


async def make_cut_request(wire: Wire, url: str) -> None:
    """Make a request that is aborted."""
    with pytest.raises(MaybeSent):
        await wire.post(url, {})


@pytest.mark.parametrize("is_new", [False, True])
async def test_cutting_ends_a_request_that_waits_for_its_answer(
    silent: SilentServer, is_new: bool
) -> None:
    wire = Wire("1:secret", "", answer_bytes=100, seconds=30.0)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(make_cut_request(wire, silent.address))
        await silent.came.wait()
        await (wire.renew() if is_new else wire.aclose())
        await silent.ended.wait()
    await wire.aclose()


async def test_after_the_end_nothing_is_sent(silent: SilentServer) -> None:
    wire = Wire("1:secret", "", answer_bytes=100, seconds=30.0)
    await wire.aclose()
    with pytest.raises(NotSent):
        await wire.post(silent.address, {})
    assert not silent.came.is_set()
