"""A fake server stops at once: every accepted connection is closed."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.server import PATIENCE
from tests.doubles.telegram.server import FakeTelegram


@pytest.mark.parametrize("turns", range(6), ids="after {} turns of the loop".format)
@pytest.mark.parametrize("kind", [FakeTelegram, FakeGraphAPI, FakeOpenAI])
async def test_a_connection_of_the_last_moment_is_closed_too(
    kind: type[FakeTelegram | FakeGraphAPI | FakeOpenAI], turns: int
) -> None:
    async with kind() as server:
        client = socket.create_connection(("127.0.0.1", urlsplit(server.base_url).port or 0))
        for _ in range(turns):
            await asyncio.sleep(0)
    with client:
        client.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionResetError):  # connections never accepted end like this
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
