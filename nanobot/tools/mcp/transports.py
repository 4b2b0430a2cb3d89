"""The two ways to a server as the SDK's streams: a program's pipes, and an address.

Invariant: nothing is parsed that is larger than the bounds allow, a program that says more than it
was asked for is ended, and no program outlives the connection to it. At an address each question
has one answer of bounded size; there is no stream beside that, which a server could keep busy for
ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.errors import ToolError
from nanobot.security.egress import Egress
from nanobot.security.sandbox import Launch
from nanobot.tasks import Background
from nanobot.text import visible
from nanobot.tools.mcp.values import McpServer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing = MemoryObjectReceiveStream[SessionMessage]

MEGABYTE = 1_000_000
_CHUNK = 65_536
_GRACE = 2.0
"""Seconds that a program has to end by itself, and then again after a signal."""
_KEPT_ERRORS = 600


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a program may say: `line` bytes in one message, and `bytes` and `messages` since it was
    last asked for something."""

    line: int = 8 * MEGABYTE
    bytes: int = 24 * MEGABYTE
    messages: int = 5_000


class _Conversation:
    """What goes back and forth with one program."""

    def __init__(self, process: Process, bounds: Bounds, lost: Callable[[str], None]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._lost, self._bounds = process, lost, bounds
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._errors = b""
        self._bytes = self._messages = 0  # that it said since it was last asked for something

    async def listen(self, incoming: Incoming) -> None:
        """Hand on what the program says until it ends; then say why that was."""
        async with incoming:
            if too_much := await self._hand_on(incoming):
                _signal(self._process, signal.SIGKILL)
            self._lost(f"was stopped: {too_much}" if too_much else await self._why_it_ended())
        with suppress(OSError):  # so that a program which still writes can see the end of its input
            while await self._stdout.read(_CHUNK):
                pass

    async def speak(self, outgoing: Outgoing) -> None:
        """Write what is to be said; ends when the program takes no more."""
        from mcp_types import JSONRPCRequest

        with suppress(OSError):
            async with outgoing:
                async for item in outgoing:
                    if isinstance(item.message, JSONRPCRequest):
                        self._bytes = self._messages = 0
                    fields = item.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
                    self._stdin.write(json.dumps(fields).encode("ascii") + b"\n")
                    await self._stdin.drain()

    async def overhear(self) -> None:
        """Keep the end of what the program says on standard error."""
        while chunk := await self._stderr.read(_CHUNK):
            self._errors = (self._errors + chunk)[-_KEPT_ERRORS:]

    async def _hand_on(self, incoming: Incoming) -> str:
        """Until the program ends or nobody listens, or what it said too much of."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        bounds = self._bounds
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:
                return f"it sent a line of more than {bounds.line:,} bytes"
            if not line:
                return ""
            self._bytes, self._messages = self._bytes + len(line), self._messages + 1
            if self._bytes > bounds.bytes:
                return f"it sent more than {bounds.bytes:,} bytes unasked"
            if self._messages > bounds.messages:
                return f"it sent more than {bounds.messages:,} messages unasked"
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await incoming.send(SessionMessage(message))
            except ValueError:
                continue  # programs print banners
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return ""

    async def _why_it_ended(self) -> str:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _GRACE)
        code = self._process.returncode
        lines = visible(self._errors.decode("utf-8", "replace")).strip().splitlines()
        said = f" ({lines[-1].strip()[:300]})" if lines else ""
        return f"ended{'' if code is None else f' with code {code}'}{said}"


@asynccontextmanager
async def program(
    launch: Launch, bounds: Bounds, lost: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """Run a program and talk to it; `lost` hears why, when it is gone before the context ends.

    Raises `ToolError` where it cannot be started.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    try:
        process = await launch.spawn(stdin=PIPE, stdout=PIPE, limit=bounds.line)
    except (OSError, ValueError) as error:
        raise ToolError(f"it cannot be started: {error}") from error
    tasks = Background()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_send, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    talk = _Conversation(process, bounds, lost)
    for work in (talk.listen(incoming), talk.speak(outgoing), talk.overhear()):
        tasks.start(work, name="mcp pipe")
    try:
        yield received, to_send
    finally:
        for stream in (received, to_send):
            stream.close()
        await _end(process)
        tasks.cancel()
        await tasks.drain(0)
        for other in (incoming, outgoing):
            other.close()


async def _end(process: Process) -> None:
    """The end of its input asks it to go; signals make it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        for harder in (signal.SIGTERM, signal.SIGKILL, None):
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
                return
            if harder:
                _signal(process, harder)
        logger.warning("an MCP server (pid {}) does not end although it was killed", process.pid)
    finally:
        # Processes of its own may hold its pipes; asyncio has no public way to let go of them.
        process._transport.close()  # type: ignore[attr-defined]


def _signal(process: Process, number: signal.Signals) -> None:
    # Only while it is not reaped: afterwards its number may be another's.
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


MOST_BYTES = 24_000_000
"""Of an answer from an address."""


@asynccontextmanager
async def address(server: McpServer, egress: Egress) -> AsyncIterator[TransportStreams]:
    """Talk to the server at `server.url`."""
    from mcp.client.streamable_http import streamable_http_client

    client = egress.client(server.headers, server.timeout_seconds, MOST_BYTES)
    talk = streamable_http_client(server.url, http_client=client, max_sse_event_size=MOST_BYTES)
    async with client, talk as streams:
        yield streams
