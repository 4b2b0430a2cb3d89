"""Connections to servers, on the official SDK, and how a server's program is started.

Invariant: a program runs shut in, with what its entry lists and nothing else. The SDK is imported
when the first server is started, off the event loop, and whatever it raises leaves here as an
`McpError`. The text and the images of an answer are bounded, and nothing in it is trusted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot import __version__
from nanobot.channel.health import first_error
from nanobot.errors import NanobotError, ToolError
from nanobot.security.egress import Egress
from nanobot.security.sandbox import PATH, Confined, Launch, readable
from nanobot.security.sandbox.finding import FindSandbox
from nanobot.security.sandbox.relay import network_relay
from nanobot.text import printable, visible
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.transports import Bounds, address, program
from nanobot.tools.mcp.values import Card, McpError, McpLost, McpServer, card, usable
from nanobot.tools.reading import image_type

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp_types import CallToolResult, ContentBlock


class Programs:
    """`folder` holds a private folder for each server, where it runs and may write. `find_sandbox`
    is asked whenever a program is started; `egress` is the way to the network of those that have
    it."""

    def __init__(self, folder: Path, find_sandbox: FindSandbox, egress: Egress) -> None:
        self._folder, self._find_sandbox, self._egress = folder, find_sandbox, egress

    @asynccontextmanager
    async def launch(self, server: McpServer) -> AsyncIterator[Launch]:
        """What starts the server's program; the way to the network is open as long as the context.
        Raises `ToolError` where the owner has to do something first."""
        home = await asyncio.to_thread(self._prepared, server)
        command = (server.command, *server.args)
        if not server.sandbox:
            # Small and fixed, so that no secret of ours is inherited.
            path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
            environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **server.env}
            yield Launch(argv=command, env=environment, cwd=str(home))
            return
        found = await self._find_sandbox()
        sandbox = found.sandbox
        if sandbox is None or sandbox.kind == "none":  # what is said of the shell is not said here
            raise ToolError(
                f"no sandbox works here: {found.problem or 'it is turned off'}",
                hint=f"Or the owner writes mcp.servers.{server.name}.sandbox: false.",
            )
        _refuse_unseen(server)
        confined = Confined(
            workspace=home,
            extra_read_only=server.paths,
            writable=server.writable,
            network="relay" if server.network else "none",
            environment=server.env,
        )
        async with AsyncExitStack() as stack:
            relay = None
            if server.network:
                relay = await stack.enter_async_context(network_relay(self._egress))
            yield sandbox.launch(command, confined, relay)

    def _prepared(self, server: McpServer) -> Path:
        for path in (*server.paths, *server.writable):
            if not os.path.lexists(path):
                raise ToolError(f"{path} does not exist; it is listed in mcp.servers.{server.name}")
        home = self._folder / server.name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home


def _refuse_unseen(server: McpServer) -> None:
    """Raise `ToolError` where its sandbox shows neither the program nor the script that it runs."""
    seen = [*map(Path, readable(names=False)), *server.paths, *server.writable]
    program = shutil.which(server.command, path=server.env.get("PATH", PATH))
    script = next((word for word in server.args if not word.startswith("-")), "")
    for path in map(Path, map(os.path.normpath, (program or server.command, script))):
        hidden = path.is_absolute() and path.is_file() and not any(map(path.is_relative_to, seen))
        if hidden or not program:
            raise ToolError(
                f"its sandbox does not show it {path}",
                hint="Install it below /usr, or write its whole path, and list"
                f" {path.parent} under mcp.servers.{server.name}.paths in config.yaml.",
            )


_MOST_PAGES = 20
_MOST_SAID = 1_000
"""Characters of what a server says about an error."""


class Connections:
    """`way` is the way to a server on the network."""

    def __init__(
        self,
        programs: Programs,
        way: Callable[[McpServer], Egress],
        bounds: Bounds | None = None,
    ) -> None:
        self._programs, self._way, self._bounds = programs, way, bounds or Bounds()

    @asynccontextmanager
    async def open(
        self, server: McpServer, lost: Callable[[str], None], changed: Callable[[], None]
    ) -> AsyncIterator[Session]:
        """A connection for as long as the context lasts; the program ends with it. `lost` is told
        the reason when the server is gone, `changed` when its tools may not be the same any more.
        Entering raises `NanobotError`; so may leaving."""
        await asyncio.to_thread(_load)
        from mcp import Client
        from mcp_types import Implementation, ToolListChangedNotification

        async def heard(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                changed()

        reason: list[str] = []

        def ended(why: str) -> None:
            reason.append(why)
            lost(why)

        with _told(server.name, reason):
            client = Client(
                self._reach(server, ended),
                message_handler=heard,
                client_info=Implementation(name="nanobot", version=__version__),
                cache=None,
            )
            async with client:
                yield Session(client, server, reason)

    @asynccontextmanager
    async def _reach(
        self, server: McpServer, lost: Callable[[str], None]
    ) -> AsyncIterator[TransportStreams]:
        async with AsyncExitStack() as stack:
            if server.url:
                yield await stack.enter_async_context(address(server, self._way(server)))
            else:
                launch = await stack.enter_async_context(self._programs.launch(server))
                yield await stack.enter_async_context(program(launch, self._bounds, lost))


class Session:
    """An open connection to a server. `reason` has an entry once it is known why that is gone."""

    def __init__(self, client: Client, server: McpServer, reason: list[str]) -> None:
        self._client, self._server, self._reason = client, server, reason

    async def cards(self) -> tuple[Card, ...]:
        """Its tools as they are now. Raises `McpError`."""
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

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call one. Raises `McpError`, `McpLost` where the connection ended."""
        with _told(self._server.name, self._reason):
            return _result_of(await self._client.call_tool(tool, dict(arguments)))


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
    except McpError:
        raise
    except Exception as error:  # whatever somebody's server makes the SDK raise
        raise _in_words(f"the MCP server {name}", first_error(error), reason) from error


