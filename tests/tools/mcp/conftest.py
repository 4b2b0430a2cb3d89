"""A gate with MCP servers: real programs, really started, with the test's clock."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nanobot.messages import ToolCall
from nanobot.security.egress import Egress
from nanobot.security.sandbox import FoundSandbox
from nanobot.testing.clock import FakeClock
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.mcp.connections import Connections
from nanobot.tools.mcp.servers import McpServers
from nanobot.tools.mcp.values import McpServer
from tests.doubles.state import MemoryState

OWNER = TurnContext("cli", "me", "cli:me", "turn-1")
PROGRAM = Path(__file__).parent / "program.py"


class McpKit:
    """One home. `folder` belongs to the little program."""

    def __init__(self, place: Path) -> None:
        self.home, self.folder = place / "home", place / "little"
        self.workspace = place / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.folder.mkdir()
        self.clock, self.state = FakeClock(), MemoryState()
        self.little = McpServer(
            "little", sys.executable, ("-S", "-I", str(PROGRAM), str(self.folder)), sandbox=False
        )

    @property
    def starts(self) -> int:
        """Return the number of starts of the little program."""
        file = self.folder / "starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def describe(self, text: str) -> None:
        """Change the description of `echo`."""
        (self.folder / "description").write_text(text)

    @asynccontextmanager
    async def open(self, *servers: McpServer) -> AsyncIterator[Gate]:
        """Open a nanobot with these servers (default: the little one)."""
        gate = Gate(self, servers or (self.little,))
        gate.servers.load()
        try:
            yield gate
        finally:
            await gate.servers.close()

    @asynccontextmanager
    async def open_known(self, **changes: Any) -> AsyncIterator[Gate]:
        """Open a nanobot with the little server's tools listed and accepted."""
        async with self.open(replace(self.little, **changes)) as gate:
            await accept(gate.servers, "little")
            yield gate

    @asynccontextmanager
    async def open_rested(self) -> AsyncIterator[Gate]:
        """Open a nanobot that knows the little server's tools but has not started it."""
        async with self.open_known():
            pass
        (self.folder / "starts").unlink()
        async with self.open() as gate:
            yield gate


class Gate:
    """The registry as a model sees it. `told` holds the messages to the owner, by name."""

    def __init__(self, kit: McpKit, servers: tuple[McpServer, ...]) -> None:
        self.registry, self.told = ToolRegistry(), dict[str, str]()
        connections = Connections(kit.home / "mcp", no_sandbox, Egress())
        self.servers = McpServers(
            *(servers, connections, self.registry, kit.state, kit.clock, self._tell),
            agents=(kit.workspace,),
        )

    async def _tell(self, text: str, name: str) -> None:
        self.told[name] = text

    async def call(self, name: str, caller: TurnContext = OWNER, **arguments: object) -> ToolResult:
        """Call a tool as a model does."""
        return await self.registry.call(ToolCall("1", name, json.dumps(arguments)), caller)

    @property
    def names(self) -> list[str]:
        """Return the offered tools."""
        return [spec.name for spec in self.registry.specs()]


async def accept(servers: McpServers, name: str) -> None:
    """Review and accept a server's tools, as the owner does."""
    listing = (await servers.check(name)).listing
    if listing is not None and listing.waiting:
        await servers.accept(name, listing.digest)


async def no_sandbox() -> FoundSandbox:
    return FoundSandbox(None, "none here")


async def until(condition: Callable[[], bool]) -> None:
    """Run other tasks until the condition holds."""
    while not condition():  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0)


@pytest.fixture
def kit(disk_path: Path) -> McpKit:
    return McpKit(disk_path)
