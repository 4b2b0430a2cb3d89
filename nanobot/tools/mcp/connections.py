"""Connections to servers with the official SDK: a program's pipes or an address.

Invariants: a program runs in the sandbox with only the permissions of its entry, and ends with its
connection. Oversized input is not parsed, and a program that sends too much without request is
killed. At an address each request has one answer of limited size; there is no other stream that a
server could keep open. The SDK is imported when the first server starts, off the event loop, and
its errors become `McpError`. `answers` parses the answers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger

from nanobot import __version__
from nanobot.clock import first_error
from nanobot.errors import NanobotError, ToolError
from nanobot.io import make_folder
from nanobot.parsing import TooManyValues, ValueCounter
from nanobot.programs import Launch
from nanobot.security.confine import REFUSAL
from nanobot.security.egress import Egress
from nanobot.security.sandbox import PATH, Confinement, FindSandbox
from nanobot.security.sandbox.relay import network_relay
from nanobot.tasks import Background
from nanobot.text import escape_invisible
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.values import (
    McpError,
    McpLost,
    McpRefused,
    McpServer,
    ToolDescription,
    build_description,
    keep_usable,
)

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing = MemoryObjectReceiveStream[SessionMessage]


MEGABYTE = 1_000_000
_CHUNK = 65_536
_GRACE = 2.0
"""Seconds for a program to end by itself, and again after each signal."""
_KEPT_ERRORS = 600


MOST_VALUES = 100_000
"""JSON values in an answer. The SDK takes 20 µs for each and blocks the event loop. An answer of
this many is longer than the model's result."""


MOST_LINE = 8 * MEGABYTE
"""Bytes of one message of a program."""

MOST_UNASKED, MOST_MESSAGES = 24 * MEGABYTE, 5_000
"""Bytes and messages of a program since the last request."""


