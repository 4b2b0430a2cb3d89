"""How many tokens a model server takes, from the server itself where it says so.

The Chat Completions API has no word for it, so each server is asked in its own: what is read is
what the server was started with, never more than that. A server that knows none of these questions
answers nothing, and so does this.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot.clock import Clock
from nanobot.errors import ProviderError
from nanobot.providers.failures import Endpoint
from nanobot.providers.fields import count, items, mapping, parse_json, string
from nanobot.providers.opening import open_connection

if TYPE_CHECKING:
    from nanobot.providers.sdk import Connection

_LIMIT = 16_000_000
"""Bytes of an answer; Ollama's holds the words of the model's tokenizer."""
_NUM_CTX = re.compile(r"^num_ctx\s+([0-9]{1,9})\s*$", re.MULTILINE)
_LISTED = ("context_length", "context_window", "max_context_length")


@dataclass(frozen=True, slots=True)
class Window:
    """What a server says. `now` are the tokens that it takes as it runs, `most` those that the
    model could have; 0 where it does not say. `server` is the program, empty where it is none that
    somebody starts for themselves, and `to_raise` how a person has it take more."""

    now: int = 0
    most: int = 0
    server: str = ""
    to_raise: str = ""


async def told_window(
    base_url: str, model: str, api_key: str, clock: Clock, *, seconds: float
) -> Window:
    """What the server at `base_url` says of `model`. `seconds` bound each question; nothing is
    raised for a server that does not answer."""
    place = _Place(base_url.rstrip("/"), model, api_key.strip(), clock, seconds)
    entry = _entry(await place.get("/models"), model)
    if limit := count(entry.get("max_model_len")):
        return Window(limit, limit, "vLLM", "Start it with a larger --max-model-len.")
    if limit := next(filter(None, (count(entry.get(key)) for key in _LISTED)), 0):
        return Window(most=limit)
    root = place.root()
    said = await asyncio.gather(_llama(root), _ollama(root), _studio(root))
    return next((window for window in said if window.server), Window())


async def make_larger(
    base_url: str, model: str, api_key: str, clock: Clock, tokens: int, *, seconds: float
) -> str:
    """Have Ollama make a variant of a model that takes so many tokens, which shares the model's
    files; its name, or "" where Ollama did not.

    Source: https://github.com/ollama/ollama/blob/main/docs/api.md#create-a-model
    """
    place = _Place(base_url.rstrip("/"), model, api_key.strip(), clock, seconds).root()
    name = f"{model.replace(':', '-')}-{tokens // 1024}k"
    wanted = {"model": name, "from": model, "parameters": {"num_ctx": tokens}, "stream": False}
    said = await place.post("/api/create", wanted)
    return name if said.get("status") == "success" else ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to ask, and about what."""

    url: str
    model: str
    key: str
    clock: Clock
    seconds: float

    def root(self) -> _Place:
        """The server itself, where its own API begins."""
        url = self.url.removesuffix("/v1")
        return _Place(url, self.model, self.key, self.clock, self.seconds)

    async def get(self, path: str) -> Mapping[str, object]:
        """The object at `path`; empty where there is none."""
        try:
            async with asyncio.timeout(self.seconds), self._open() as connection:
                return _object(await connection.get(path, _LIMIT))
        except (ProviderError, TimeoutError):
            return {}

    async def post(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        """What is answered to `body`; empty where nothing is."""
        said = b""
        try:
            async with (
                asyncio.timeout(self.seconds),
                self._open() as connection,
                connection.post(path, json.dumps(body).encode()) as chunks,
            ):
                async for chunk in chunks:
                    said += chunk
                    if len(said) > _LIMIT:
                        return {}
        except (ProviderError, TimeoutError):
            return {}
        return _object(said)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Connection]:
        endpoint = Endpoint(self.url, self.model, self.clock, self.key)
        connection = await asyncio.to_thread(
            open_connection, endpoint, connect=self.seconds, stall=self.seconds
        )
        try:
            yield connection
        finally:
            await connection.close()


async def _llama(place: _Place) -> Window:
    props = await place.get("/props")
    now = count(mapping(props.get("default_generation_settings")).get("n_ctx"))
    if not now:
        return Window()
    return Window(now, 0, "llama.cpp", "Start it with a larger --ctx-size.")


async def _ollama(place: _Place) -> Window:
    """A model's own `num_ctx` counts; else what it was loaded with, which the server's
    environment says."""
    shown = await place.post("/api/show", {"model": place.model})
    facts = mapping(shown.get("model_info"))
    if not facts:
        return Window()
    most = max((count(facts[key]) for key in facts if key.endswith(".context_length")), default=0)
    written = _NUM_CTX.search(string(shown.get("parameters")))
    now = int(written[1]) if written else await _loaded(place)
    how = "Start Ollama with OLLAMA_CONTEXT_LENGTH=32768 in its environment, or as much as fits."
    if written:
        how = "Its num_ctx says so; make the model again with a larger PARAMETER num_ctx."
    return Window(min(now, most) if most else now, most, "Ollama", how)


async def _loaded(place: _Place) -> int:
    running = await place.get("/api/ps")
    entries = (mapping(one) for one in items(running.get("models")))
    wanted = (place.model, f"{place.model}:latest")
    found = (count(one.get("context_length")) for one in entries if one.get("name") in wanted)
    return next(found, 0)


async def _studio(place: _Place) -> Window:
    entry = _entry(await place.get("/api/v0/models"), place.model)
    most = count(entry.get("max_context_length"))
    if not most:
        return Window()
    how = "Load the model in LM Studio with a larger context length."
    return Window(count(entry.get("loaded_context_length")), most, "LM Studio", how)


def _entry(listing: Mapping[str, object], model: str) -> Mapping[str, object]:
    """What a list says of a model."""
    entries = map(mapping, items(listing.get("data")))
    return next((one for one in entries if one.get("id") == model), {})


def _object(said: bytes) -> Mapping[str, object]:
    try:
        return mapping(parse_json(said))
    except ValueError:
        return {}
