"""Compare a request to the API with a turn: CPU, and commits of the journal.

The gateway runs in this process, with the API and a channel for tests. The model answers at once.
The client is a separate process with one connection, so only nanobot is measured. All kinds of
requests alternate, so that they see the same machine. A turn and a request in a conversation
continue a chat. Other requests are each in a new one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import aiohttp

from bench.common import Instant, gateway, median
from bench.reporting import report
from nanobot.channel.keys import ApiKeys
from nanobot.clock import SystemClock
from nanobot.testing.channel import FakeChannel
from nanobot_api import ApiChannel

WARM_UP, ROUNDS, REQUESTS = 20, 7, 50
QUESTION = "What shall I cook tonight?"
NAMED: dict[str, object] = {"metadata": {"session_id": "bench"}}
KINDS: dict[str, dict[str, object]] = {
    "request": {},
    "request, streamed": {"stream": True},
    "request in a conversation": NAMED,
    "request in a conversation, streamed": {**NAMED, "stream": True},
    "request with an Idempotency-Key": {**NAMED, "key": True},
}
_SETTLED_SECONDS = 0.2  # work that waits to share a commit is stored by then


class CountingConnection(sqlite3.Connection):
    """A connection that counts its commits with changes, each of which is a sync."""

    commits = 0
    _written = 0

    def commit(self) -> None:
        """Commit. The journal's writer calls this."""
        if self.total_changes > self._written:
            CountingConnection.commits += 1
            self._written = self.total_changes
        super().commit()


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Count the commits of connections that are opened inside."""
    connect = sqlite3.connect
    sqlite3.connect = partial(connect, factory=CountingConnection)  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = connect


async def ask(url: str, key: str) -> None:
    """Send the requests that standard input asks for, one line each with a kind and a number."""
    loop, numbers = asyncio.get_running_loop(), count()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            kind, times = json.loads(line)
            messages = [{"role": "user", "content": QUESTION}]
            body = {"model": "nanobot", "messages": messages, **KINDS[kind]}
            has_key = body.pop("key", False)
            for _ in range(times):
                headers = {"Idempotency-Key": f"bench-{next(numbers)}"} if has_key else {}
                async with session.post(url, json=body, headers=headers) as answer:
                    assert "A short answer" in await answer.text()
            print(flush=True)


@contextlib.asynccontextmanager
async def client(url: str, key: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield the client's process."""
    command = (sys.executable, "-m", "bench.api", url, key)
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
    yield process
    process.terminate()
    await process.wait()


async def measure(home: Path) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of CPU and the commits of a turn, and of a request of each kind."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = ApiKeys(home / "state" / "channels" / "api")
    key = keys.add("bench", "", SystemClock().now(), own_words=True)
    channel, used = FakeChannel(), dict[str, list[tuple[float, float]]]()
    environ = {"NANOBOT_HTTP__PORT": str(port)}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    with counting():
        async with (
            gateway(home, Instant(), channel, ApiChannel(), **environ),
            client(url, key) as asker,
        ):
            assert asker.stdin is not None
            assert asker.stdout is not None
            for round in range(ROUNDS + 1):
                for kind in ("turn", *KINDS):
                    times = REQUESTS if round else WARM_UP
                    commits, started = CountingConnection.commits, time.process_time()
                    if kind == "turn":
                        for _ in range(times):
                            await channel.ask(QUESTION)
                    else:
                        asker.stdin.write(f"{json.dumps([kind, times])}\n".encode())
                        await asker.stdout.readline()
                    cpu = (time.process_time() - started) / times * 1000
                    await asyncio.sleep(_SETTLED_SECONDS)
                    if round:
                        new = (CountingConnection.commits - commits) / times
                        used.setdefault(kind, []).append((cpu, new))
    return {
        kind: (median([cpu for cpu, _ in rounds]), median([new for _, new in rounds]))
        for kind, rounds in used.items()
    }


def main() -> None:
    if len(sys.argv) == 3:
        asyncio.run(ask(*sys.argv[1:]))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder)))
    turn = found["turn"][0]
    figures: dict[str, object] = {"CPU of a turn [ms]": turn, "its commits": found["turn"][1]}
    for kind in KINDS:
        cpu, commits = found[kind]
        figures[f"{kind}: CPU [turns] (target <= 1.6)"] = cpu / turn
        figures[f"{kind}: commits (target <= 2.1)"] = commits
    report("api", figures)


if __name__ == "__main__":
    main()
