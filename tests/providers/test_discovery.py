"""Servers on this machine: those that serve models are found, whatever else listens."""

from __future__ import annotations

import asyncio

from nanobot.providers.discovery import LocalServer, find_local_servers
from tests.doubles.openai.server import MODEL, FakeOpenAI


async def test_only_what_serves_models_is_found() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-nothing\r\n")
        writer.close()

    other = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    gone = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (other, gone)]
    gone.close()
    await gone.wait_closed()
    async with other, FakeOpenAI() as server:
        port = int(server.base_url.rpartition(":")[2].partition("/")[0])
        places = (("Other", ports[0]), ("Gone", ports[1]), ("Ours", port))
        found = await find_local_servers(places, seconds=20.0)
    assert found == (LocalServer("Ours", server.base_url, (MODEL,)),)
