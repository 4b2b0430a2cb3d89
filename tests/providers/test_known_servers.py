"""Providers by name: each is found by its address, and its list of models is read in its own
form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from msgspec.structs import replace

from nanobot.config.values import OFFICIAL_API
from nanobot.errors import ProviderRejected, ProviderUnavailable
from nanobot.providers.discovery import ListedModel, ModelServer
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.known_servers import PROVIDERS, KnownProvider, provider_at, similar_names
from tests.doubles.server import Served

BY_ID = {one.id: one for one in PROVIDERS}
KEY = "sk-1234567"


def entry(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "object": "model", "owned_by": "somebody", **more}


LISTS: Mapping[str, tuple[dict[str, Any], list[ListedModel]]] = {
    "openai": ({"data": [entry("gpt-5-mini")]}, [ListedModel("gpt-5-mini")]),
    "anthropic": (
        {
            "data": [
                {
                    "type": "model",
                    "id": "claude-x",
                    "display_name": "X",
                    "max_input_tokens": 200_000,
                }
            ],
            "has_more": False,
        },
        [ListedModel("claude-x", 200_000)],
    ),
    "gemini": (
        {
            "models": [
                {
                    "name": "models/gemini-x",
                    "inputTokenLimit": 1_048_576,
                    "supportedGenerationMethods": ["generateContent", "countTokens"],
                },
                {
                    "name": "models/gemini-embedding-x",
                    "inputTokenLimit": 2_048,
                    "supportedGenerationMethods": ["embedContent"],
                },
            ]
        },
        [ListedModel("gemini-x", 1_048_576)],
    ),
    "openrouter": (
        {
            "data": [
                {
                    "id": "vendor/whole",
                    "context_length": 262_144,
                    "top_provider": {"context_length": 131_072},
                    "supported_parameters": ["max_tokens", "tools"],
                },
                {
                    "id": "vendor/no-tools",
                    "context_length": 8_192,
                    "supported_parameters": ["max_tokens"],
                },
            ]
        },
        [ListedModel("vendor/whole", 131_072)],
    ),
    "groq": (
        {"data": [entry("openai/gpt-oss-120b", active=True, context_window=131_072)]},
        [ListedModel("openai/gpt-oss-120b", 131_072)],
    ),
    "deepseek": ({"data": [entry("deepseek-v4-flash")]}, [ListedModel("deepseek-v4-flash")]),
    "mistral": (
        {
            "data": [
                entry(
                    "mistral-medium-latest",
                    max_context_length=131_072,
                    capabilities={"completion_chat": True, "function_calling": True},
                ),
                entry("mistral-medium-latest", max_context_length=131_072),
                entry(
                    "mistral-embed",
                    max_context_length=8_192,
                    capabilities={"completion_chat": False},
                ),
            ]
        },
        [ListedModel("mistral-medium-latest", 131_072)],
    ),
    "xai": ({"data": [entry("grok-4.3")]}, [ListedModel("grok-4.3")]),
    "ollama": ({"data": [entry("qwen3:8b")]}, [ListedModel("qwen3:8b")]),
    "lmstudio": ({"data": [entry("qwen/qwen3-8b")]}, [ListedModel("qwen/qwen3-8b")]),
    "llamacpp": (
        {"data": [entry("qwen3-8b", meta={"n_ctx_train": 40_960})]},
        [ListedModel("qwen3-8b")],
    ),
    "vllm": (
        {"data": [entry("Qwen/Qwen3-8B", max_model_len=32_768)]},
        [ListedModel("Qwen/Qwen3-8B", 32_768)],
    ),
}
"""Answers with the servers' lists, in their own shapes, and the expected models."""


@asynccontextmanager
async def listing(known: KnownProvider) -> AsyncIterator[tuple[KnownProvider, list[web.Request]]]:
    """Yield the provider at another address, with its list behind the key."""
    asked: list[web.Request] = []
    path = urlsplit(known.listing or f"{known.base_url}/models").path

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        if request.path != path:
            return web.json_response({}, status=404)
        sent = request.headers.get(known.key_header or "authorization", "")
        if sent.removeprefix("Bearer ") != KEY:
            return web.json_response({"error": {"message": "no"}}, status=401)
        return web.json_response(LISTS[known.id][0])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    served = await Served.start(app)
    try:
        moved = f"http://127.0.0.1:{served.port}{urlsplit(known.base_url).path}"
        yield replace(known, base_url=moved), asked
    finally:
        await served.stop()


