"""All MCP servers of the owner, their tools for the agent, and the operations on them.

Invariant: exactly the accepted tools are registered. Known tools are offered without starting their
server. Starting nanobot waits for no server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loguru import logger
from msgspec import Struct
from msgspec.structs import asdict, astuple

from nanobot.bus.state import StateStore
from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.commands import text_argument
from nanobot.errors import NanobotError, StorageError
from nanobot.tasks import Background
from nanobot.text import printable
from nanobot.tooling import Arguments, Repeatable, Risk, Tool, ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.mcp.connections import Connections
from nanobot.tools.mcp.server import ServerRunner
from nanobot.tools.mcp.values import (
    Ledger,
    McpError,
    McpServer,
    ToolDescription,
    ToolListing,
    fit_budget,
    name_of_tool,
)


class McpArguments(Arguments, frozen=True):
    """Arguments of any form. The server validates them against its schema."""

    values: dict[str, Any]

    @classmethod
    def prepare(cls, given: object) -> object:
        """Wrap all arguments in one value."""
        return {"values": given}


class McpTool(Tool):
    """A server's tool. Its results are untrusted. It has effects unless the owner trusts the server
    on that, and is only for the owner unless the entry allows others."""

    arguments = McpArguments

    def __init__(self, server: McpServer, described: ToolDescription, servers: McpServers) -> None:
        self.server, self.described, self._servers = server, described, servers
        self.name = name_of_tool(server.name, described.name)
        self.description = (
            described.description or f"{described.name} of the MCP server {server.name}"
        )
        self.parameters = described.parameters()
        self.effects = not (server.trust_read_only and described.read_only)
        self.owners_only = server.people == "owner"

    async def risk(self, arguments: McpArguments, _: TurnContext) -> Risk | None:
        """Return the risk that a third-party program gets these arguments."""
        if not self.effects:
            return None
        given = json.dumps(arguments.values, indent=2, ensure_ascii=False)
        called = f"{printable(self.described.name)} on the MCP server {printable(self.server.name)}"
        return Risk("mcp", "call an MCP server's tool", f"{called}\n{given}")

    async def repeatable(self, arguments: McpArguments, caller: TurnContext) -> Repeatable | None:
        """Cover each call while the description and the server's program stay the same. Return
        None for a program that the agent could change."""
        server, described = self.server, self.described
        program = await asyncio.to_thread(self._servers.program_digest, server)
        if not program:
            return None
        how = json.dumps([program, *astuple(described)])
        return Repeatable(
            f"mcp:{server.name}/{described.name}",
            hashlib.sha256(how.encode("utf-8", "backslashreplace")).hexdigest(),
            f"every call of {printable(described.name)} on the MCP server "
            f"{printable(server.name)}, with any arguments",
            own_results=f"tool:{self.name}",
        )

    async def __call__(self, arguments: McpArguments, caller: TurnContext) -> ToolResult:
        # Lone surrogates can't be sent. Nothing else changes.
        text = json.dumps(arguments.values, ensure_ascii=False)
        given = json.loads(text.encode("utf-8", "replace"))
        return await self._servers.call(self.server, self.described, given)


class ServerState(Struct, frozen=True):
    """The state of a server. `listing` is None before the first listing. `names` are the offered
    names of its tools."""

    server: McpServer
    listing: ToolListing | None
    names: tuple[str, ...]
    runs: bool
    problem: str

    def as_json(self) -> dict[str, object]:
        """Return the fields for `nanobot mcp …`."""
        server, listing = self.server, self.listing or ToolListing("")
        wanted = [c for c in listing.available if not server.tools or c.name in server.tools]
        return {
            "name": server.name,
            "where": server.location,
            "sandbox": bool(server.command) and server.sandbox,
            "people": server.people,
            "known": self.listing is not None,
            "running": self.runs,
            "trouble": self.problem,
            "tools": list(self.names),
            "left_out": len(wanted) - len(self.names),
            "waiting": [described.name for described in listing.waiting],
            "needs_tasks": [c.name for c in listing.listed if c.needs_tasks],
        }


class McpServers:
    """Manages the servers, whose names differ. `registry` gets their tools, `store` has their
    ledger, and `tell` sends the owner a text, once per key (may raise `StorageError`). `added`
    finds a server that was configured later (blocks, may raise `NanobotError`). The agent can write
    to `agents`, in addition to the servers' writable folders."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        connections: Connections,
        registry: ToolRegistry,
        store: StateStore,
        clock: Clock,
        tell: Callable[[str, str], Awaitable[None]] | None = None,
        added: Callable[[str], McpServer | None] | None = None,
        agents: tuple[Path, ...] = (),
    ) -> None:
        self._agents = agents
        self._tell, self._added = tell, added
        self._connections, self._registry, self._clock = connections, registry, clock
        self._ledger = Ledger(store)
        self._servers: dict[str, McpServer] = {}
        self._running: dict[str, ServerRunner] = {}
        for server in servers:
            self._add(server)
        self._listings: dict[str, ToolListing] = {}
        self._saved: Mapping[str, ToolListing] = {}
        self._offered: dict[str, McpTool] = {}
        self._background = Background()
        self._saving = asyncio.Lock()

    @property
    def problem(self) -> str:
        """Fault of the state file, or an empty text."""
        return self._ledger.problem

    def _add(self, server: McpServer) -> None:
        name = server.name
        self._servers[name] = server
        listed = partial(self._update_listing, name)
        self._running[name] = ServerRunner(server, self._connections, self._clock, listed)

    def load(self) -> None:
        """Offer the known tools. Reads one small file and starts nothing."""
        if self._servers:
            self._merge(self._ledger.load())

    def _merge(self, saved: Mapping[str, ToolListing]) -> None:
        self._saved = saved
        known = {
            name: listing
            for name, listing in saved.items()
            if name in self._servers and listing.identity == self._servers[name].identity
        }
        self._listings = known | self._listings  # newer listings win
        self._offer()

    def start(self) -> None:
        """List the tools of unknown servers in the background, and notify the owner of pending
        tools."""
        for name in self._servers:
            self._background.start(self._look_at(name), name=f"look at the mcp server {name}")

    async def close(self, grace: float = 5.0) -> None:
        """End all programs, within `grace` seconds or slightly more."""
        self._background.cancel()
        await asyncio.gather(*(running.stop(grace) for running in self._running.values()))
        await self._background.drain(grace)

    def program_digest(self, server: McpServer) -> str:
        """Return a digest of a server's program, or "" if the agent could change it. Blocks."""
        home = self._connections.home_of(server)
        writable = (path for one in self._servers.values() for path in one.writable)
        return server.program_digest(home, (*self._agents, *writable))

    def tools(self) -> tuple[McpTool, ...]:
        return tuple(self._offered.values())

    def table(self) -> Mapping[str, Operation]:
        """Return the operations for `nanobot mcp …`, by name. Only the owner of the home can call
        them. A server's descriptions are shown in full and as untrusted content. All but `mcp.list`
        take a `server`, and `mcp.approve` the `digest` of the reviewed tools."""

        async def approve(given: Mapping[str, object]) -> object:
            name, digest = text_argument(given, "server"), text_argument(given, "digest")
            return (await self.accept(name, digest)).as_json()

        async def check(given: Mapping[str, object]) -> object:
            return (await self.check(text_argument(given, "server"))).as_json()

        async def list_servers(_: Mapping[str, object]) -> object:
            states = [self.state(name).as_json() for name in self._servers]
            return {"servers": states, "trouble": self.problem}

        return {
            "mcp.list": list_servers,
            "mcp.check": check,
            "mcp.waiting": self._show_waiting,
            "mcp.approve": approve,
        }

    async def _show_waiting(self, given: Mapping[str, object]) -> object:
        """Return the pending tools before and after their change. `digest` identifies them and is
        empty if there are none. A server without a listing is started."""
        name = text_argument(given, "server")
        await self._find(name)
        listing = self.state(name).listing or (await self.check(name)).listing or ToolListing("")
        before = {described.name: asdict(described) for described in listing.accepted}
        waiting = [
            {"name": described.name, "before": before.get(described.name), "now": asdict(described)}
            for described in listing.waiting
        ]
        return {"server": name, "digest": listing.digest, "waiting": waiting}

    def state(self, name: str) -> ServerState:
        """Return the state of a server. Raise `NanobotError` for an unknown name."""
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(self._servers) or "none"
            raise NanobotError(
                f"there is no MCP server {name!r}", hint=f"config.yaml has: {known}."
            )
        running = self._running[name]
        names = tuple(sorted(n for n, tool in self._offered.items() if tool.server is server))
        return ServerState(server, self._listings.get(name), names, running.runs, running.problem)

    async def check(self, name: str) -> ServerState:
        """Start a server if necessary and list its tools. Raise `NanobotError`."""
        await self._find(name)
        self.state(name)
        await self._refresh(name)
        return self.state(name)

    async def _find(self, name: str) -> None:
        """Add a server that was configured after the start, if this name is unknown."""
        if name not in self._servers and self._added is not None:
            server = await asyncio.to_thread(self._added, name)
            if server is None:
                return
            async with self._saving:
                saved = await asyncio.to_thread(self._ledger.load)
                if name not in self._servers:
                    self._add(server)
                    self._merge(saved)

    async def accept(self, name: str, digest: str) -> ServerState:
        """Accept the pending tools of a server if they match `digest`.

        Raise `NanobotError` if they differ, or `StorageError`. Then nothing is accepted."""
        listing = self.state(name).listing
        if listing is None or not listing.waiting:
            raise NanobotError(f"the MCP server {name} has no tools to accept")
        if listing.digest != digest:
            raise NanobotError(f"{name}'s tools have changed again", hint="Review them again.")
        before, self._listings[name] = listing, listing.accept()
        try:
            await self._save()
        except StorageError:
            self._listings[name] = before  # in memory as on disk
            raise
        self._offer()
        return self.state(name)

    async def call(
        self, server: McpServer, described: ToolDescription, arguments: dict[str, Any]
    ) -> ToolResult:
        running = await self._refresh(server.name)
        listing = self._listings.get(server.name)
        if listing is None or described not in listing.available:
            raise McpError(
                f"{described.name} of the MCP server {server.name} was not called. It is "
                "gone, or has changed since the owner accepted it",
                hint=f"Ask the owner to review it with `nanobot mcp approve {server.name}`.",
            )
        return await running.call(described.name, arguments)

    async def _look_at(self, name: str) -> None:
        try:
            if name not in self._listings:
                await self.check(name)
            listing = self._listings[name]
            if listing.waiting and self._tell is not None:
                await self._tell(report_pending(name, listing), f"mcp-{name}-{listing.digest}")
        except NanobotError as error:
            logger.warning("can't check the MCP server {}: {}", name, error)

    def _update_listing(self, name: str, tools: tuple[ToolDescription, ...]) -> None:
        known = self._listings.get(name)
        listing = (known or ToolListing(self._servers[name].identity)).update(tools)
        if listing == known:
            return
        self._listings[name] = listing
        if listing.waiting:
            logger.warning("{}", report_pending(name, listing))
        self._offer()

    def _offer(self) -> None:
        """Register exactly the offered tools."""
        now: dict[str, McpTool] = {}
        for name, server in self._servers.items():
            offered = self._listings.get(name, ToolListing("")).available
            for described in fit_budget(offered, server.tools):
                tool = McpTool(server, described, self)
                # If two names collide, the tool with exactly this name wins.
                if tool.name not in now or tool.name == f"{name}__{described.name}":
                    now[tool.name] = tool
        if list_descriptions(now) == list_descriptions(self._offered):
            return
        for name in self._offered:
            self._registry.withdraw(name)
        self._offered = {}
        for name, tool in now.items():
            try:
                self._registry.register(tool)
            except ValueError as error:
                logger.warning("a tool of the MCP server {}: {}", tool.server.name, error)
            else:
                self._offered[name] = tool

    async def _save(self) -> None:
        async with self._saving:
            listings = {**self._saved, **self._listings}
            if listings != self._saved:
                await asyncio.to_thread(self._ledger.save, listings)
                self._saved = listings

    async def _refresh(self, name: str) -> ServerRunner:
        """List a server's tools. If the listing can't be stored, it will be requested again. Raise
        `McpError`."""
        await self._running[name].ready()
        try:
            await self._save()
        except StorageError as error:
            logger.warning("can't save the MCP servers' tool lists: {}", error)
        return self._running[name]


def list_descriptions(tools: Mapping[str, McpTool]) -> list[object]:
    return [(name, tool.server, tool.described) for name, tool in tools.items()]


def report_pending(name: str, listing: ToolListing) -> str:
    tools = f"{len(listing.waiting)} new or changed tool{'s' if len(listing.waiting) > 1 else ''}"
    return (
        f"The MCP server {name} has {tools}. To review and accept them, run `nanobot mcp "
        f"approve {name}` in a terminal."
    )