class _Conversation:
    """The message exchange with one program."""

    def __init__(self, process: Process, lost: Callable[[str], None]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._lost = process, lost
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._errors = b""
        self._bytes = self._messages = 0  # since the last request

    async def read_stdout(self, incoming: Incoming) -> None:
        """Forward the program's messages until it ends, then report the reason."""
        async with incoming:
            if too_much := await self._forward(incoming):
                signal_program(self._process, signal.SIGKILL)
            self._lost(f"was stopped: {too_much}" if too_much else await self._find_exit_reason())
        with suppress(OSError):  # a program that still writes must see the end of its input
            while await self._stdout.read(_CHUNK):
                pass

    async def write_stdin(self, outgoing: Outgoing) -> None:
        """Write the outgoing messages until the program closes its input."""
        from mcp_types import JSONRPCRequest

        with suppress(OSError):
            async with outgoing:
                async for item in outgoing:
                    if isinstance(item.message, JSONRPCRequest):
                        self._bytes = self._messages = 0
                    fields = item.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
                    self._stdin.write(json.dumps(fields).encode("ascii") + b"\n")
                    await self._stdin.drain()

    async def read_stderr(self) -> None:
        """Keep the end of the program's standard error."""
        while chunk := await self._stderr.read(_CHUNK):
            self._errors = (self._errors + chunk)[-_KEPT_ERRORS:]

    async def _forward(self, incoming: Incoming) -> str:
        """Forward messages until the program or the receiver ends. Return the exceeded limit, or an
        empty text."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:
                return f"it sent a line of more than {MOST_LINE:,} bytes"
            if not line:
                return ""
            self._bytes, self._messages = self._bytes + len(line), self._messages + 1
            if self._bytes > MOST_UNASKED:
                return f"it sent more than {MOST_UNASKED:,} unrequested bytes"
            if self._messages > MOST_MESSAGES:
                return f"it sent more than {MOST_MESSAGES:,} unrequested messages"
            try:
                ValueCounter(MOST_VALUES).feed(line)  # counted before it is parsed
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await incoming.send(SessionMessage(message))
            except TooManyValues as error:
                return f"it sent a line with {error}"
            except ValueError:
                continue  # programs print banners
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return ""

    async def _find_exit_reason(self) -> str:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _GRACE)
        code = self._process.returncode
        lines = escape_invisible(self._errors.decode("utf-8", "replace")).strip().splitlines()
        last = lines[-1].strip()[:300] if lines else ""
        if last.startswith(REFUSAL):
            return f"cannot be started: {last.removeprefix(REFUSAL)}"
        message = f" ({last})" if last else ""
        return f"its program ended{'' if code is None else f' with code {code}'}{message}"


@asynccontextmanager
async def program(launch: Launch, lost: Callable[[str], None]) -> AsyncIterator[TransportStreams]:
    """Run a program and connect to it. `lost` receives the reason if it ends before the context.

    Raise `ToolError` if it cannot start."""
    import anyio
    from mcp.shared.message import SessionMessage

    try:
        process = await launch.spawn(stdin=PIPE, stdout=PIPE, limit=MOST_LINE)
    except (OSError, ValueError) as error:
        raise ToolError(f"it cannot be started: {error}") from error
    tasks = Background()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_send, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    talk = _Conversation(process, lost)
    for work in (talk.read_stdout(incoming), talk.write_stdin(outgoing), talk.read_stderr()):
        tasks.start(work, name="mcp pipe")
    try:
        yield received, to_send
    finally:
        for stream in (received, to_send):
            stream.close()
        await end_program(process)
        tasks.cancel()
        await tasks.drain(0)
        for other in (incoming, outgoing):
            other.close()


async def end_program(process: Process) -> None:
    """End the program: close its input, then send signals."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        for harder in (signal.SIGTERM, signal.SIGKILL, None):
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
                return
            if harder:
                signal_program(process, harder)
        logger.warning("an MCP server (pid {}) is still running after it was killed", process.pid)
    finally:
        # Its children may hold its pipes; asyncio has no public way to close our end.
        process._transport.close()  # type: ignore[attr-defined]


def signal_program(process: Process, number: signal.Signals) -> None:
    # After it is reaped, its number may belong to another process.
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


MOST_BYTES = 24_000_000
"""Of an answer from an address."""
_MOST_PAGES = 20
_MOST_SAID = 1_000
"""Characters of a server's error message."""


class Connections:
    """Opens connections. `folder` has a private, writable working folder for each program.
    `find_sandbox` is called at each start. `egress` is the network access of programs, and reaches
    servers at addresses."""

    def __init__(self, folder: Path, find_sandbox: FindSandbox, egress: Egress) -> None:
        self._folder, self._find_sandbox, self._egress = folder, find_sandbox, egress

    @asynccontextmanager
    async def open(
        self, server: McpServer, lost: Callable[[str], None], changed: Callable[[], None]
    ) -> AsyncIterator[McpSession]:
        """Open a connection for the context. The program ends with it. `lost` receives the reason
        if the server is gone, `changed` is called if its tools may have changed. Entering and
        leaving may raise `NanobotError`."""
        await asyncio.to_thread(import_sdk)
        from mcp import Client
        from mcp_types import Implementation, ToolListChangedNotification

        async def on_message(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                changed()

        reason: list[str] = []

        def report_end(why: str) -> None:
            reason.append(why)
            lost(why)

        with translate_errors(f"the MCP server {server.name}", reason):
            client = Client(
                self._reach(server, report_end),
                message_handler=on_message,
                client_info=Implementation(name="nanobot", version=__version__),
                cache=None,
            )
            async with client:
                yield McpSession(client, server, reason)

    @asynccontextmanager
    async def _reach(
        self, server: McpServer, lost: Callable[[str], None]
    ) -> AsyncIterator[TransportStreams]:
        async with AsyncExitStack() as stack:
            if server.url:
                from mcp.client.streamable_http import streamable_http_client

                # The owner's address, even on this machine, and only for this server.
                own = (server.literal_address,) if server.literal_address else ()
                client = await stack.enter_async_context(
                    self._egress.client(
                        server.headers, server.timeout_seconds, MOST_BYTES, MOST_VALUES, own
                    )
                )
                talk = streamable_http_client(
                    server.url, http_client=client, max_sse_event_size=MOST_BYTES
                )
            else:
                launch = await self._launch(server, stack)
                talk = program(launch, lost)
            received, to_send = await stack.enter_async_context(talk)
            yield await stack.enter_async_context(mend_stream(received)), to_send

    async def _launch(self, server: McpServer, stack: AsyncExitStack) -> Launch:
        """Return the launch of the server's program. `stack` closes its network access. Raise
        `ToolError` if the owner must fix something."""
        home = await asyncio.to_thread(self._prepare_home, server)
        command = (server.command, *server.args)
        if not server.sandbox:
            # A small fixed environment, so that it inherits no secret.
            path = os.environ.get("PATH", PATH)
            environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **server.env}
            if not (found_at := server.program(home)):
                raise ToolError(f"can't start {server.command}: program not found")
            return Launch((found_at, *server.args), environment, str(home.absolute()))
        found = await self._find_sandbox()
        sandbox = found.sandbox
        if sandbox is None or sandbox.kind == "none":  # "none" is only for the shell
            raise ToolError(
                f"no sandbox works on this machine: {found.problem or 'it is turned off'}",
                hint=(
                    f"The owner can set mcp.servers.{server.name}.sandbox to false to run it "
                    "without one."
                ),
            )
        confined = Confinement(
            workspace=home,
            own_folder=True,
            extra_read_only=server.paths,
            writable=server.writable,
            environment=server.env,
        )
        relay = None
        if server.network:
            relay = await stack.enter_async_context(network_relay(self._egress))
        return sandbox.launch(command, confined, relay)

    def home_of(self, server: McpServer) -> Path:
        return self._folder / server.name

    def _prepare_home(self, server: McpServer) -> Path:
        for path in (*server.paths, *server.writable):
            if not os.path.lexists(path):
                raise ToolError(f"{path} does not exist. It is listed in mcp.servers.{server.name}")
        home = self.home_of(server)
        make_folder(home)
        return home


@asynccontextmanager
async def mend_stream(
    said: ReadStream[SessionMessage | Exception],
) -> AsyncIterator[MemoryObjectReceiveStream[SessionMessage | Exception]]:
    """Forward a server's messages, with answers mended before the SDK reads them."""
    import anyio

    from nanobot.tools.mcp.answers import mend

    passed, mended = anyio.create_memory_object_stream["SessionMessage | Exception"](0)

    async def pass_on() -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with passed:
                async for item in said:
                    message = None if isinstance(item, Exception) else item.message
                    if isinstance(result := getattr(message, "result", None), dict):
                        mend(result)
                    await passed.send(item)

    tasks = Background()
    tasks.start(pass_on(), name="mcp answers")
    try:
        yield mended
    finally:
        tasks.cancel()
        await tasks.drain(0)
        mended.close()


class McpSession:
    """An open connection to a server. `reason` gets an entry when the cause of its loss is
    known."""

    def __init__(self, client: Client, server: McpServer, reason: list[str]) -> None:
        self._client, self._ours = client, f"the MCP server {server.name}"
        self._reason = reason

    async def list_tools(self) -> tuple[ToolDescription, ...]:
        """Return its current tools. Raise `McpError`."""
        from nanobot.tools.mcp.answers import TASKS

        found: list[ToolDescription] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            with translate_errors(self._ours, self._reason):
                page = await self._client.list_tools(cursor=cursor)
            found += [
                build_description(
                    tool.name,
                    tool.description or "",
                    tool.input_schema,
                    read_only=bool(tool.annotations and tool.annotations.read_only_hint),
                    needs_tasks=bool(tool.meta and tool.meta.get(TASKS)),
                )
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        return keep_usable(found)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raise `McpError`, or `McpLost` if the connection ended."""
        from nanobot.tools.mcp.answers import result_of

        with translate_errors(self._ours, self._reason):
            answer = await self._client.call_tool(tool, dict(arguments))
        return await asyncio.to_thread(result_of, answer.meta, is_error=answer.is_error)


def import_sdk() -> None:
    """Import the SDK. Raise `McpError` if it is not installed."""
    for name in ("mcp", "client"):  # its logs hold untrusted content
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        import_module("mcp.client.client")
    except ImportError as error:
        from nanobot.origin import how_to_install

        raise McpError(
            "MCP servers need the MCP SDK, which is not installed", hint=how_to_install("mcp")
        ) from error


@contextmanager
def translate_errors(server: str, reason: list[str]) -> Iterator[None]:
    """Translate every error inside for the model and its owner."""
    try:
        yield
    except Exception as whole:  # a server can make the SDK raise anything
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        from nanobot.security.egress.transport import Unreachable

        error = first_error(whole)
        message = escape_invisible(" ".join(str(error).split()))[:_MOST_SAID]
        failure = McpError(f"{server} sent an invalid answer ({type(error).__name__}: {message})")
        if isinstance(error, McpError):
            failure = error
        elif isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            failure = McpRefused(f"{server} returned an error: {message}")
        elif reason or isinstance(error, MCPError):
            failure = McpLost(f"{server} {reason[0] if reason else 'ended the connection'}")
        elif isinstance(error, Unreachable):
            failure = McpError(f"{server} cannot be reached: {message}")
        elif isinstance(error, NanobotError):
            failure = McpError(f"{server}: {error}", hint=error.hint)
        raise failure from whole
