"""The control server over its real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot.errors import NanobotError
from nanobot.gateway import MAX_FRAME, SOCKET_NAME
from nanobot.gateway.control import ControlConnection, ControlServer


class Wire:
    """The client's end of the socket: raw lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, request: Mapping[str, object] | bytes) -> None:
        line = request if isinstance(request, bytes) else json.dumps(request).encode()
        self.writer.write(line + b"\n")

    async def line(self) -> Any:
        return json.loads(await asyncio.wait_for(self.reader.readline(), 10))

    async def ask(self, request: Mapping[str, object] | bytes) -> Any:
        self.send(request)
        return await self.line()


@asynccontextmanager
async def wire_to(folder: Path) -> AsyncIterator[Wire]:
    directory = os.open(folder, os.O_PATH)
    try:
        address = f"/proc/self/fd/{directory}/{SOCKET_NAME}"
        reader, writer = await asyncio.open_unix_connection(address, limit=MAX_FRAME)
    finally:
        os.close(directory)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


async def echo(arguments: Mapping[str, object]) -> object:
    return dict(arguments)


async def refuse(_: Mapping[str, object]) -> object:
    raise NanobotError("no", hint="ask nicely")


async def break_down(_: Mapping[str, object]) -> object:
    raise RuntimeError("a bug")


async def say_hello(request: Mapping[str, object], connection: ControlConnection) -> None:
    connection.send({"event": "reply", "id": request["id"], "text": f"hello {request['text']}"})


OPERATIONS = {"echo": echo, "refuse": refuse, "break": break_down}


@asynccontextmanager
async def serving(folder: Path, chat: Any = say_hello) -> AsyncIterator[ControlServer]:
    server = ControlServer(folder, OPERATIONS, chat)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def test_an_operation_gets_its_arguments_and_answers_with_the_requests_id(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        answer = await wire.ask({"op": "echo", "id": "7", "a": [1, "ä"]})
    assert answer == {"ok": True, "data": {"a": [1, "ä"], "id": "7"}, "id": "7"}


async def test_a_chat_request_is_answered_with_events(tmp_path: Path) -> None:
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        answer = await wire.ask({"op": "chat", "id": "1", "text": "you"})
    assert answer == {"event": "reply", "id": "1", "text": "hello you"}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{nonsense", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"op": "dance"}', "no operation 'dance'"),
        (b'{"op": ["echo"]}', "no operation"),
        (b"{}", "no operation None"),
        (b'{"op": "refuse"}', "no"),
        (b'{"op": "break"}', "internal error: RuntimeError: a bug"),
    ],
)
async def test_a_bad_request_costs_an_error_and_the_connection_lives_on(
    tmp_path: Path, line: bytes, error: str
) -> None:
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        answer = await wire.ask(line)
        assert answer["ok"] is False
        assert error in answer["error"]
        assert (await wire.ask({"op": "echo"}))["ok"] is True


async def test_an_errors_hint_and_the_requests_id_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        answer = await wire.ask({"op": "refuse", "id": "9"})
    assert answer == {"ok": False, "error": "no", "hint": "ask nicely", "id": "9"}


async def test_empty_lines_are_skipped(tmp_path: Path) -> None:
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        wire.send(b"")
        wire.send(b"  ")
        assert (await wire.ask({"op": "echo"}))["ok"] is True


async def test_a_request_beyond_the_cap_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path), wire_to(tmp_path) as wire, wire_to(tmp_path) as other:
        block = b"x" * (1024 * 1024)
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_FRAME // len(block) + 1):
                wire.writer.write(block)
                await wire.writer.drain()
            assert str(MAX_FRAME) in (await wire.line())["error"]
            assert await wire.reader.read() == b""
        assert (await other.ask({"op": "echo"}))["ok"] is True


async def test_ten_megabytes_pass_in_both_directions(tmp_path: Path) -> None:
    text = "ä" * 5_000_000
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        wire.send(json.dumps({"op": "echo", "text": text}, ensure_ascii=False).encode())
        assert (await wire.line())["data"]["text"] == text


