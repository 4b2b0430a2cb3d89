"""Queries of a model server: its models, their context windows, and their tool calling.

Servers on this machine are found at their usual ports on loopback. The Chat Completions API does
not report context windows, so each kind of server has its own query for the window that it was
started with. If a server supports none of them, the window is unknown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ProviderError, ProviderGarbage, ProviderRejected
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, string
from nanobot.providers.http import HttpConnection
from nanobot.providers.known_servers import PROVIDERS, KnownProvider, provider_at

_NO_LIST = frozenset({404, 405})  # statuses of servers without a list
_LONGEST_NAME = 256


class ListedModel(Struct, frozen=True):
    """A model in a server's list. `window` is its context window in tokens, 0 if unknown."""

    name: str
    window: int = 0


def list_entries(answer: Mapping[str, object]) -> list[Mapping[str, object]]:
    entries = map(mapping, items(answer.get("data") or answer.get("models")))
    return [entry for entry in entries if name_of_entry(entry)]


def name_of_entry(entry: Mapping[str, object]) -> str:
    """Return the model's name, or "" if there is none or no model has such a name."""
    name = string(entry.get("id")) or string(entry.get("name")).removeprefix("models/")
    return name if len(name) <= _LONGEST_NAME else ""


_WINDOW_KEYS = (
    "context_length",  # OpenRouter and many others
    "context_window",  # Groq
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",  # Gemini
    "max_model_len",  # vLLM
)


def window_of_entry(entry: Mapping[str, object]) -> int:
    """Return the context window in a list, or 0. OpenRouter may serve the model from a provider
    with a smaller window, which counts."""
    limits = [count(entry.get(key)) for key in _WINDOW_KEYS]
    limits.append(count(mapping(entry.get("top_provider")).get("context_length")))
    return min(filter(None, limits), default=0)


def read_flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


_OTHER_THINGS = re.compile(
    r"embed|whisper|transcri|moderation|rerank|dall-e|stable-diffusion|turbo-instruct"
    r"|(?<![a-z0-9])(?:bge|e5|gte|minilm|paraphrase|tts|image|imagine|sora|realtime"
    r"|davinci|babbage)(?![a-z])"
)
"""Names of models that are not for conversations, for lists without types. Sources:
https://platform.openai.com/docs/models, https://ollama.com/search?c=embedding and
https://console.groq.com/docs/models"""
_OTHER_TYPES = frozenset(
    {"embedding", "embeddings", "rerank", "image", "audio", "video", "moderation", "transcribe"}
)
"""Types in the lists of Together and LM Studio. Source:
https://docs.together.ai/reference/models-1"""


def supports_conversation(entry: Mapping[str, object]) -> bool:
    """Return False only if the list or the model's name rules out conversations with tools.
    Mistral, OpenRouter, Gemini and LM Studio list that."""
    able = mapping(entry.get("capabilities"))
    parameters, methods = (
        items(entry.get(key)) for key in ("supported_parameters", "supportedGenerationMethods")
    )
    return (
        able.get("completion_chat") is not False
        and (not parameters or "tools" in parameters)
        and (not methods or "generateContent" in methods)
        and entry.get("type") not in _OTHER_TYPES
        and not _OTHER_THINGS.search(name_of_entry(entry).lower().rpartition("/")[2])
    )


_SECONDS = 1.0  # for a server on this machine


