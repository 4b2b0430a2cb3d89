"""Connections to servers, on the official SDK.

What always holds: the SDK is imported when the first server is started, off the event loop, and
whatever it raises leaves here as an `McpError`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from nanobot import __version__
from nanobot.errors import NanobotError
from nanobot.security.names import visible
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.cards import card, usable
from nanobot.tools.mcp.launching import Programs
from nanobot.tools.mcp.pipes import Bounds, program
from nanobot.tools.mcp.values import (
    Arguments,
    Card,
    McpError,
    McpLost,
    McpServer,
    Session,
    Signals,
)

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams

    from nanobot.tools.mcp.web import Way

_MOST_PAGES = 20
_MOST_SAID = 1_000
"""Characters of what a server says about an error."""


class Connections:
    """`transport` makes the way to a server on the network; it is asked once per connection, and
    what it gives is closed with that."""

    def __init__(
        self,
        programs: Programs,
        transport: Way,
        bounds: Bounds | None = None,
    ) -> None:
        self._programs, self._transport = programs, transport
        self._bounds = bounds or Bounds()

    @asynccontextmanager
    async def open(self, server: McpServer, signals: Signals) -> AsyncIterator[Session]:
        """See `Connect`."""
        await asyncio.to_thread(_load)
        from mcp import Client
        from mcp_types import Implementation, ToolListChangedNotification

        async def heard(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                signals.changed()

        reason: list[str] = []

        def lost(why: str) -> None:
            reason.append(why)
            signals.lost(why)

        with _told(server.name, reason):
            client = Client(
                self._reach(server, lost),
                message_handler=heard,
                client_info=Implementation(name="nanobot", version=__version__),
                cache=None,
            )
            async with client:
                yield _SdkSession(client, server, reason)

    @asynccontextmanager
    async def _reach(
        self, server: McpServer, lost: Callable[[str], None]
    ) -> AsyncIterator[TransportStreams]:
        if server.url:
            from nanobot.tools.mcp.web import address

            async with address(server, self._transport(server)) as streams:
                yield streams
        else:
            async with (
                self._programs.launch(server) as launch,
                program(launch, self._bounds, lost) as streams,
            ):
                yield streams


class _SdkSession:
    """One connection. `reason` has an entry once it is known why the server is gone."""

    def __init__(self, client: Client, server: McpServer, reason: list[str]) -> None:
        self._client, self._server, self._reason = client, server, reason

    async def cards(self) -> tuple[Card, ...]:
        """See `Session`."""
        found: list[Card] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            with _told(self._server.name, self._reason):
                page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
                text = tool.description or ""
                found.append(card(tool.name, text, tool.input_schema, read_only=read_only))
            cursor = page.next_cursor
            if cursor is None:
                break
        return usable(found)

    async def call(self, tool: str, arguments: Arguments) -> ToolResult:
        """See `Session`."""
        from nanobot.tools.mcp.answers import result_of

        with _told(self._server.name, self._reason):
            return result_of(await self._client.call_tool(tool, dict(arguments)))


def _load() -> None:
    """Import the SDK. Raises `McpError` where it is not installed."""
    for name in ("mcp", "client"):  # what its logs hold is servers' words; ours say what matters
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        import_module("mcp.client.client")
    except ImportError as error:
        raise McpError(
            "MCP servers cannot be used: the SDK is not installed",
            hint=f"The owner installs it with: {sys.executable} -m pip install mcp",
        ) from error


@contextmanager
def _told(name: str, reason: list[str]) -> Iterator[None]:
    """Whatever goes wrong inside is said in words that a model and its owner can act on."""
    try:
        yield
    except Exception as error:  # whatever somebody's server makes the SDK raise
        raise _in_words(name, _first(error), reason) from error


def _in_words(name: str, error: Exception, reason: list[str]) -> McpError:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, McpError):
        return error
    if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
        said = visible(str(error.message))[:_MOST_SAID]
        return McpError(f"the MCP server {name} answered with an error: {said}")
    if reason or isinstance(error, MCPError):
        return McpLost(f"the MCP server {name} {reason[0] if reason else 'ended the connection'}")
    if isinstance(error, NanobotError):
        return McpError(f"the MCP server {name}: {error}", hint=error.hint)
    said = visible(" ".join(str(error).split()))[:300]
    return McpError(f"the MCP server {name} cannot be understood ({type(error).__name__}: {said})")


def _first(error: Exception) -> Exception:
    """What went wrong first, where several tasks of the SDK failed together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
