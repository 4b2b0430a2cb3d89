"""Memory for other agents, with the official MCP client over HTTP and over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from nanobot import __version__
from nanobot.testing import FakeClock, ScriptedModel
from nanobot_api.memory import NAME
from tests.channels.api.support import PERSON, Api, repeat
from tests.support import write_config

if TYPE_CHECKING:
    from mcp import ClientSession

pytestmark = pytest.mark.process

READING = {"search_memory", "memory_why", "recent_history"}


@contextlib.asynccontextmanager
async def over_http(api: Api, key: str) -> AsyncIterator[ClientSession]:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {key}"}
    url = f"http://127.0.0.1:{api.port}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        welcome = await session.initialize()
        assert (welcome.server_info.name, welcome.server_info.version) == (NAME, __version__)
        yield session


@contextlib.asynccontextmanager
async def over_stdio(home: Path, *arguments: str) -> AsyncIterator[ClientSession]:
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "nanobot", "--home", str(home), "mcp", "serve", *arguments],
        env={**os.environ},
    )
    async with (
        stdio_client(server) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        welcome = await session.initialize()
        assert (welcome.server_info.name, welcome.server_info.version) == (NAME, __version__)
        yield session


async def names(session: ClientSession) -> set[str]:
    return {tool.name for tool in (await session.list_tools()).tools}


async def call_tool(session: ClientSession, tool: str, **arguments: object) -> tuple[str, bool]:
    """Return the text of a tool, and True if it failed."""
    from mcp.types import CallToolResult, TextContent

    result = await session.call_tool(tool, dict(arguments))
    assert isinstance(result, CallToolResult)
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    return "\n".join(texts), bool(result.is_error)


def remember(home: Path, fact: str, scope: str = "") -> None:
    """Write a fact as a person would with an editor."""
    path = home / "workspace" / scope / "memory" / "MEMORY.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# Memory\n\n- {fact}\n")


async def test_over_http_a_key_sees_its_persons_memory_and_no_other(api: Api) -> None:
    guests = api.add_key("guest", PERSON)
    remember(api.home, "The owner's cat is called Mimi.")
    remember(api.home, "Robin's cat is called Felix.", "people/telegram_5")
    async with api.running(ScriptedModel(author=repeat)):
        async with over_http(api, api.key) as session:
            assert await names(session) == READING
            found, failed = await call_tool(session, "search_memory", text="cat")
            assert not failed
            assert "Mimi" in found
            assert "Felix" not in found
            why, failed = await call_tool(session, "memory_why", text="Mimi")
            assert not failed
            assert "Mimi" in why
        async with over_http(api, guests) as session:
            found, _ = await call_tool(session, "search_memory", text="cat")
            assert "Felix" in found
            assert "Mimi" not in found
            stolen, failed = await call_tool(session, "search_memory", text="cat", scope="owner")
            assert failed
            assert "Mimi" not in stolen
            said, failed = await call_tool(session, "search_memory", text="x" * 500_000)
            assert failed
            assert "at most 2,000 characters" in said
            await api.chat("My train leaves at noon.", conversation="me")
            other, _ = await call_tool(session, "search_memory", text="train")
            assert "noon" not in other


async def test_what_is_remembered_over_http_waits_where_the_key_allows_it(api: Api) -> None:
    writer = api.add_key("writer", writable=True)
    async with api.running(ScriptedModel(author=repeat)):
        async with over_http(api, api.key) as session:
            said, failed = await call_tool(session, "remember", text="Robin likes figs.")
            assert failed
            assert "only be read" in said
        async with over_http(api, writer) as session:
            assert await names(session) == {*READING, "remember"}
            said, failed = await call_tool(session, "remember", text="Robin likes figs.")
            assert not failed, said
    waiting = (api.home / "workspace" / "memory" / "pending.md").read_text()
    assert "Robin likes figs." in waiting
    assert "mcp:writer" in waiting
    facts = api.home / "workspace" / "memory" / "MEMORY.md"
    assert not facts.exists() or "figs" not in facts.read_text()


async def test_without_a_key_or_from_a_page_there_is_nothing_at_the_address(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)), httpx2.AsyncClient() as http:
        url = f"http://127.0.0.1:{api.port}/mcp"
        assert (await http.post(url, json={})).status_code == 401
        headers = {"Authorization": f"Bearer {api.key}", "Origin": "https://evil.example"}
        assert (await http.post(url, json={}, headers=headers)).status_code == 403


async def test_the_gateway_loads_nothing_of_it_before_somebody_asks(api: Api) -> None:
    loaded = {name for name in sys.modules if name.startswith("mcp.server.streamable")}
    for name in loaded:
        del sys.modules[name]
    async with api.running(ScriptedModel(author=repeat)):
        await api.chat("Hi")
        assert not any(name.startswith("mcp.server.streamable") for name in sys.modules)


@pytest.mark.parametrize("with_gateway", [False, True])
async def test_over_stdio_it_lists_searches_and_asks_why(api: Api, with_gateway: bool) -> None:
    remember(api.home, "The owner's cat is called Mimi.")
    write_config(api.home, api.config)
    async with contextlib.AsyncExitStack() as stack:
        if with_gateway:
            await stack.enter_async_context(api.running(ScriptedModel(author=repeat)))
        session = await stack.enter_async_context(over_stdio(api.home))
        assert await names(session) == READING
        found, failed = await call_tool(session, "search_memory", text="cat")
        assert not failed, found
        assert "Mimi" in found
        why, failed = await call_tool(session, "memory_why", text="Mimi")
        assert not failed, why
        assert "Mimi" in why
        recent, failed = await call_tool(session, "recent_history")
        assert not failed, recent
        _, failed = await call_tool(session, "remember", text="Robin likes figs.")
        assert failed


async def test_over_stdio_another_persons_memory_can_be_written_to_where_told(api: Api) -> None:
    write_config(api.home, api.config)
    async with over_stdio(api.home, "--person", PERSON, "--writable") as session:
        assert "remember" in await names(session)
        said, failed = await call_tool(session, "remember", text="Robin likes figs.")
        assert not failed, said
    waiting = api.home / "workspace" / "people" / "telegram_5" / "memory" / "pending.md"
    assert "Robin likes figs." in waiting.read_text()


async def test_a_request_for_memory_that_never_arrives_whole_is_given_up(api: Api) -> None:
    clock, key = FakeClock(), api.key
    async with api.running(ScriptedModel(), clock=clock):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        lines = (
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{api.port}",
            f"Authorization: Bearer {key}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "Content-Length: 1000",
            "Connection: close",
            "",
            "{",
        )
        writer.write("\r\n".join(lines).encode())
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            await clock.advance(100)
            await asyncio.wait([answer], timeout=0.05)
        assert answer.result().split()[1] == b"408"
        writer.close()
