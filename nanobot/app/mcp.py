"""The MCP servers of a home, from its settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.clock import Clock
from nanobot.config.mcp import McpServerSettings
from nanobot.config.settings import Settings
from nanobot.security.egress import Egress
from nanobot.security.sandbox import Found, NetworkRelay, find_sandbox
from nanobot.tooling import Tool
from nanobot.tools.mcp import Connections, McpServer, McpServers, Programs, Registry

if TYPE_CHECKING:
    from nanobot.tools.mcp.web import Transport


def build_mcp(
    settings: Settings,
    registry: Registry,
    clock: Clock,
    tell: Callable[[str, str], Awaitable[None]] | None = None,
) -> McpServers:
    """The servers that are enabled; none of them is started. `tell` is as `McpServers` takes it."""
    home = settings.home
    programs = Programs(
        home / "mcp",
        _SandboxFinder(settings),
        lambda: NetworkRelay(_egress(settings)),
        guarded=(home,),
    )
    connections = Connections(programs, partial(_way, settings))
    servers = [
        _server(name, entry) for name, entry in settings.mcp.servers.items() if entry.enabled
    ]
    path = home / "state" / "mcp.json"
    return McpServers(servers, connections.open, registry, path, clock, tell)


class NoRegistry:
    """Where no model is there to be offered anything."""

    def register(self, tool: Tool) -> None:
        """See `Registry`."""

    def withdraw(self, name: str) -> None:
        """See `Registry`."""


class _SandboxFinder:
    """Finds the sandbox when it is first needed, and again as long as there is none.

    That the owner lets the shell run without one does not say that other people's programs may as
    well: the entry of a server says so for itself.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: Found | None = None

    async def __call__(self) -> Found:
        if self._found is None or self._found.sandbox is None:
            wanted = self._settings.tools.exec.sandbox
            self._found = await find_sandbox(
                "auto" if wanted == "none" else wanted, private=(self._settings.home,)
            )
        return self._found


def _egress(settings: Settings, *own: str) -> Egress:
    web = settings.tools.web
    return Egress(allow_hosts=(*web.allow_hosts, *own), proxy=web.proxy.get_secret_value())


def _way(settings: Settings, server: McpServer) -> Transport:
    """To the address that the owner wrote, even one of this machine; for this server alone."""
    own = (server.named_address,) if server.named_address else ()
    return _egress(settings, *own).transport()


def _server(name: str, entry: McpServerSettings) -> McpServer:
    return McpServer(
        name,
        command=entry.command,
        args=entry.args,
        env=entry.variables,
        paths=tuple(map(Path, entry.paths)),
        writable=tuple(map(Path, entry.writable)),
        network=entry.network,
        sandbox=entry.sandbox,
        url=entry.url,
        headers=entry.revealed_headers,
        tools=entry.tools,
        people=entry.people,
        trust_read_only=entry.trust_read_only,
        timeout_seconds=entry.timeout_seconds,
    )
