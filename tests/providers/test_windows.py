"""How much a model server takes: as it says itself, in each server's own words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiohttp import web

from nanobot.providers.discovery import detect_window
from tests.doubles.server import Served

MODELS = {"data": [{"id": "other", "max_model_len": 7}, {"id": "tiny"}]}
SHOWN = {"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960}}
RUNNING = {"models": [{"name": "tiny:latest", "context_length": 8_192}]}
OURS = {"parameters": 'stop "<|im_end|>"\nnum_ctx                        16384'}
STUDIO = {"id": "tiny", "max_context_length": 32_768}


@pytest.mark.parametrize(
    ("answers", "server", "now", "most"),
    [
        ({"/v1/models": {"data": [{"id": "tiny", "max_model_len": 9_000}]}}, "vLLM", 9_000, 9_000),
        ({"/v1/models": {"data": [{"id": "tiny", "context_length": 9_000}]}}, "", 0, 9_000),
        ({"/props": {"default_generation_settings": {"n_ctx": 5_120}}}, "llama.cpp", 5_120, 0),
        ({"/api/show": SHOWN}, "Ollama", 0, 40_960),
        ({"/api/show": SHOWN, "/api/ps": RUNNING}, "Ollama", 8_192, 40_960),
        ({"/api/show": SHOWN | OURS, "/api/ps": RUNNING}, "Ollama", 16_384, 40_960),
        ({"/api/v0/models": {"data": [STUDIO]}}, "LM Studio", 0, 32_768),
        (
            {"/api/v0/models": {"data": [STUDIO | {"loaded_context_length": 4_096}]}},
            "LM Studio", 4_096, 32_768,
        ),
        ({"/props": "nonsense", "/api/show": [], "/api/ps": {"models": {}}}, "", 0, 0),
    ],
)  # fmt: skip
async def test_a_server_is_believed_about_what_it_takes(
    answers: Mapping[str, object], server: str, now: int, most: int
) -> None:
    async def answer(request: web.Request) -> web.Response:
        said = ({"/v1/models": MODELS} | dict(answers)).get(request.path)
        return web.json_response(said, status=404 if said is None else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    served = await Served.start(app)
    try:
        url = f"http://127.0.0.1:{served.port}/v1"
        told = await detect_window(url, "tiny", "", seconds=20.0)
    finally:
        await served.stop()
    assert (told.server, told.now, told.most) == (server, now, most)
    assert bool(told.to_raise) == bool(server)
