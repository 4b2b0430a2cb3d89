"""Questions to a model server beside answering: is it there, which models, how large is its window.

Servers on this machine are found at the ports that they listen on by default; only loopback is
looked at. The Chat Completions API has no word for the size of a window, so each kind of server is
asked in its own: what is read is what the server was started with, never more. A server that knows
none of these questions gives no answer, and then the size is unknown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urljoin

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.errors import ProviderError, ProviderGarbage, ProviderRejected
from nanobot.providers.catalogue import PROVIDERS, KnownProvider, provider_at
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, string
from nanobot.providers.http import HttpConnection

_NO_LIST = frozenset({404, 405})


class ListedModel(Struct, frozen=True):
    """A model in a server's list. `window` are the tokens that it takes in all, 0 where the list
    does not say."""

    name: str
    window: int = 0


async def listed_models(
    base_url: str, api_key: str, *, seconds: float, provider: KnownProvider | None = None
) -> tuple[ListedModel, ...]:
    """The models for conversations that a server offers, none where it keeps no list. `seconds`
    bound the connection and each silence. `provider` is who runs it; left out, its address says.
    Raises `ProviderError`."""
    place = _Place(base_url.rstrip("/"), "", api_key.strip(), seconds)
    models = {  # Mistral lists some names twice
        name: ListedModel(name, _window_in(entry))
        for entry in await _listing(place, provider or provider_at(base_url))
        if _converses(entry) and (name := _name_in(entry))
    }
    return tuple(models.values())


async def served_models(base_url: str, api_key: str, *, seconds: float) -> tuple[str, ...]:
    """The names of those. Raises `ProviderError`."""
    return tuple(one.name for one in await listed_models(base_url, api_key, seconds=seconds))


async def _listing(place: _Place, known: KnownProvider | None) -> list[Mapping[str, object]]:
    """The entries that have a name. Raises `ProviderError`."""
    if known and known.listing:
        headers = {**known.headers, known.key_header: place.key}
        place = replace(place, url=urljoin(place.url, "/").rstrip("/"), headers=headers)
    try:
        said = await place.object_at(known.listing if known and known.listing else "/models")
    except ProviderGarbage:
        return []
    except ProviderRejected as error:
        if error.status not in _NO_LIST:
            raise
        return []
    entries = map(mapping, items(said.get("data") or said.get("models")))
    return [entry for entry in entries if _name_in(entry)]


def _name_in(entry: Mapping[str, object]) -> str:
    return string(entry.get("id")) or string(entry.get("name")).removeprefix("models/")


_WINDOW_KEYS = (
    "context_length",  # OpenRouter and many others
    "context_window",  # Groq
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",  # Gemini
    "max_model_len",  # vLLM
)


def _window_in(entry: Mapping[str, object]) -> int:
    """What a list says that a model takes. Where OpenRouter has it from somebody who takes less
    than the model could, that counts."""
    limits = [count(entry.get(key)) for key in _WINDOW_KEYS]
    limits.append(count(mapping(entry.get("top_provider")).get("context_length")))
    return min(filter(None, limits), default=0)


def _converses(entry: Mapping[str, object]) -> bool:
    """Whether a model may be one for conversations with tools: false only where a list denies it,
    as those of Mistral, OpenRouter, Gemini and LM Studio do of models for other things."""
    able = mapping(entry.get("capabilities"))
    parameters, methods = (
        items(entry.get(key)) for key in ("supported_parameters", "supportedGenerationMethods")
    )
    return (
        able.get("completion_chat") is not False
        and (not parameters or "tools" in parameters)
        and (not methods or "generateContent" in methods)
        and entry.get("type") != "embeddings"
    )


_SECONDS = 1.0


class LocalServer(Struct, frozen=True):
    """A model server that answers. `name` is what usually listens there."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(
    places: Sequence[tuple[str, int]] = (), *, seconds: float = _SECONDS
) -> tuple[LocalServer, ...]:
    """The servers that answer, in the order of `places`, which are names and ports; left out, they
    are those of the catalogue. All are asked at the same time, and each has `seconds`."""
    places = places or [(one.name, one.port) for one in PROVIDERS if one.is_local]
    found = await asyncio.gather(*(_server(name, port, seconds) for name, port in places))
    return tuple(server for server in found if server is not None)


async def _server(name: str, port: int, seconds: float) -> LocalServer | None:
    try:  # most listen nowhere, and then the HTTP client need not be loaded
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        base_url = f"http://127.0.0.1:{port}/v1"
        models = await served_models(base_url, "", seconds=seconds)
    except (OSError, ProviderError):  # a timeout is an OSError
        return None
    return LocalServer(name, base_url, models) if models else None


_NUM_CTX = re.compile(r"^num_ctx\s+([0-9]{1,9})\s*$", re.MULTILINE)


class ContextWindow(Struct, frozen=True):
    """What a server says. `now` are the tokens that it takes as it runs, `most` those that the
    model could have; 0 where it does not say. `server` is the program, empty where it is none that
    somebody starts for themselves, and `to_raise` how a person has it take more."""

    now: int = 0
    most: int = 0
    server: str = ""
    to_raise: str = ""


