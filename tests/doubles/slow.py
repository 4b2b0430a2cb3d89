"""A slow model server that serves one request at a time, and notices when a client disconnects.

It speaks only the necessary HTTP. llama.cpp's server with `--parallel 1` behaves like this: it
works on a request until `req.is_connection_closed` (tools/server/server.cpp)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nanobot.providers.openai import OpenAIProvider

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class SlowServer:
    """Never ends the answer to the first `hanging` requests, and answers `Done.` to all others.

    A hanging answer is a beginning (`begins`), or not even a head while the prompt is read.
    `requests` are the bodies. `left` counts the hanging requests with disconnected clients."""

    def __init__(self, *, begins: bool, hanging: int = 1) -> None:
        self._begins, self._hanging = begins, hanging
        self._slot, self._changed = asyncio.Lock(), asyncio.Condition()
        self.requests: list[str] = []
        self.left = 0
        self.base_url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[OpenAIProvider]:
        """Serve, and yield a client."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        provider = OpenAIProvider(model="m", base_url=self.base_url, api_key="k", max_tokens=0)
        try:
            yield provider
        finally:
            await provider.close()
            server.close()
            await server.wait_closed()

    async def until_asked(self, count: int = 1) -> None:
        """Return when this many requests have started."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def until_abandoned(self, count: int = 1) -> None:
        """Return when this many hanging requests were abandoned by their clients."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.left >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while body := await _request(reader):
                async with self._slot:
                    await self._answer(body, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, body: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        hangs = len(self.requests) < self._hanging
        if self._begins or not hangs:
            writer.write(_HEAD + _chunk({"content": "Done." if not hangs else "Let me see"}))
            if not hangs:
                writer.write(_chunk({}, "stop") + _frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            await writer.drain()
        async with self._changed:
            self.requests.append(body)
            self._changed.notify_all()
        if hangs:
            try:
                assert not await reader.read(1), "the client sent more before it had an answer"
            finally:
                async with self._changed:
                    self.left += 1
                    self._changed.notify_all()


async def _request(reader: asyncio.StreamReader) -> str:
    """Return the body of the next request, or an empty text at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
    length = next(value for name, value in lines.items() if name.lower() == "content-length")
    return (await reader.readexactly(int(length))).decode()


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return _frame(f"data: {json.dumps(event)}\n\n".encode())


def _frame(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
