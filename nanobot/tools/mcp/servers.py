"""All of the owner's MCP servers, which tools they give the agent, and what people ask of them.

Invariant: exactly the tools are registered that are as the owner accepted them; known ones are
offered without their server being started; nothing waits for a server when nanobot starts.
"""

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
    offered_name,
    within_budget,
)


class McpArguments(Arguments, frozen=True):
    """Whatever the server's schema asks for; the server judges it."""

    values: dict[str, Any]

    @classmethod
    def prepare(cls, given: object) -> object:
        """All of it is one value."""
        return {"values": given}


class McpTool(Tool):
    """A tool of a server, as the gate knows it. What comes back is nobody's word. It has effects
    unless the owner believes the server, and exists for the owner alone unless the entry says."""

    arguments = McpArguments

    def __init__(self, server: McpServer, described: ToolDescription, servers: McpServers) -> None:
        self.server, self.described, self._servers = server, described, servers
        self.name = offered_name(server.name, described.name)
        self.description = (
            described.description or f"{described.name} of the MCP server {server.name}"
        )
        self.parameters = described.parameters()
        self.effects = not (server.trust_read_only and described.read_only)
        self.owners_only = server.people == "owner"

    async def risk(self, arguments: McpArguments, _: TurnContext) -> Risk | None:
        """Somebody's program gets these arguments, and does with them what it likes."""
        if not self.effects:
            return None
        given = json.dumps(arguments.values, indent=2, ensure_ascii=False)
        called = f"{printable(self.described.name)} of the MCP server {printable(self.server.name)}"
        return Risk("mcp", "call a tool of an MCP server", f"{called}\n{given}")

    async def repeatable(self, arguments: McpArguments, caller: TurnContext) -> Repeatable | None:
        """Each call of this tool, for as long as it is described as now and its server's program
        is the same. None for a program that the agent could change."""
        server, described = self.server, self.described
        program = await asyncio.to_thread(self._servers.program_digest, server)
        if not program:
            return None
        how = json.dumps([program, *astuple(described)])
        return Repeatable(
            f"mcp:{server.name}/{described.name}",
            hashlib.sha256(how.encode("utf-8", "backslashreplace")).hexdigest(),
            f"each call of {printable(described.name)} of the MCP server "
            f"{printable(server.name)}, with any arguments",
            own_results=f"tool:{self.name}",
        )

    async def __call__(self, arguments: McpArguments, caller: TurnContext) -> ToolResult:
        # Lone surrogates cannot be sent; nothing else changes on this way.
        text = json.dumps(arguments.values, ensure_ascii=False)
        given = json.loads(text.encode("utf-8", "replace"))
        return await self._servers.call(self.server, self.described, given)


