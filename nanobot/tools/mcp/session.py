"""How a server's program is started: shut in, with what its entry lists and nothing else.

Connections to servers, on the official SDK.

What always holds: the SDK is imported when the first server is started, off the event loop, and
whatever it raises leaves here as an `McpError`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot import __version__
from nanobot.errors import NanobotError, ToolError
from nanobot.security.names import visible
from nanobot.security.sandbox import Confined, Found, Launch
from nanobot.security.sandbox.kinds import PATH, readable
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.ledger import card, usable
from nanobot.tools.mcp.pipes import Bounds, program
from nanobot.tools.mcp.values import Arguments, Card, McpError, McpLost, McpServer, Session, Signals

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams

    from nanobot.tools.mcp.web import Way


Relay = Callable[[], AbstractAsyncContextManager[Path]]
"""Opens the way to the network for one program: the socket that its sandbox gets."""

FindSandbox = Callable[[], Awaitable[Found]]
"""Finds the sandbox of this machine; asked when a program is started, so better remembered."""


class Programs:
    """`folder` holds a private folder for each server, where it runs and may write. `guarded` are
    files and folders of nanobot's own, which no entry opens to a program."""

    def __init__(
        self,
        folder: Path,
        find_sandbox: FindSandbox,
        relay: Relay,
        *,
        guarded: Sequence[Path] = (),
    ) -> None:
        self._folder, self._find_sandbox, self._relay = folder, find_sandbox, relay
        self._guarded = tuple(guarded)

    @asynccontextmanager
    async def launch(self, server: McpServer) -> AsyncIterator[Launch]:
        """What starts the server's program; the way to the network is open as long as the context.
        Raises `ToolError` where the owner has to do something first."""
        home = await asyncio.to_thread(self._prepared, server)
        command = (server.command, *server.args)
        if not server.sandbox:
            yield Launch(argv=command, env=_environment(server, home), cwd=str(home))
            return
        found = await self._find_sandbox()
        sandbox = found.sandbox
        if sandbox is None or sandbox.kind == "none":  # what is said of the shell is not said here
            raise ToolError(
                f"no sandbox works here: {found.problem or 'it is turned off'}",
                hint=f"Or the owner writes mcp.servers.{server.name}.sandbox: false.",
            )
        _expect_seen(server)
        confined = Confined(
            workspace=home,
            extra_read_only=server.paths,
            writable=server.writable,
            network="relay" if server.network else "none",
            environment=server.env,
            cwd=home,
        )
        if not server.network:
            yield sandbox.launch(command, confined)
            return
        async with self._relay() as socket:
            yield sandbox.launch(command, confined, socket)

    def _prepared(self, server: McpServer) -> Path:
        for path in (*server.paths, *server.writable):
            if not os.path.lexists(path):
                raise ToolError(f"{path} does not exist; it is listed in mcp.servers.{server.name}")
            if _opens(path, self._guarded):
                raise ToolError(f"{path} is not given to programs, for it is nanobot's own")
        home = self._folder / server.name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home


def _opens(path: Path, guarded: Sequence[Path]) -> bool:
    """Whether who may see `path` could see something guarded."""
    real = Path(os.path.realpath(path))
    others = [Path(os.path.realpath(other)) for other in guarded]
    return any(real.is_relative_to(other) or other.is_relative_to(real) for other in others)


def _expect_seen(server: McpServer) -> None:
    """Raise `ToolError` where its sandbox shows neither the program nor the script that it runs."""
    folders = server.env.get("PATH", PATH)
    if (
        not Path(server.command).is_absolute()
        and shutil.which(server.command, path=folders) is None
    ):
        raise ToolError(
            f"there is no program {server.command!r} in {folders}",
            hint="Install it there, or write its whole path as `command`, and its folder under"
            f" mcp.servers.{server.name}.paths.",
        )
    seen = [*map(Path, readable(names=False)), *server.paths, *server.writable]
    script = next((word for word in server.args if not word.startswith("-")), "")
    for word in (server.command, script):
        path = Path(os.path.normpath(word))
        if path.is_absolute() and path.is_file() and not any(map(path.is_relative_to, seen)):
            raise ToolError(
                f"its sandbox does not show it {path}",
                hint=f"Write {path.parent} under mcp.servers.{server.name}.paths in config.yaml.",
            )


def _environment(server: McpServer, home: Path) -> dict[str, str]:
    """Small and fixed, so that no secret of ours is inherited."""
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **server.env}


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
