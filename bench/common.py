"""Shared parts of the benchmarks: a gateway in this process, a home to fill, and a model server.

Printing is in `bench.reporting`, which imports nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

from loguru import logger

from nanobot.app.gateway import Gateway
from nanobot.channel import Channel
from nanobot.config.load import load_settings
from nanobot.messages import Message
from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink
from nanobot.session.records import Metadata, encode, stem_of
from nanobot.session.session import ARCHIVED

START = datetime(2026, 1, 1, tzinfo=UTC)


class Instant:
    """Model that answers at once, or after `latency` seconds."""

    def __init__(self, latency: float = 0.0, text: str = "A short answer, like most.") -> None:
        self._latency, self._text = latency, text

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Return the same answer each time."""
        if self._latency:
            await asyncio.sleep(self._latency)
        return Reply(self._text)

    async def close(self) -> None:
        """Do nothing."""


@contextlib.asynccontextmanager
async def gateway(
    home: Path, provider: Provider | None, *channels: Channel, **environ: str
) -> AsyncIterator[Gateway]:
    """Run a whole nanobot in this process, whose channels admit everyone.

    Conversations stay within the model's context window, because a turn is measured and not
    consolidation."""
    settings = load_settings(home, {"NANOBOT_MEMORY__WINDOW": "1000000"} | environ)
    built = Gateway(
        settings,
        provider=provider,
        learner=OfflineModel(),
        channels=channels,
        admit_everyone=True,
    )
    logger.remove()
    gc.freeze()  # both as in `nanobot gateway`
    gc.set_threshold(5_000)
    ready = asyncio.Event()
    running = asyncio.get_running_loop().create_task(built.run(on_ready=ready.set, signals=False))
    waiting = asyncio.get_running_loop().create_task(ready.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    try:
        yield built
    finally:
        built.request_stop()
        await running


class ModelServer:
    """The fake Chat Completions server in its own process, as a context manager."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments or ("--reply", "A short answer, like most.")
        self.base_url = ""

    def __enter__(self) -> ModelServer:
        command = [sys.executable, "-m", "tests.doubles.openai.server", *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.base_url = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def write_session(
    home: Path, key: str, total: int, consolidated: int, *, archived: bool = False
) -> None:
    """Write a session file of `total` messages of ordinary length, the first `consolidated` of them
    consolidated."""
    folder = home / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    facts = {ARCHIVED: True} if archived else None
    metadata = Metadata(key, START, START, last_consolidated=consolidated, metadata=facts)
    with (folder / f"{stem_of(key)}.jsonl").open("w") as file:
        file.write(encode(metadata))
        for message in conversation(total):
            file.write(encode(message))
        file.write(encode(metadata))


def conversation(total: int) -> Iterable[Message]:
    """Return `total` alternating messages of about forty words."""
    for seq in range(1, total + 1):
        role = "user" if seq % 2 else "assistant"
        text = f"Message {seq}: " + "some words about the weather, work and what to cook. " * 4
        yield Message(
            "user" if role == "user" else "assistant",
            text,
            START + timedelta(minutes=seq),
            seq,
            turn_id=f"old-{(seq + 1) // 2}",
        )


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def load_once(*modules: str) -> None:
    """Import modules that every process of a campaign would otherwise import itself."""
    for name in modules:
        import_module(name)
