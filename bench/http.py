"""Compare a turn over HTTP with the bare minimum: post the same body and fsync one line.

Both use the same loopback server, a separate process that speaks Chat Completions. nanobot keeps
1,000 messages in the window, journals, saves and delivers. The minimum is a script with aiohttp
that posts the bytes of nanobot's last request, reads the answer and fdatasyncs one line. They
alternate, so that both see the same machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import aiohttp

from bench.common import ModelServer, gateway, median, write_session
from bench.reporting import report
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.channel import FakeChannel

TURNS, ROUNDS = 25, 8


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
    with tempfile.TemporaryDirectory() as folder, ModelServer() as server:
        ours, floor = asyncio.run(compare(Path(folder), server.base_url))
    report(
        "http",
        {
            "a turn with 1,000 messages in the window [ms]": ours,
            "the floor: aiohttp and one fdatasync [ms]": floor,
            "ratio (target <= 1.5)": ours / floor,
        },
    )


if __name__ == "__main__":
    main()