class LocalServer(Struct, frozen=True):
    """A responding model server. `name` is the usual program at its port, `models` are its models
    for conversations."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(
    places: Sequence[tuple[str, int]] = (), *, seconds: float = _SECONDS
) -> tuple[LocalServer, ...]:
    """Return the responding servers in the order of `places` (names and ports, by default the
    catalogue's). All are queried at the same time, each for at most `seconds`."""
    places = places or [(one.name, one.port) for one in PROVIDERS if one.is_local]
    found = await asyncio.gather(*(find_server(name, port, seconds) for name, port in places))
    return tuple(server for server in found if server is not None)


async def find_server(name: str, port: int, seconds: float) -> LocalServer | None:
    try:  # most ports are closed, and then the HTTP client is not loaded
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        server = ModelServer(f"http://127.0.0.1:{port}/v1", "", seconds)
        answer = await server.object_at("/models")
    except (OSError, ProviderError):  # includes timeouts
        return None
    if not ({"data", "models"} & answer.keys()):
        return None
    models = {
        name_of_entry(one): None for one in list_entries(answer) if supports_conversation(one)
    }
    return LocalServer(name, server.base_url, tuple(models))


_NUM_CTX = re.compile(r"^num_ctx\s+([0-9]{1,9})\s*$", re.MULTILINE)
_ADVICE: Mapping[str, tuple[str, str]] = {
    "": ("", "Try another model."),
    "llama.cpp": (
        "Start llama-server with a larger --ctx-size.",
        "Start llama-server with --jinja and a model whose chat template has tools, such as Qwen3.",
    ),
    "LM Studio": (
        "Load the model in LM Studio with a larger context length.",
        "Choose a model that LM Studio marks with a hammer, such as qwen/qwen3-8b.",
    ),
    "Ollama": (
        "Start Ollama with OLLAMA_CONTEXT_LENGTH=32768 (or what fits in memory) in its "
        "environment. If the model sets its own num_ctx, recreate the model with a larger num_ctx.",
        "Choose a model from https://ollama.com/search?c=tools, such as qwen3:8b.",
    ),
    "vLLM": (
        "Start vLLM with a larger --max-model-len.",
        "Start vLLM with --enable-auto-tool-choice and the --tool-call-parser for this model.",
    ),
}
"""Advice by server: for a larger window, and for tool calls."""


class ModelFacts(Struct, frozen=True):
    """A server's report about a model.

    The context window in tokens: `now` as it runs, `most` as large as the model supports, 0 if
    unknown. `tools`: whether the model calls them, None if unknown. `server` is the program, if
    people run it themselves."""

    now: int = 0
    most: int = 0
    tools: bool | None = None
    server: str = ""

    @property
    def window(self) -> int:
        """The window as far as it is known, or 0. A self-hosted server may have been started with
        less than the model supports."""
        return self.now or (0 if self.server else self.most)

    @property
    def to_raise(self) -> str:
        return _ADVICE[self.server][0]

    @property
    def for_tools(self) -> str:
        return _ADVICE[self.server][1]

    @property
    def no_tools(self) -> str:
        """The consequence of a model that can't call tools, for people."""
        return (
            f"{self.server or 'its server'} reports that this model can't call tools, so nanobot"
            " reads tool calls from its text. Small models often get them wrong"
        )


class ModelServer(Struct, frozen=True):
    """A model server to query. `seconds` bounds the connection and each silence. `provider`
    defaults to the one at the address."""

    base_url: str
    api_key: str
    seconds: float
    provider: KnownProvider | None = None

    async def models(self, *, every: bool = False) -> tuple[ListedModel, ...]:
        """Return the listed models for conversations with tools, or `every` model. Empty if the
        server has no list. Raise `ProviderError`."""
        models = {  # Mistral lists some names twice
            name: ListedModel(name, window_of_entry(entry))
            for entry in await self._fetch_list()
            if (every or supports_conversation(entry)) and (name := name_of_entry(entry))
        }
        return tuple(models.values())

    async def locate(self, *, every: bool = False) -> tuple[ModelServer, Sequence[ListedModel]]:
        """Return the server at the address that lists its models, and the list. An address without
        a path may lack /v1. Raise `ProviderError`."""
        models = await self.models(every=every)
        longer = replace(self, base_url=f"{self.base_url.rstrip('/')}/v1")
        if not models and lacks_path(self.base_url) and (found := await longer.models(every=every)):
            return longer, found
        return self, models

    async def facts(self, model: str) -> ModelFacts:
        """Query a model's facts. An unreachable server raises nothing."""
        entry = await self._find_entry(model)
        most = window_of_entry(entry)
        if "max_model_len" in entry:
            return ModelFacts(most, most, server="vLLM")
        known = self._provider
        if most or (known and not known.is_local):
            return ModelFacts(most=most)
        root = self._root  # only local servers support these queries
        answers = await asyncio.gather(
            query_llama(root, entry), query_ollama(root, model), query_studio(root, model)
        )
        return next((facts for facts in answers if facts), ModelFacts())

    async def create_larger_variant(self, model: str, tokens: int) -> str:
        """Make Ollama create a variant of a model with a window of `tokens`, which shares the
        model's files. Return its name, or "" on failure.

        Source: https://github.com/ollama/ollama/blob/main/docs/api.md#create-a-model"""
        name = f"{model.replace(':', '-')}-{tokens // 1024}k"
        wanted = {"model": name, "from": model, "parameters": {"num_ctx": tokens}, "stream": False}
        answer = await self._root.ask("/api/create", wanted)
        return name if answer.get("status") == "success" else ""

    async def ask(
        self, path: str, body: Mapping[str, object] | None = None
    ) -> Mapping[str, object]:
        """Return the object at `path`, or the answer to `body`. Empty if there is none."""
        with suppress(ProviderError, TimeoutError):
            async with asyncio.timeout(self.seconds):
                return await self.object_at(path, body)
        return {}

    async def object_at(
        self,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Mapping[str, object]:
        """Return the same as `ask`. Raise `ProviderError` if there is none."""
        url = self.base_url.rstrip("/")
        endpoint = Endpoint(url, "", self.api_key.strip(), headers=headers)
        connection = HttpConnection(
            endpoint, connect=self.seconds, stall=self.seconds, finds_v1=False
        )
        try:
            return await connection.ask(path, body)
        finally:
            await connection.close()

    @property
    def _provider(self) -> KnownProvider | None:
        return self.provider or provider_at(self.base_url)

    @property
    def _root(self) -> ModelServer:
        return replace(self, base_url=self.base_url.rstrip("/").removesuffix("/v1"))

    async def _fetch_list(self) -> list[Mapping[str, object]]:
        """Return the entries with a name. Raise `ProviderError`."""
        known = self._provider
        try:
            if known and known.listing:
                headers = {**known.headers, known.key_header: self.api_key.strip()}
                root = replace(self, base_url=urljoin(self.base_url, "/"))
                return list_entries(await root.object_at(known.listing, None, headers))
            return list_entries(await self.object_at("/models"))
        except ProviderGarbage:
            return []
        except ProviderRejected as error:
            if error.status not in _NO_LIST:
                raise
            return []

    async def _find_entry(self, model: str) -> Mapping[str, object]:
        """Return the model's entry in the list, or the only entry if no model is named."""
        entries: list[Mapping[str, object]] = []
        with suppress(ProviderError):
            entries = await self._fetch_list()
        if not model and len(entries) == 1:
            return entries[0]
        bare = model.removeprefix("models/") if self._provider and self._provider.listing else model
        return next((one for one in entries if name_of_entry(one) == bare), {})


def lacks_path(base_url: str) -> bool:
    return urlsplit(base_url).path in ("", "/")


async def query_llama(root: ModelServer, entry: Mapping[str, object]) -> ModelFacts | None:
    """Query llama.cpp. `entry` is the model's in the list of models.

    Source: llama.cpp, tools/server/README.md, GET /props and GET /v1/models; its answers of
    2026."""
    props, meta = await root.ask("/props"), mapping(entry.get("meta"))
    now = count(mapping(props.get("default_generation_settings")).get("n_ctx"))
    now, most = now or count(meta.get("n_ctx")), count(meta.get("n_ctx_train"))
    tools = read_flag(mapping(props.get("chat_template_caps")).get("supports_tools"))
    return ModelFacts(now, most, tools, "llama.cpp") if now or most else None


async def query_ollama(root: ModelServer, model: str) -> ModelFacts | None:
    """Query Ollama. A model's own `num_ctx` counts, else the window that it was loaded with.

    Source: https://docs.ollama.com/api-reference/show-model-details and
    https://docs.ollama.com/capabilities/tool-calling; `capabilities` since Ollama 0.6.4."""
    shown = await root.ask("/api/show", {"model": model})
    if not (facts := mapping(shown.get("model_info"))):
        return None
    most = max((count(facts[key]) for key in facts if key.endswith(".context_length")), default=0)
    if written := _NUM_CTX.search(string(shown.get("parameters"))):
        now = int(written[1])
    else:
        loaded = map(mapping, items((await root.ask("/api/ps")).get("models")))
        names = (model, f"{model}:latest")  # the default tag
        lengths = (count(one.get("context_length")) for one in loaded if one.get("name") in names)
        now = next(lengths, 0)
    able = items(shown.get("capabilities"))
    tools = "tools" in able if able else None
    return ModelFacts(min(now, most) if most else now, most, tools, "Ollama")


async def query_studio(root: ModelServer, model: str) -> ModelFacts | None:
    """Query LM Studio. The loaded length counts, not the model's maximum.

    Source: https://lmstudio.ai/docs/developer/rest/list (since LM Studio 0.4)."""
    answer = await root.ask("/api/v1/models")
    for entry in map(mapping, items(answer.get("models"))):
        loaded = [mapping(one) for one in items(entry.get("loaded_instances"))]
        most = count(entry.get("max_context_length"))
        if most and model in (entry.get("key"), *(one.get("id") for one in loaded)):
            lengths = (count(mapping(one.get("config")).get("context_length")) for one in loaded)
            now, able = min(filter(None, lengths), default=0), mapping(entry.get("capabilities"))
            return ModelFacts(now, most, read_flag(able.get("trained_for_tool_use")), "LM Studio")
    return None