@pytest.mark.parametrize("known", PROVIDERS, ids=lambda one: one.id)
async def test_a_list_is_read_in_the_shape_that_the_provider_has_it(known: KnownProvider) -> None:
    async with listing(known) as (there, asked):
        models = await ModelServer(there.base_url, KEY, 20.0, there).models()
        with pytest.raises(ProviderRejected, match="401"):
            await ModelServer(there.base_url, "sk-2", 20.0, there).models()
    assert list(models) == LISTS[known.id][1]
    for name, value in known.headers.items():
        assert asked[0].headers[name] == value
    if known.key_header:
        assert "authorization" not in asked[0].headers, "two keys are one too many"


@pytest.mark.parametrize(
    ("id", "most"),
    [("anthropic", 200_000), ("gemini", 1_048_576), ("openrouter", 131_072), ("groq", 131_072),
     ("mistral", 131_072), ("vllm", 32_768), ("llamacpp", 40_960), ("deepseek", 0)],
)  # fmt: skip
async def test_a_window_is_what_the_list_says(id: str, most: int) -> None:
    name = LISTS[id][1][0].name
    async with listing(BY_ID[id]) as (there, asked):
        window = await ModelServer(there.base_url, KEY, 20.0, there).facts(name)
    assert window.most == most
    if not there.is_local:
        assert len(asked) == 1, "a provider has none of the questions of local servers"


def test_each_is_known_by_its_address_and_by_that_alone() -> None:
    for one in PROVIDERS:
        assert provider_at(one.base_url) == one
        assert provider_at(f"{one.base_url}/") == one
        assert bool(one.keys_at) == bool(one.key_variable) == (not one.is_local)
    assert BY_ID["openai"].base_url == OFFICIAL_API
    assert provider_at("http://localhost:11434/v1") == BY_ID["ollama"]
    others = (
        "http://192.168.1.2:11434/v1", "http://127.0.0.1:11435/v1", "https://api.example.com/v1",
        "https://api.groq.com.example.com/v1", "http://[", "",
    )  # fmt: skip
    assert [provider_at(other) for other in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("id", "status", "body", "hint"),
    [
        ("groq", 401, b"{}", "https://console.groq.com/keys"),
        ("groq", 404, b"{}", "Groq has no model 'm'"),
        ("ollama", 404, b'{"error": {"message": "model not found"}}', "`ollama pull NAME`"),
        (
            "gemini", 400, b'[{"error": {"message": "API key not valid."}}]',
            "https://aistudio.google.com/apikey",
        ),
        ("xai", 400, b'{"error": "Incorrect API key provided: sk-1234567"}', "https://console.x.ai"),
        ("xai", 400, b'{"error": "messages must not be empty"}', ""),
        ("openrouter", 402, b'{"error": {"message": "no credits"}}', "no credit left"),
        (
            "openrouter", 404,
            b'{"error": {"message": "No endpoints found that support tool use."}}',
            "This model can't call tools. Choose one that can.",
        ),
        (
            "ollama", 400,
            b'{"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}}',
            "This model can't call tools. Choose one that can.",
        ),
        (
            "llamacpp", 500, b'{"error": {"message": "tools param requires --jinja flag"}}',
            "Start llama-server with --jinja.",
        ),
        ("llamacpp", 404, b"{}", "model.base_url, which ends in /v1"),
    ],
)  # fmt: skip
def test_what_is_refused_comes_with_what_to_do_there(
    id: str, status: int, body: bytes, hint: str
) -> None:
    error = Endpoint(BY_ID[id].base_url, "m", KEY).refusal_error(status, {}, body)
    assert hint in error.hint
    assert bool(error.hint) == bool(hint)
    assert KEY not in str(error)


def test_a_local_server_that_is_not_there_is_to_be_started() -> None:
    error = Endpoint(BY_ID["ollama"].base_url, "m").unreachable_error("refused")
    assert isinstance(error, ProviderUnavailable)
    assert error.hint == "Is Ollama running? To start it, run `ollama serve`."


def test_a_name_that_is_almost_right_is_recognised() -> None:
    names = ["anthropic/claude-sonnet-4.6", "openai/gpt-5-mini", "openai/gpt-5", "qwen3:8b"]
    assert similar_names("gpt-5-mini", names)[0] == "openai/gpt-5-mini"
    assert similar_names("claude-sonet-4.6", names)[0] == "anthropic/claude-sonnet-4.6"
    assert similar_names("Qwen3:8b", names)[0] == "qwen3:8b"
    assert similar_names("whisper", names) == ()
    assert len(similar_names("gpt", names, most=1)) == 1
