"""Compare a turn over HTTP with the bare minimum: post the same body and fsync one line.

nanobot keeps 1,000 messages in the window, journals, saves and delivers. The minimum is a script
with aiohttp that posts the bytes of nanobot's last request, reads the answer and fdatasyncs one
line. They alternate, so that both see the same machine. Both use the same loopback server, a
separate process that only counts the bytes of a request: a server that parses them would make the
ratio look better."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp

from bench.common import gateway, median, write_session
from bench.reporting import report
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.channel import FakeChannel

TURNS, ROUNDS = 25, 8
_DELTAS: tuple[dict[str, str], ...] = (
    {"role": "assistant", "content": "A short answer, "},
    {"content": "like most."},
    {},
)
_EVENTS = "".join(
    "data: "
    + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    + "\n\n"
    for delta, reason in zip(_DELTAS, (None, None, "stop"), strict=True)
)
_BODY = f"{_EVENTS}data: [DONE]\n\n".encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(
    _BODY
)


class CheapServer(asyncio.Protocol):
    """Answers each request once it has all bytes of it, and looks at none of them."""

    def __init__(self) -> None:
        self._head, self._left = b"", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, blank, body = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
            self._left = next(int(value) for name, _, value in lines if name == b"content-length")
            self._head, data = b"", body
        self._left -= len(data)
        if not self._left:
            self._transport.write(ANSWER + _BODY)


async def serve(ready: Connection) -> None:
    """Run the server and send its port."""
    server = await asyncio.get_running_loop().create_server(CheapServer, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_server(ready: Connection) -> None:
    asyncio.run(serve(ready))


@contextmanager
def cheap_server() -> Iterator[str]:
    """Run a `CheapServer` in its own process. The context is its address."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=run_server, args=(there,), daemon=True)
    process.start()
    there.close()  # or `recv` would wait for a process that has failed
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


class Recorder:
    """Forwards calls and remembers the last prompt."""

    def __init__(self, provider: OpenAIProvider) -> None:
        self._provider = provider
        self.body = b""

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        if not self.body:
            self.body = self._provider.body(prompt, options)
        return await self._provider.complete(prompt, options, on_text)

    async def close(self) -> None:
        await self._provider.close()


async def compare(home: Path, base_url: str) -> tuple[float, float]:
    """Return the milliseconds per turn of nanobot and of the minimum."""
    write_session(home, "fake:1", 1_000, 0)
    channel = FakeChannel()
    recorder = Recorder(
        OpenAIProvider(model="bench", base_url=base_url, api_key="x", max_tokens=1_000)
    )
    ours, floor = [], []
    async with gateway(home, recorder, channel), aiohttp.ClientSession() as client:
        for _ in range(10):
            await channel.ask("warm up")
        log = os.open(home / "floor.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(TURNS):
                await channel.ask("What shall I cook tonight?")
            ours.append((time.perf_counter() - started) / TURNS * 1000)
            started = time.perf_counter()
            for _ in range(TURNS):
                await bare(client, f"{base_url}/chat/completions", recorder.body, log)
            floor.append((time.perf_counter() - started) / TURNS * 1000)
        os.close(log)
    return median(ours), median(floor)


async def bare(client: aiohttp.ClientSession, url: str, body: bytes, log: int) -> None:
    """Do the least that a script can: post, read, keep one line."""
    headers = {"content-type": "application/json", "authorization": "Bearer x"}
    async with client.post(url, data=body, headers=headers) as response:
        await response.read()
    os.write(log, b"a line of ordinary length, as a script would keep it" * 4 + b"\n")
    os.fdatasync(log)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, cheap_server() as base_url:
        ours, floor = asyncio.run(compare(Path(folder), base_url))
    report(
        "http",
        {
            "a turn with 1,000 messages in the window [ms]": ours,
            "the floor: aiohttp and one fdatasync [ms]": floor,
            "ratio (target <= 2.2)": ours / floor,
        },
    )


if __name__ == "__main__":
    main()