class ServerState(Struct, frozen=True):
    """How a server is doing. `listing` is None while it was never asked; `names` are those under
    which its tools are offered."""

    server: McpServer
    listing: ToolListing | None
    names: tuple[str, ...]
    runs: bool
    problem: str

    def as_json(self) -> dict[str, object]:
        """For `nanobot mcp …`."""
        server, listing = self.server, self.listing or ToolListing("")
        wanted = [c for c in listing.offered if not server.tools or c.name in server.tools]
        return {
            "name": server.name,
            "where": server.shown,
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
    """`servers` have different names. Their tools are offered in `registry`, `store` holds
    their ledger, and `tell` sends the owner a text, once for each name that goes with it; it may
    raise `StorageError`. `added` finds one that was set up since; it blocks, and may raise
    `NanobotError`. The agent can write in `agents`, and where a server can."""

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
        """What is wrong with the state file; empty where nothing is."""
        return self._ledger.problem

    def _add(self, server: McpServer) -> None:
        name = server.name
        self._servers[name] = server
        listed = partial(self._listed, name)
        self._running[name] = ServerRunner(server, self._connections, self._clock, listed)

    def load(self) -> None:
        """Offer the tools that are known. Reads one small file; starts nothing."""
        if self._servers:
            self._take_in(self._ledger.load())

    def _take_in(self, saved: Mapping[str, ToolListing]) -> None:
        self._saved = saved
        known = {
            name: listing
            for name, listing in saved.items()
            if name in self._servers and listing.identity == self._servers[name].identity
        }
        self._listings = known | self._listings
        self._offer()

    def start(self) -> None:
        """In the background, ask the servers whose tools are not known yet, and tell the owner what
        waits to be accepted."""
        for name in self._servers:
            self._background.start(self._look_at(name), name=f"look at the mcp server {name}")

    async def close(self, grace: float = 5.0) -> None:
        """End all programs, within `grace` seconds or a little more."""
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
        """The operations for `nanobot mcp …`, by name. Whoever reaches these is the owner of the
        home. What a server says about itself is shown whole, with nothing hidden in it, and never
        taken for more than its words. All but `mcp.list` take a `server`, and `mcp.approve` the
        `digest` of what was looked at."""

        async def approve(given: Mapping[str, object]) -> object:
            name, digest = text_argument(given, "server"), text_argument(given, "digest")
            return (await self.accept(name, digest)).as_json()

        async def check(given: Mapping[str, object]) -> object:
            return (await self.check(text_argument(given, "server"))).as_json()

        async def listed(_: Mapping[str, object]) -> object:
            states = [self.state(name).as_json() for name in self._servers]
            return {"servers": states, "trouble": self.problem}

        return {
            "mcp.list": listed,
            "mcp.check": check,
            "mcp.waiting": self._show_waiting,
            "mcp.approve": approve,
        }

    async def _show_waiting(self, given: Mapping[str, object]) -> object:
        """Which of its tools wait to be accepted, as they were and as they would be. `digest`
        stands for just that; it is empty where nothing waits. One that was never asked for its
        tools is started."""
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
        """How one is doing. Raises `NanobotError` where there is none of that name."""
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
        """Start one now, if it does not run, and see its tools. Raises `NanobotError`."""
        await self._find(name)
        self.state(name)
        await self._refresh(name)
        return self.state(name)

    async def _find(self, name: str) -> None:
        """Take in one that was set up since this nanobot began, if there is one of that name."""
        if name not in self._servers and self._added is not None:
            server = await asyncio.to_thread(self._added, name)
            if server is None:
                return
            async with self._saving:
                saved = await asyncio.to_thread(self._ledger.load)
                if name not in self._servers:
                    self._add(server)
                    self._take_in(saved)

    async def accept(self, name: str, digest: str) -> ServerState:
        """Accept what waits at a server, if it is exactly what `digest` stands for.

        Raises `NanobotError` where it is something else, and `StorageError`; nothing is accepted
        then.
        """
        listing = self.state(name).listing
        if listing is None or not listing.waiting:
            raise NanobotError(f"the MCP server {name} has no tools to accept")
        if listing.digest != digest:
            raise NanobotError(f"the tools of {name} have changed again", hint="Review them again.")
        before, self._listings[name] = listing, listing.accept()
        try:
            await self._save()
        except StorageError:
            self._listings[name] = before
            raise
        self._offer()
        return self.state(name)

    async def call(
        self, server: McpServer, described: ToolDescription, arguments: dict[str, Any]
    ) -> ToolResult:
        running = await self._refresh(server.name)
        listing = self._listings.get(server.name)
        if listing is None or described not in listing.offered:
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
                await self._tell(_waiting(name, listing), f"mcp-{name}-{listing.digest}")
        except NanobotError as error:
            logger.warning("can't check the MCP server {}: {}", name, error)

    def _listed(self, name: str, tools: tuple[ToolDescription, ...]) -> None:
        known = self._listings.get(name)
        listing = (known or ToolListing(self._servers[name].identity)).seen(tools)
        if listing == known:
            return
        self._listings[name] = listing
        if listing.waiting:
            logger.warning("{}", _waiting(name, listing))
        self._offer()

    def _offer(self) -> None:
        """Register what is to be offered, and only that."""
        now: dict[str, McpTool] = {}
        for name, server in self._servers.items():
            offered = self._listings.get(name, ToolListing("")).offered
            for described in within_budget(offered, server.tools):
                tool = McpTool(server, described, self)
                # Of two whose names come out the same, one that is really called so goes first.
                if tool.name not in now or tool.name == f"{name}__{described.name}":
                    now[tool.name] = tool
        if _described(now) == _described(self._offered):
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
        """Have a server's tools listed as they are now. What cannot be written down is asked for
        again another time. Raises `McpError`."""
        await self._running[name].ready()
        try:
            await self._save()
        except StorageError as error:
            logger.warning("can't save the tool lists of MCP servers: {}", error)
        return self._running[name]


def _described(tools: Mapping[str, McpTool]) -> list[object]:
    return [(name, tool.server, tool.described) for name, tool in tools.items()]


def _waiting(name: str, listing: ToolListing) -> str:
    tools = f"{len(listing.waiting)} new or changed tool{'s' if len(listing.waiting) > 1 else ''}"
    return (
        f"The MCP server {name} has {tools}. To review and accept them, run `nanobot mcp "
        f"approve {name}` in a terminal."
    )
