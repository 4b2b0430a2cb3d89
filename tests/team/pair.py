"""Real workers, usually two, on one database and one folder, used by programs, for tests beyond
fakes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import aiohttp

from bench.team.workers import Worker, Workers
from nanobot.channel.keys import ApiKeys
from nanobot.cli.client import Client
from nanobot.clock import SystemClock
from nanobot.session.records import stem_of
from tests.doubles.openai.server import Author, FakeOpenAI
from tests.team.support import sql

_NEEDED = ("phone_number_id", "access_token", "app_secret", "verify_token")
"""Settings of a disabled channel."""

_PATIENCE = 60.0
"""Seconds after which a test hangs."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The workers, the requests to their model, and the key of each person's program."""

    workers: Workers
    model: FakeOpenAI
    keys: Mapping[str, str]
    client: aiohttp.ClientSession
    dsn: str

    @property
    def both(self) -> Sequence[Worker]:
        return self.workers.all

    @property
    def shared(self) -> Path:
        """Their folder."""
        return self.workers.shared

    async def until_reached(self, worker: Worker) -> None:
        """Wait until a worker answers requests."""
        while True:
            try:
                async with self.client.get(f"http://127.0.0.1:{worker.port}/v1/models"):
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)

    async def ask(
        self, worker: Worker, text: str, *, person: str = "ann", talk: str = "talk", name: str = ""
    ) -> str:
        """Return a worker's answer in a conversation. `name` is the request's."""
        headers = {"Authorization": f"Bearer {self.keys[person]}"}
        if name:
            headers["Idempotency-Key"] = name
        said = [{"role": "user", "content": text}]
        body = {"model": "nanobot", "metadata": {"session_id": talk}, "messages": said}
        url = f"http://127.0.0.1:{worker.port}/v1/chat/completions"
        async with self.client.post(url, json=body, headers=headers) as answer:
            given = await answer.json(content_type=None)
            assert answer.status == 200, given
            return str(given["choices"][0]["message"]["content"])

    async def call(self, worker: Worker, operation: str, **arguments: object) -> object:
        """Return the result of an operation at a worker."""

        def ask() -> object:
            with Client(worker.home) as client:
                return client.ask(operation, arguments)

        return await asyncio.to_thread(ask)

    async def until_empty(self, worker: Worker) -> None:
        """Wait until a worker lists no pending or failed message."""
        while True:
            listed = await self.call(worker, "queue.list")
            assert isinstance(listed, dict)
            if not listed["inbox"]:
                return
            await asyncio.sleep(0.1)

    async def lines(self, session: str) -> list[Mapping[str, object]]:
        """Return the lines of a conversation's file, once everything is stored."""
        while True:
            if not await asyncio.to_thread(sql, self.dsn, "SELECT 1 FROM unfiled LIMIT 1"):
                break
            await asyncio.sleep(0.1)
        path = self.shared / "sessions" / f"{stem_of(session)}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@contextlib.asynccontextmanager
async def pair(
    folder: Path,
    dsn: str,
    author: Author,
    *,
    people: Sequence[str] = ("ann",),
    latency: float = 0.0,
    pace: float = 0.0,
    turns: int = 16,
    prepare: Callable[[Path], None] = lambda shared: None,
    environ: Mapping[str, str] = MappingProxyType({}),
    patience: float = _PATIENCE,
) -> AsyncIterator[Pair]:
    """Run both workers, each with this many `turns` at once.

    `people` have numbers on Telegram from 1 on, and the first is the owner. `environ` has more
    variables for the workers. `prepare` gets the shared folder before they start."""
    workers = Workers(folder, ("one", "two"))
    workers.environ = environ
    keys = ApiKeys(workers.shared / "state" / "channels" / "api")
    now = SystemClock("UTC").now()
    async with (
        FakeOpenAI(author, latency=latency, pace=pace) as model,
        aiohttp.ClientSession() as client,
    ):
        workers.configure(
            [dsn] * len(workers.all),
            model=model.base_url,
            balancer="https://127.0.0.1",
            telegram="http://127.0.0.1:9",
            token="1:abcdef",
            telegram_people=[str(number) for number, _ in enumerate(people, 1)],
            whatsapp_people=[],
            whatsapp="\n    ".join(("transport: cloud", *(f"{key}: '1234567'" for key in _NEEDED))),
            has_telegram=False,
            has_whatsapp=False,
            has_api=True,
            grace=1.0,
            turns=turns,
        )
        named = enumerate(people, 1)
        given = {name: keys.add(name, f"telegram:{number}", now) for number, name in named}
        prepare(workers.shared)
        try:
            await workers.start()
            team = Pair(workers, model, given, client, dsn)
            async with asyncio.timeout(patience):
                await asyncio.gather(*(team.until_reached(one) for one in workers.all))
                yield team
        finally:
            await workers.stop()
