"""Remote servers: the SDK's own server, through egress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from starlette.types import ASGIApp
from uvicorn import Config, Server

from nanobot.errors import NanobotError
from nanobot.messages import ToolCall
from nanobot.security.egress import Egress
from nanobot.testing.clock import FakeClock
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.mcp.connections import Connections
from nanobot.tools.mcp.servers import McpServers
from nanobot.tools.mcp.values import McpServer
from tests.doubles.server import Served
from tests.doubles.state import MemoryState
from tests.tools.mcp.conftest import OWNER, accept, no_sandbox, until


@asynccontextmanager
async def reaching(
    url: str, home: Path, egress: Egress | None = None
) -> AsyncIterator[tuple[McpServers, ToolRegistry]]:
    registry, clock = ToolRegistry(), FakeClock()
    connections = Connections(home / "mcp", no_sandbox, egress or Egress())
    entry = McpServer("far", url=url, headers={"Authorization": "Bearer for-this-server"})
    servers = McpServers([entry], connections, registry, MemoryState(), clock)
    servers.load()
    try:
        yield servers, registry
    finally:
        await servers.close()


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[str]:
    server = Server(Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="on"))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve())
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = server.force_exit = True


async def test_a_server_on_the_network_is_listed_and_called(tmp_path: Path) -> None:
    from mcp.server.mcpserver import MCPServer

    far = MCPServer("far")

    @far.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with (
        listening(far.streamable_http_app()) as url,
        reaching(url, tmp_path) as (servers, registry),
    ):
        await accept(servers, "far")
        for _ in range(2):
            result = await registry.call(ToolCall("1", "far__add", '{"a": 2, "b": 3}'), OWNER)
            assert (result.text, result.is_error) == ("5", False)
        result = await registry.call(ToolCall("1", "far__add", '{"a": "x"}'), OWNER)
        assert result.is_error


async def test_an_address_inside_is_refused_unless_the_entry_itself_names_it(
    tmp_path: Path,
) -> None:
    async def inside(_: str) -> list[IPv4Address]:
        return [IPv4Address("127.0.0.1")]

    egress = Egress(resolve=inside)
    async with reaching("http://inside.example:9/mcp", tmp_path, egress) as (servers, _):
        with pytest.raises(NanobotError, match="not on the public Internet"):
            await servers.check("far")
    async with reaching("http://127.0.0.1:9/mcp", tmp_path, egress) as (servers, _):
        with pytest.raises(NanobotError, match="could not connect"):
            await servers.check("far")


class RemoteServer:
    """A server with sessions, without the SDK."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.endless = False
        self.methods: list[str] = []
        self.odd: list[object] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.methods.append(request.method)
        question = await request.json() if request.can_read_body else {}
        session, method = request.headers.get("mcp-session-id"), question.get("method")
        if method == "initialize":
            self.sessions.append(f"s{len(self.sessions)}")
            return self._result(question, self._welcome(), {"mcp-session-id": self.sessions[-1]})
        if not self.sessions or session != self.sessions[-1]:
            return web.Response(status=404)
        if self.endless:
            return await self._without_end(request)
        if method == "tools/list":
            return self._result(
                question, {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
            )
        if method == "tools/call":
            parts = [{"type": "text", "text": session}, *self.odd]
            return self._result(question, {"content": parts})
        return web.Response(status=202)

    @staticmethod
    def _welcome() -> dict[str, object]:
        info = {"name": "far", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}

    @staticmethod
    def _result(
        question: dict[str, Any], result: object, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        body = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        return web.json_response(body, headers=headers)

    @staticmethod
    async def _without_end(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" " * 1_000_000)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/mcp", self.answer)
        served = await Served.start(app, shutdown_timeout=0)
        try:
            yield f"http://127.0.0.1:{served.port}/mcp"
        finally:
            await served.stop()


async def test_an_endless_answer_is_cut_and_no_other_stream_is_opened(tmp_path: Path) -> None:
    far = RemoteServer()
    far.endless = True
    async with far.listening() as url, reaching(url, tmp_path) as (servers, _):
        with pytest.raises(NanobotError, match="more than 24,000,000 bytes"):
            await servers.check("far")
    assert "GET" not in far.methods


async def test_an_odd_part_of_an_answer_costs_itself_alone(tmp_path: Path) -> None:
    far = RemoteServer()
    far.odd = [{"type": "hologram"}, 7]
    async with far.listening() as url, reaching(url, tmp_path) as (servers, registry):
        await accept(servers, "far")
        result = await registry.call(ToolCall("1", "far__add", "{}"), OWNER)
    assert not result.is_error
    assert result.text.startswith("s0\n\n")
    assert "hologram" in result.text


async def test_a_server_that_has_forgotten_us_is_met_anew_at_the_next_call(tmp_path: Path) -> None:
    far = RemoteServer()
    async with far.listening() as url, reaching(url, tmp_path) as (servers, registry):
        await accept(servers, "far")
        call = ToolCall("1", "far__add", "{}")
        assert (await registry.call(call, OWNER)).text == "s0"
        far.sessions.append("another")
        assert (await registry.call(call, OWNER)).is_error
        assert (await registry.call(call, OWNER)).text == "s2"
