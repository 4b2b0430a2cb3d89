"""A tool of a server, as the gate knows it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict

from nanobot.security.names import printable
from nanobot.tooling import Arguments, Caller, Risk, ToolResult
from nanobot.tools.mcp.values import Card, McpServer


class McpArguments(Arguments):
    """Whatever the server's schema asks for; the server judges it."""

    model_config = ConfigDict(extra="allow", frozen=True)


Call = Callable[[McpServer, Card, dict[str, Any]], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class McpTool:
    """`call` calls it; what comes back is nobody's word."""

    name: str
    server: McpServer
    card: Card
    call: Call
    arguments: type[McpArguments] = McpArguments

    @property
    def description(self) -> str:
        """As the owner accepted it."""
        return self.card.description or f"{self.card.name} of the MCP server {self.server.name}"

    @property
    def parameters(self) -> dict[str, Any]:
        """The server's schema."""
        return self.card.parameters()

    @property
    def effects(self) -> bool:
        """Whether it may change something: always, unless the owner believes the server."""
        return not (self.server.trust_read_only and self.card.read_only)

    @property
    def parallel(self) -> bool:
        """Whether calls may run beside others."""
        return not self.effects

    @property
    def owners_only(self) -> bool:
        """Whether it exists for the owner alone."""
        return self.server.people == "owner"

    async def risk(self, arguments: McpArguments, _: Caller) -> Risk | None:
        """Somebody's program gets these arguments, and does with them what it likes."""
        if not self.effects:
            return None
        given = json.dumps(arguments.model_extra, indent=2, ensure_ascii=False)
        called = f"{printable(self.card.name)} of the MCP server {printable(self.server.name)}"
        return Risk("mcp", "call a tool of an MCP server", f"{called}\n{given}")

    async def __call__(self, arguments: McpArguments, caller: Caller) -> ToolResult:
        # Lone surrogates cannot be sent; nothing else changes on this way.
        text = json.dumps(arguments.model_extra, ensure_ascii=False)
        given = json.loads(text.encode("utf-8", "replace"))
        return await self.call(self.server, self.card, given)