def _in_words(server: str, error: BaseException, reason: list[str]) -> McpError:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    said = visible(" ".join(str(error).split()))[:_MOST_SAID]
    if isinstance(error, McpError):
        return error
    if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
        return McpError(f"{server} answered with an error: {said}")
    if reason or isinstance(error, MCPError):
        return McpLost(f"{server} {reason[0] if reason else 'ended the connection'}")
    if isinstance(error, NanobotError):
        return McpError(f"{server}: {error}", hint=error.hint)
    return McpError(f"{server} cannot be understood ({type(error).__name__}: {said})")


_MOST_TEXT = 400_000
"""Characters of an answer that are kept at all."""

_MOST_IMAGES = 4
_MOST_IMAGE = 5_000_000
"""Bytes."""


def _result_of(answer: CallToolResult) -> ToolResult:
    """The result; structured content stands in for text where there is none."""
    texts: list[str] = []
    images: list[tuple[str, str]] = []
    for block in answer.content:
        if block.type != "image":
            texts.append(_text_of(block))
        elif len(images) < _MOST_IMAGES and (mime := _mime(block.data)):
            images.append((block.data, mime))
        else:
            texts.append("[an image is left out: too many, too large, or of another kind]")
    if not texts and not images and answer.structured_content is not None:
        texts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    text = "\n\n".join(texts) or "\n".join(f"[image, {mime}]" for _, mime in images)
    if len(text) > _MOST_TEXT:
        text = f"{text[:_MOST_TEXT]}\n[… the rest of {len(text):,} characters was not kept]"
    text = text or "[the answer is empty]"
    return ToolResult(text, is_error=answer.is_error, images=tuple(images))


def _text_of(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "resource_link":
            return f"[link: {printable(block.name)} {printable(block.uri)}]"
        case "resource":
            text = getattr(block.resource, "text", None)
            where = printable(block.resource.uri)
            return f"[{where}]\n{text}" if isinstance(text, str) else f"[binary data: {where}]"
        case kind:
            return f"[{kind}: not shown]"


def _mime(data: str) -> str:
    """The type of an image that models take; empty for anything else."""
    if len(data) > _MOST_IMAGE * 4 // 3 + 4:
        return ""
    try:
        return image_type(base64.b64decode(data, validate=True))
    except ValueError:
        return ""
