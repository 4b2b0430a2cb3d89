"""What people ask of MCP servers: `nanobot mcp …`.

Whoever reaches these is the owner of the home. What a server says about itself is shown whole, with
nothing hidden in it, and never taken for more than its words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict

from nanobot.errors import NanobotError
from nanobot.tools.mcp.listings import Listing
from nanobot.tools.mcp.servers import McpServers, State
from nanobot.tools.mcp.values import Card

Arguments = Mapping[str, object]
Table = Mapping[str, Callable[[Arguments], Awaitable[object]]]


class McpOperations:
    """The operations named `mcp.…`. Arguments and results are JSON."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def table(self) -> Table:
        """By name, as they are called over the socket."""
        return {
            "mcp.list": self.list,
            "mcp.check": self.check,
            "mcp.waiting": self.waiting,
            "mcp.approve": self.approve,
        }

    async def list(self, _: Arguments) -> dict[str, object]:
        """No arguments: all servers, as they are known; none is started."""
        return {
            "servers": [_fields(state) for state in self._servers.states()],
            "trouble": self._servers.trouble,
        }

    async def check(self, arguments: Arguments) -> dict[str, object]:
        """`server`: start it, and see its tools."""
        return _fields(await self._servers.check(_text(arguments, "server")))

    async def waiting(self, arguments: Arguments) -> dict[str, object]:
        """`server`: which of its tools wait to be accepted, as they were and as they would be.
        `digest` stands for just that; it is empty where nothing waits. One that was never asked
        for its tools is started."""
        state = self._servers.state(_text(arguments, "server"))
        if state.listing is None:
            state = await self._servers.check(state.server.name)
        listing = state.listing or Listing("")
        return {
            "server": state.server.name,
            "digest": listing.digest,
            "waiting": [
                {
                    "name": card.name,
                    "before": _card(listing.accepted.get(card.name)),
                    "now": _card(card),
                }
                for card in listing.waiting
            ],
        }

    async def approve(self, arguments: Arguments) -> dict[str, object]:
        """`server`, and the `digest` of what was looked at: from now on those tools are offered."""
        name, digest = _text(arguments, "server"), _text(arguments, "digest")
        return _fields(await self._servers.accept(name, digest))


def _fields(state: State) -> dict[str, object]:
    listing, chosen = state.listing, state.server.tools
    wanted = [c for c in listing.offered if not chosen or c.name in chosen] if listing else []
    return {
        "name": state.server.name,
        "where": state.server.shown,
        "sandbox": bool(state.server.command) and state.server.sandbox,
        "people": state.server.people,
        "known": listing is not None,
        "running": state.runs,
        "trouble": state.trouble,
        "tools": list(state.names),
        "left_out": len(wanted) - len(state.names),
        "waiting": [card.name for card in listing.waiting] if listing else [],
    }


def _card(card: Card | None) -> dict[str, object] | None:
    return asdict(card) if card else None


def _text(arguments: Arguments, key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value:
        raise NanobotError(f"the operation needs a text in {key!r}")
    return value
