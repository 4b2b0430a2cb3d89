"""Window and tools of a model, as its server reports them in its own form."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiohttp import web

from nanobot.providers.discovery import ModelFacts, ModelServer
from tests.doubles.server import Served

MODELS = {"data": [{"id": "other", "max_model_len": 7}, {"id": "tiny"}]}
SHOWN = {"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960}}
RUNNING = {"models": [{"name": "tiny:latest", "context_length": 8_192}]}
OURS = {"parameters": 'stop "<|im_end|>"\nnum_ctx                        16384'}


def llama(caps: Mapping[str, bool]) -> Mapping[str, object]:
    """Return the properties of a llama.cpp server of 2026, shortened."""
    return {
        "default_generation_settings": {"params": {"seed": 1}, "n_ctx": 5_120},
        "total_slots": 1,
        "modalities": {"vision": False, "video": False, "audio": False},
        "chat_template_caps": caps,
    }


def studio(*loaded: int, tools: bool = True) -> Mapping[str, object]:
    """Return LM Studio's list: https://lmstudio.ai/docs/developer/rest/list."""
    instances = [
        {"id": f"tiny:{at}" if at else "tiny", "config": {"context_length": length}}
        for at, length in enumerate(loaded)
    ]
    able = {"trained_for_tool_use": tools}
    entry = {"type": "llm", "key": "tiny", "loaded_instances": instances, "capabilities": able}
    other = {"type": "embedding", "key": "text-embedding", "max_context_length": 2_048}
    return {"models": [other, {**entry, "max_context_length": 32_768}]}


async def query(answers: Mapping[str, object], model: str = "tiny") -> ModelFacts:
    """Return the facts from a server with these pages."""

    async def answer(request: web.Request) -> web.Response:
        said = ({"/v1/models": MODELS} | dict(answers)).get(request.path)
        return web.json_response(said, status=404 if said is None else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    served = await Served.start(app)
    try:
        return await ModelServer(f"http://127.0.0.1:{served.port}/v1", "", 20.0).facts(model)
    finally:
        await served.stop()


@pytest.mark.parametrize(
    ("answers", "server", "now", "most"),
    [
        ({"/v1/models": {"data": [{"id": "tiny", "max_model_len": 9_000}]}}, "vLLM", 9_000, 9_000),
        ({"/v1/models": {"data": [{"id": "tiny", "context_length": 9_000}]}}, "", 0, 9_000),
        ({"/props": {"default_generation_settings": {"n_ctx": 5_120}}}, "llama.cpp", 5_120, 0),
        (
            {"/v1/models": {"data": [{"id": "tiny", "meta": {"n_ctx": 4_096}}]}},
            "llama.cpp", 4_096, 0,
        ),
        ({"/api/show": SHOWN}, "Ollama", 0, 40_960),
        ({"/api/show": SHOWN, "/api/ps": RUNNING}, "Ollama", 8_192, 40_960),
        ({"/api/show": SHOWN | OURS, "/api/ps": RUNNING}, "Ollama", 16_384, 40_960),
        ({"/api/v1/models": studio()}, "LM Studio", 0, 32_768),
        ({"/api/v1/models": studio(16_384, 4_096)}, "LM Studio", 4_096, 32_768),
        ({"/props": "nonsense", "/api/show": [], "/api/ps": {"models": {}}}, "", 0, 0),
    ],
)  # fmt: skip
async def test_a_server_is_believed_about_what_it_takes(
    answers: Mapping[str, object], server: str, now: int, most: int
) -> None:
    facts = await query(answers)
    assert (facts.server, facts.now, facts.most) == (server, now, most)
    assert bool(facts.to_raise) == bool(server)


@pytest.mark.parametrize(
    ("answers", "tools"),
    [
        ({"/props": llama({"supports_tools": True})}, True),
        ({"/props": llama({"supports_tools": False})}, False),
        ({"/props": {"default_generation_settings": {"n_ctx": 5_120}}}, None),
        ({"/api/show": SHOWN | {"capabilities": ["completion", "tools"]}}, True),
        ({"/api/show": SHOWN | {"capabilities": ["completion", "vision"]}}, False),
        ({"/api/show": SHOWN}, None),
        ({"/api/v1/models": studio(tools=False)}, False),
        ({"/api/v1/models": studio()}, True),
        ({"/v1/models": {"data": [{"id": "tiny"}]}}, None),
    ],
)  # fmt: skip
async def test_a_server_is_believed_about_tools(
    answers: Mapping[str, object], tools: bool | None
) -> None:
    facts = await query(answers)
    assert facts.tools == tools
    assert facts.tools is not False or facts.for_tools


async def test_the_only_model_of_a_server_needs_no_name() -> None:
    only = {"/v1/models": {"data": [{"id": "whatever.gguf", "max_model_len": 9_000}]}}
    assert (await query(only, model="")).now == 9_000