async def test_requests_overlap_so_that_a_stop_passes_a_running_turn(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def chat(request: Mapping[str, object], connection: ControlConnection) -> None:
        if request["text"] == "/stop":
            stopped.set()
        await stopped.wait()
        connection.send({"event": "reply", "id": request["id"]})

    async with serving(tmp_path, chat), wire_to(tmp_path) as wire:
        wire.send({"op": "chat", "id": "1", "text": "long"})
        wire.send({"op": "chat", "id": "2", "text": "/stop"})
        assert {(await wire.line())["id"], (await wire.line())["id"]} == {"1", "2"}


async def test_a_client_that_does_not_read_is_dropped_and_others_go_on(tmp_path: Path) -> None:
    dropped = asyncio.Event()

    async def flood(_: Mapping[str, object], connection: ControlConnection) -> None:
        while not connection.is_closed:
            connection.send({"event": "delta", "text": "x" * 1_000_000})
        dropped.set()

    async with serving(tmp_path, flood), wire_to(tmp_path) as deaf, wire_to(tmp_path) as wire:
        deaf.send({"op": "chat", "id": "1", "text": "go"})
        await asyncio.wait_for(dropped.wait(), 10)
        assert (await wire.ask({"op": "echo"}))["ok"] is True


async def test_a_client_that_hangs_up_is_seen_as_closed(tmp_path: Path) -> None:
    seen: asyncio.Queue[ControlConnection] = asyncio.Queue()

    async def chat(_: Mapping[str, object], connection: ControlConnection) -> None:
        seen.put_nowait(connection)

    async with serving(tmp_path, chat):
        async with wire_to(tmp_path) as wire:
            wire.send({"op": "chat", "id": "1", "text": "bye"})
            connection = await seen.get()
        async with wire_to(tmp_path) as other:  # by now the server has read the end of the first
            await other.ask({"op": "echo"})
        assert connection.is_closed
        connection.send({"event": "reply"})


async def test_the_socket_of_a_dead_gateway_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET_NAME))
    async with serving(tmp_path), wire_to(tmp_path) as wire:
        assert (await wire.ask({"op": "echo"}))["ok"] is True


async def test_the_socket_is_private_and_gone_after_closing(tmp_path: Path) -> None:
    path = tmp_path / SOCKET_NAME
    async with serving(tmp_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_closing_sends_what_was_said_and_ends_the_connection(tmp_path: Path) -> None:
    async with wire_to_closing(tmp_path) as wire:
        assert (await wire.line())["data"] == {"n": 1}
        assert (await wire.line())["going"] is True
        assert await wire.reader.readline() == b""


@asynccontextmanager
async def wire_to_closing(folder: Path) -> AsyncIterator[Wire]:
    """Yield a client with a request to a server that closes before the answer is read."""
    arrived = asyncio.Event()

    async def chat(_: Mapping[str, object], connection: ControlConnection) -> None:
        connection.send({"ok": True, "data": {"n": 1}})
        arrived.set()

    server = ControlServer(folder, OPERATIONS, chat)
    await server.start()
    async with wire_to(folder) as wire:
        wire.send({"op": "chat"})
        await arrived.wait()
        await server.close()
        yield wire


@pytest.mark.parametrize("steps", range(6))
async def test_who_connects_while_it_closes_is_not_left_waiting(tmp_path: Path, steps: int) -> None:
    server = ControlServer(tmp_path, OPERATIONS, say_hello)
    await server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        client.connect(str(tmp_path / SOCKET_NAME))
        for _ in range(steps):  # of the loop, which takes several to accept somebody
            await asyncio.sleep(0)
        await server.close()
        with contextlib.suppress(ConnectionResetError):
            loop = asyncio.get_running_loop()
            while line := await asyncio.wait_for(loop.sock_recv(client, 1000), 5):
                assert json.loads(line)["going"] is True


async def test_a_home_with_a_very_long_path_has_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    async with serving(folder), wire_to(folder) as wire:
        assert (await wire.ask({"op": "echo"}))["ok"] is True


async def test_a_server_that_stops_answers_what_it_has_read_and_refuses_the_rest(
    tmp_path: Path,
) -> None:
    asked, gate, stored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(arguments: Mapping[str, object]) -> object:
        asked.set()
        await gate.wait()
        return dict(arguments)

    async def never_stored(_: Mapping[str, object], __: ControlConnection) -> None:
        stored.set()
        await asyncio.Event().wait()

    server = ControlServer(tmp_path, {"slow": slow}, never_stored)
    await server.start()
    async with wire_to(tmp_path) as wire:
        wire.send({"op": "slow", "id": "1"})
        wire.send({"op": "chat", "id": "2"})
        await asked.wait()
        await stored.wait()
        await server.begin_stop()
        assert not (tmp_path / SOCKET_NAME).exists()
        refused = await wire.line()
        assert (refused["id"], refused["going"]) == ("2", True)
        wire.send({"op": "slow", "id": "3"})
        refused = await wire.line()
        assert (refused["id"], refused["going"]) == ("3", True)
        gate.set()
        await server.drain(5)
        assert await wire.line() == {"ok": True, "data": {"id": "1"}, "id": "1"}
        await server.close()
        last = await wire.line()
        assert (last.get("id"), last["going"]) == (None, True)
        assert await wire.reader.read() == b""


async def test_an_operation_that_is_cut_off_is_said_to_be_in_doubt(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hang(_: Mapping[str, object]) -> object:
        asked.set()
        return await asyncio.Event().wait()

    server = ControlServer(tmp_path, {"hang": hang}, say_hello)
    await server.start()
    async with wire_to(tmp_path) as wire:
        wire.send({"op": "hang", "id": "1"})
        await asked.wait()
        await server.close(0.0)
        told = await wire.line()
    assert "going" not in told
    assert "partly done" in told["hint"]
