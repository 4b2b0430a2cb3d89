"""Shared parts of the tests of a whole nanobot on the Cloud API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from loguru import logger

from nanobot.app.gateway import Gateway
from nanobot.clock import Clock
from nanobot.providers.port import Provider
from tests.channels.telegram.support import PATIENCE
from tests.channels.telegram.whole import status_of
from tests.doubles.graph import PERSON, FakeGraphAPI
from tests.ports import free_port
from tests.support import start_configured

OWNER = PERSON
PUBLIC = "https://bot.example.org/whatsapp"


@contextlib.asynccontextmanager
async def meta(clock: Clock) -> AsyncIterator[FakeGraphAPI]:
    """Run Meta, which posts to the port of the nanobot in `talking`. At the end no secret is in the
    log."""
    port = free_port()
    async with FakeGraphAPI(clock=clock, retry=0.01) as graph:
        graph.webhook.deliver_to(f"http://127.0.0.1:{port}/whatsapp")
        secrets = (graph.token, graph.app_secret, graph.verify_token)
        lines: list[str] = []
        sink = logger.add(lines.append, level=0, backtrace=True, diagnose=True)
        try:
            yield graph
        finally:
            logger.remove(sink)
    assert not any(secret in line for secret in secrets for line in lines)


@contextlib.asynccontextmanager
async def talking(
    home: Path,
    graph: FakeGraphAPI,
    model: Provider | None,
    clock: Clock,
    *,
    settings: Mapping[str, object] | None = None,
    **environ: str,
) -> AsyncIterator[Gateway]:
    """Run a gateway on `home`, whose owner is `OWNER`. `settings` are further keys of
    `channels.whatsapp`, with priority."""
    section = {"enabled": True, **graph.settings(), "webhook_url": PUBLIC, **(settings or {})}
    config = {
        "owner": {"whatsapp": [OWNER]},
        "http": {"port": urlsplit(graph.webhook.url).port},
        "channels": {"whatsapp": section},
    }
    async with start_configured(
        home, config, model, clock=clock, tools=(), hooks=(), **environ
    ) as gateway:
        yield gateway


async def channel_state(home: Path) -> tuple[str, str]:
    """Return the state of WhatsApp in `nanobot status`."""
    (state,) = [one for one in (await status_of(home))["channels"] if one["name"] == "whatsapp"]
    return state["state"], state["detail"]


async def until(home: Path, state: str, words: str = "") -> None:
    """Wait until `nanobot status` shows this state of WhatsApp, with these words or without a
    text."""
    async with asyncio.timeout(PATIENCE):
        while True:
            now, detail = await channel_state(home)
            if now == state and (words in detail if words else not detail):
                return
