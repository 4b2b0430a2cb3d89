"""Finding model servers on this machine: at the ports that they listen on by themselves.

Only loopback is looked at. A port that nobody listens on costs nothing; one that somebody does is
asked which models it serves, and what does not answer that in time is no model server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from nanobot.clock import Clock
from nanobot.errors import ProviderError
from nanobot.providers.probing import served_models

_SECONDS = 1.0

KNOWN = (
    ("Ollama", 11434),
    ("llama.cpp", 8080),
    ("LM Studio", 1234),
    ("vLLM", 8000),
)
"""What people run, and the port that it has unless they choose another."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server that answers. `name` is what usually listens there."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(
    clock: Clock, places: Sequence[tuple[str, int]] = KNOWN, *, seconds: float = _SECONDS
) -> tuple[LocalServer, ...]:
    """The servers that answer, in the order of `places`, which are names and ports. All are asked
    at the same time, and each has `seconds`."""
    listening = await asyncio.gather(*(_listens(port, seconds) for _, port in places))
    open_places = [place for place, is_open in zip(places, listening, strict=True) if is_open]
    found = await asyncio.gather(
        *(_server(name, port, clock, seconds) for name, port in open_places)
    )
    return tuple(server for server in found if server is not None)


async def _listens(port: int, seconds: float) -> bool:
    with suppress(OSError):  # a timeout is one too
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True
    return False


async def _server(name: str, port: int, clock: Clock, seconds: float) -> LocalServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        models = await served_models(base_url, "", clock, seconds=seconds)
    except ProviderError:
        return None
    return LocalServer(name, base_url, models) if models else None
