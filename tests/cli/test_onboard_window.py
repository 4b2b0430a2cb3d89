"""A server for one's own machine that takes little: said loudly, and raised where it can be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from nanobot.cli.onboard.candidate import ModelCandidate
from nanobot.testing import ScriptedPerson
from tests.cli.test_onboard_parts import step
from tests.doubles.server import Served


class Ollama:
    """What Ollama says of its models, and the variants that it makes."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}

    async def answer(self, request: web.Request) -> web.Response:
        body: Any = await request.json() if request.method == "POST" else {}
        said: dict[str, object]
        match request.path:
            case "/v1/models":
                said = {"data": [{"id": name} for name in ("qwen3:8b", *self.made)]}
            case "/api/show":
                own = self.made.get(body["model"])
                said = {"model_info": {"qwen3.context_length": 40_960}}
                said |= {"parameters": f"num_ctx {own}"} if own else {}
            case "/api/ps":
                said = {"models": [{"name": "qwen3:8b", "context_length": 4_096}]}
            case "/api/create":
                assert body["from"] == "qwen3:8b"
                self.made[body["model"]] = body["parameters"]["num_ctx"]
                said = {"status": "success"}
            case _:
                return web.json_response({}, status=404)
        return web.json_response(said)


@asynccontextmanager
async def serving(ollama: Ollama) -> AsyncIterator[ModelCandidate]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", ollama.answer)
    served = await Served.start(app)
    try:
        yield ModelCandidate("qwen3:8b", f"http://127.0.0.1:{served.port}/v1")
    finally:
        await served.stop()


async def test_a_variant_with_room_to_talk_is_offered_and_made() -> None:
    ollama, person = Ollama(), ScriptedPerson("y")
    async with serving(ollama) as wanted:
        found = await step(person).with_window(wanted)
    assert (found.name, found.window) == ("qwen3-8b-16k", 16_384)
    assert ollama.made == {"qwen3-8b-16k": 16_384}
    assert person.said[0].startswith("WARNING: Ollama takes only 4,096 tokens")
    assert person.said[-1] == "Ollama takes 16,384 tokens.", "enough needs no advice"


async def test_who_wants_no_variant_is_told_how_to_raise_it_and_goes_on() -> None:
    ollama, person = Ollama(), ScriptedPerson("n")
    async with serving(ollama) as wanted:
        found = await step(person).with_window(wanted)
    assert (found.name, found.window, ollama.made) == ("qwen3:8b", 4_096, {})
    said = "\n".join(person.said)
    assert (said.count("WARNING"), said.count("OLLAMA_CONTEXT_LENGTH")) == (1, 1)


async def test_a_script_is_warned_as_well() -> None:
    person = ScriptedPerson()
    async with serving(Ollama()) as wanted:
        found = await step(person, "--non-interactive").with_window(wanted)
    assert found.window == 4_096
    assert person.said[0].startswith("WARNING")


async def test_an_address_without_its_v1_is_completed() -> None:
    async with serving(Ollama()) as wanted:
        person = ScriptedPerson("Another server", wanted.base_url.removesuffix("/v1"), "", "y")
        part = await step(person, "--no-test").run()
    values = {change.path[1]: change.value for change in part.changes}
    assert values["base_url"] == wanted.base_url
    assert values["name"] == "qwen3-8b-16k"
    assert f"It answers at {wanted.base_url}." in person.said
