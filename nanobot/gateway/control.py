"""The control socket, for other processes of the same user.

A Unix socket `state/gateway.sock` (0600) for JSON objects, one per line of at most `MAX_FRAME`
bytes. A request names its operation in `op`. It may carry an `id`, which all its answers repeat.
`chat` answers with events while the turn runs. Every other operation answers with one line, `{"ok":
true, "data": …}` or `{"ok": false, "error": …, "hint": …}`. `"going": true` in an error means that
the gateway is shutting down and has not run the request. Without an `id` it ends the connection,
and applies to each unanswered request.

Only a peer with our own user id is accepted. A bad request gets an error, and one beyond the cap
ends its connection. A connection may have many running requests. A client that does not read is
dropped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from loguru import logger

from nanobot.channel import Operation
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway import MAX_FRAME, SOCKET_NAME
from nanobot.parsing import off_loop, parse_json
from nanobot.tasks import Background

_MAX_UNREAD = 8 * 1024 * 1024
"""Bytes that may wait for a client that does not read, before the current line."""

_MAX_RUNNING = 256
"""Running requests per connection. More are read when one ends."""

_UCRED = struct.Struct("3i")


class ControlConnection:
    """One client. Sending never waits: a client that does not read in time loses the connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    @property
    def is_closed(self) -> bool:
        """True if nothing more can reach the client."""
        return self._writer.is_closing()

    def send(self, event: Mapping[str, object]) -> None:
        """Send one line, or nothing if the connection is closed."""
        if self.is_closed:
            return
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD:
            self._writer.transport.abort()  # the client does not read
            return
        self._writer.write(json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n")

    async def close(self, grace: float) -> None:
        """Close, after up to `grace` seconds for the client to read the rest."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), grace)
        self._writer.transport.abort()


Chat = Callable[[Mapping[str, object], ControlConnection], Awaitable[None]]
"""Handles a `chat` request. Returns once it is accepted, and sends the events as they come."""


class ControlServer:
    """Server of `folder`/gateway.sock. Start it only while holding the home's lock."""

    def __init__(self, folder: Path, operations: Mapping[str, Operation], chat: Chat) -> None:
        self._folder = folder
        self._operations = operations
        self._chat = chat
        self._connections: set[ControlConnection] = set()
        self._requests = Background()
        self._unstored: set[asyncio.Task[object]] = set()
        """The `chat` requests whose messages are not stored yet."""
        self._is_going = False
        self._server: asyncio.Server | None = None
        self._directory = -1

    async def start(self) -> None:
        """Listen. Replaces the socket file of a dead process."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            listener = self._bind()
        except OSError as error:
            if self._directory >= 0:
                os.close(self._directory)
            raise StorageError.of(self._folder / SOCKET_NAME, error) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_FRAME)

    async def begin_stop(self) -> None:
        """Accept no more clients and requests, but answer those already read. An unstored message
        is for the next gateway."""
        if self._server is None or self._is_going:
            return
        self._is_going = True
        asyncio.get_running_loop().remove_reader(self._server.sockets[0])  # accept no more clients
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=self._directory)
        for waiting in self._unstored:
            waiting.cancel()
        await asyncio.sleep(0)  # else clients accepted just now would be lost and wait
        self._server.close()

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for the running operations."""
        await self._requests.drain(grace)

    async def close(self, grace: float = 1.0) -> None:
        """Stop listening, let clients read the rest, and remove the socket."""
        if self._server is None:
            return
        await self.begin_stop()
        await self.drain(grace)
        self._server = None
        os.close(self._directory)
        for connection in self._connections:
            connection.send(_GOING)
        await asyncio.gather(*(connection.close(grace) for connection in self._connections))
        self._is_going = False

    def _bind(self) -> socket.socket:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=self._directory)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # An address has at most 107 bytes, and a home's path may be longer.
        address = f"/proc/self/fd/{self._directory}/{SOCKET_NAME}"
        try:
            listener.bind(address)
            Path(address).chmod(0o600)  # before anyone can connect, as it does not listen yet
        except OSError:
            listener.close()
            raise
        return listener

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ControlConnection(writer)
        if self._server is None:  # accepted before it closed, too late for `close`
            connection.send(_GOING)
            writer.close()
            return
        self._connections.add(connection)
        try:
            peer: socket.socket = writer.get_extra_info("socket")
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            if _UCRED.unpack(credentials)[1] == os.geteuid():
                await self._read(reader, connection)
            else:
                connection.send(_failure("this gateway belongs to another user"))
        except OSError as error:  # the client is gone, perhaps in the middle of a line
            logger.debug("control connection ended: {}", error)
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, connection: ControlConnection) -> None:
        room = asyncio.Semaphore(_MAX_RUNNING)
        while not connection.is_closed:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                connection.send(_failure(f"a request can be at most {MAX_FRAME} bytes"))
                return
            except asyncio.IncompleteReadError:
                return
            if line.isspace():
                continue
            await room.acquire()
            task = self._requests.start(self._answer(line, connection), name="control request")
            task.add_done_callback(lambda _: room.release())

    async def _answer(self, line: bytes, connection: ControlConnection) -> None:
        tag: dict[str, object] = {}
        operation: object = None
        try:
            request = await off_loop(len(line), _parse, line)
            tag = {"id": request["id"]} if request.get("id") is not None else {}
            operation = request.pop("op", None)
            if self._is_going:
                connection.send({**_GOING, **tag})
            elif operation == "chat":
                await self._store(request, connection)
            else:
                data = await self._operate(operation, request)
                connection.send({"ok": True, "data": data, **tag})
        except asyncio.CancelledError:
            connection.send({**(_GOING if operation == "chat" else _CUT_OFF), **tag})
            raise
        except NanobotError as error:
            connection.send({**_failure(str(error), error.hint), **tag})
        except Exception as error:  # noqa: BLE001 - the boundary: one request fails, the rest goes on
            logger.opt(exception=error).error("control request failed")
            text = f"internal error: {type(error).__name__}: {error}"
            connection.send({**_failure(text, "See the gateway's log."), **tag})

    async def _store(self, request: Mapping[str, object], connection: ControlConnection) -> None:
        """Store a message. A stop cancels that. The next gateway recognizes the message by its
        `id`."""
        task = asyncio.current_task()
        assert task is not None
        self._unstored.add(task)
        try:
            await self._chat(request, connection)
        finally:
            self._unstored.discard(task)

    async def _operate(self, name: object, arguments: Mapping[str, object]) -> object:
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            known = ", ".join(sorted([*self._operations, "chat"]))
            raise NanobotError(
                f"the gateway has no operation {name!r:.100}",
                hint=(
                    f"Its operations: {known}. If a gateway of another version is still running, "
                    "restart it."
                ),
            )
        return await operation(arguments)


def _parse(line: bytes) -> dict[str, object]:
    try:
        request = parse_json(line)
    except ValueError as error:
        raise NanobotError(f"the request is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise NanobotError("the request is not a JSON object")
    return request


def _failure(error: str, hint: str = "") -> dict[str, object]:
    return {"ok": False, "error": error, "hint": hint}


_GOING = {**_failure("nanobot is shutting down"), "going": True}
_CUT_OFF = _failure(
    "nanobot stopped before this was done",
    "The operation may be partly done. Check before you repeat it.",
)