async def detect_window(
    base_url: str,
    model: str,
    api_key: str,
    *,
    seconds: float,
    provider: KnownProvider | None = None,
) -> ContextWindow:
    """What the server at `base_url` says of `model`. `seconds` bound each question; nothing is
    raised for a server that does not answer. `provider` as with `listed_models`."""
    place = _Place(base_url.rstrip("/"), model, api_key.strip(), seconds)
    known = provider or provider_at(base_url)
    entries: list[Mapping[str, object]] = []
    with suppress(ProviderError):
        entries = await _listing(place, known)
    bare = model.removeprefix("models/") if known and known.listing else model
    entry = next((one for one in entries if _name_in(one) == bare), {})
    if limit := count(entry.get("max_model_len")):
        return ContextWindow(limit, limit, "vLLM", "Start it with a larger --max-model-len.")
    if limit := _window_in(entry):
        return ContextWindow(most=limit)
    if known and not known.is_local:  # it has none of the questions below
        return ContextWindow()
    root = place.root()
    trained = count(mapping(entry.get("meta")).get("n_ctx_train"))
    said = await asyncio.gather(_llama(root, trained), _ollama(root), _studio(root))
    return next((window for window in said if window.server), ContextWindow())


async def server_properties(base_url: str, api_key: str, *, seconds: float) -> Mapping[str, object]:
    """Return what llama.cpp's server tells of itself and its chat template, or nothing if another
    server is there. Source: llama.cpp, tools/server/README.md, GET /props."""
    props = await _Place(base_url.rstrip("/"), "", api_key.strip(), seconds).root().ask("/props")
    return props if "default_generation_settings" in props else {}


async def create_larger_variant(
    base_url: str, model: str, api_key: str, tokens: int, *, seconds: float
) -> str:
    """Have Ollama make a variant of a model that takes so many tokens, which shares the model's
    files; its name, or "" where Ollama did not.

    Source: https://github.com/ollama/ollama/blob/main/docs/api.md#create-a-model
    """
    place = _Place(base_url.rstrip("/"), model, api_key.strip(), seconds).root()
    name = f"{model.replace(':', '-')}-{tokens // 1024}k"
    wanted = {"model": name, "from": model, "parameters": {"num_ctx": tokens}, "stream": False}
    said = await place.ask("/api/create", wanted)
    return name if said.get("status") == "success" else ""


class _Place(Struct, frozen=True):
    """Where to ask, and about what."""

    url: str
    model: str
    key: str
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)

    def root(self) -> _Place:
        """The server itself, where its own API begins."""
        return replace(self, url=self.url.removesuffix("/v1"))

    async def ask(
        self, path: str, body: Mapping[str, object] | None = None
    ) -> Mapping[str, object]:
        """The object at `path`, or what is answered to `body`; empty where there is none."""
        with suppress(ProviderError, TimeoutError):
            async with asyncio.timeout(self.seconds):
                return await self.object_at(path, body)
        return {}

    async def object_at(
        self, path: str, body: Mapping[str, object] | None = None
    ) -> Mapping[str, object]:
        """The same. Raises `ProviderError` where there is none."""
        endpoint = Endpoint(self.url, self.model, self.key, headers=self.headers)
        connection = HttpConnection(
            endpoint, connect=self.seconds, stall=self.seconds, finds_v1=False
        )
        try:
            return await connection.ask(path, body)
        finally:
            await connection.close()


async def _llama(place: _Place, trained: int) -> ContextWindow:
    """`trained` is what its list says that the model was made for; it may be started with less."""
    props = await place.ask("/props")
    now = count(mapping(props.get("default_generation_settings")).get("n_ctx"))
    if not (now or trained):
        return ContextWindow()
    return ContextWindow(now, trained, "llama.cpp", "Start it with a larger --ctx-size.")


async def _ollama(place: _Place) -> ContextWindow:
    """A model's own `num_ctx` counts; else what it was loaded with, which the server's
    environment says."""
    shown = await place.ask("/api/show", {"model": place.model})
    facts = mapping(shown.get("model_info"))
    if not facts:
        return ContextWindow()
    most = max((count(facts[key]) for key in facts if key.endswith(".context_length")), default=0)
    written = _NUM_CTX.search(string(shown.get("parameters")))
    now = int(written[1]) if written else await _loaded(place)
    how = "Start Ollama with OLLAMA_CONTEXT_LENGTH=32768 in its environment, or as much as fits."
    if written:
        how = "Its num_ctx says so; make the model again with a larger PARAMETER num_ctx."
    return ContextWindow(min(now, most) if most else now, most, "Ollama", how)


async def _loaded(place: _Place) -> int:
    running = await place.ask("/api/ps")
    entries = (mapping(one) for one in items(running.get("models")))
    wanted = (place.model, f"{place.model}:latest")
    found = (count(one.get("context_length")) for one in entries if one.get("name") in wanted)
    return next(found, 0)


async def _studio(place: _Place) -> ContextWindow:
    said = await place.ask("/api/v0/models")
    entries = map(mapping, items(said.get("data")))
    entry = next((one for one in entries if one.get("id") == place.model), {})
    most = count(entry.get("max_context_length"))
    how = "Load the model in LM Studio with a larger context length."
    now = count(entry.get("loaded_context_length"))
    return ContextWindow(now, most, "LM Studio", how) if most else ContextWindow()
