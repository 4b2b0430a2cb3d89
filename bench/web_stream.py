"""Measure the gateway's CPU while an answer streams, with and without open pages.

A model server in its own process sends 60 words a second, with headings, a table and code. The
difference between ten pages and none is the cost of the pages.

    python -m bench.web_stream [--json]"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

from bench.reporting import report
from bench.startup import NANOBOT, cpu_seconds, running_gateway
from bench.web import Visit
from tests.ports import free_port

PAGES, WORDS_A_SECOND = 10, 60
_WARM, _SECONDS = 4.0, 10.0
_ROWS = "| one two three | 4 |\n" * 12
_CODE = "def f(x): return x + 1\n" * 20
_BLOCK = (
    "## A heading\n\nSome **bold** text with `code` and a [link](https://example.org) in it, "
    f"{'and more words ' * 30}\n\n- one\n- two\n- three\n\n| a | b |\n|---|--:|\n{_ROWS}\n"
    f"```python\n{_CODE}```\n\n"
)
_WORDS = re.findall(r"\s*\S+", _BLOCK * 20)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    await reader.readexactly(int(length[1]) if length else 0)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        for word in _WORDS:
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            writer.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            await writer.drain()
            await asyncio.sleep(1 / WORDS_A_SECOND)
    writer.close()


async def _serve(ready: Connection) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _run_server(ready: Connection) -> None:
    asyncio.run(_serve(ready))


@contextlib.contextmanager
def _slow_model() -> Iterator[str]:
    """Run the model server. The context is its address."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_run_server, args=(there,), daemon=True)
    process.start()
    there.close()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


class _Reader(threading.Thread):
    """Reads a stream, and counts the changes of the text."""

    def __init__(self, stream: HTTPResponse) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.changes = 0

    def run(self) -> None:
        """Read until the gateway ends the stream."""
        with contextlib.suppress(OSError, ValueError):
            while line := self._stream.readline():
                self.changes += line.startswith(b'data: {"kind": "text"')


def _measure(pid: int, visit: Visit, pages: int) -> float:
    """Return the CPU in ms per second while an answer streams to `pages` pages."""
    key, token = visit.new_chat()
    readers = [_Reader(visit.open(f"/live?c={key}&after=0")) for _ in range(pages)]
    for reader in readers:
        reader.start()
    visit.post("/chat/send", {"c": key, "event": uuid4().hex, "text": "go"}, token)
    time.sleep(_WARM)
    used, began = cpu_seconds(pid), time.perf_counter()
    time.sleep(_SECONDS)
    result = (cpu_seconds(pid) - used) / (time.perf_counter() - began) * 1000
    visit.post("/chat/send", {"c": key, "event": uuid4().hex, "text": "/stop"}, token)
    if any(reader.changes < 2 * _SECONDS for reader in readers):
        raise RuntimeError(f"the pages got few changes: {[one.changes for one in readers]}")
    return result


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, _slow_model() as url:
        home = Path(folder)
        port = free_port()
        model = f"model: {{base_url: '{url}', name: scripted, context_window: 32000}}\n"
        own = f"http: {{port: {port}}}\nchannels: {{web: {{enabled: true}}}}\n"
        (home / "config.yaml").write_text(own + model)
        environ = {**os.environ, "NANOBOT_HOME": str(home)}
        with running_gateway(environ, NANOBOT) as (pid, _):
            visit = Visit(home, pid)
            figures = {
                f"{count} pages, CPU [ms/s]{' (target <= 60)' * (count > 0)}": _measure(
                    pid, visit, count
                )
                for count in (0, 1, PAGES)
            }
        report("web_stream", figures)


if __name__ == "__main__":
    main()
