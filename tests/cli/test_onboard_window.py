"""Windows and tools at set-up: the server's facts are used, and assumptions are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from nanobot.clock import SystemClock
from nanobot.config.model import ModelSettings
from nanobot.errors import NanobotError, ProviderError
from nanobot.testing import ScriptedPerson
from tests.cli.test_onboard_parts import model_at, step, values_of
from tests.doubles.dialects.server import KINDS, DialectServer
from tests.doubles.openai.faults import Stall
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.server import Served


class Ollama:
    """Ollama's facts about its models, and its variants."""

    def __init__(self, *, loaded: bool = True) -> None:
        self.made: dict[str, int] = {}
        self._loaded = loaded

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
                running = {"name": "qwen3:8b", "context_length": 4_096}
                said = {"models": [running] if self._loaded else []}
            case "/api/create":
                assert body["from"] == "qwen3:8b"
                self.made[body["model"]] = body["parameters"]["num_ctx"]
                said = {"status": "success"}
            case _:
                return web.json_response({}, status=404)
        return web.json_response(said)


@asynccontextmanager
async def serving(ollama: Ollama) -> AsyncIterator[ModelSettings]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", ollama.answer)
    served = await Served.start(app)
    try:
        yield model_at("qwen3:8b", f"http://127.0.0.1:{served.port}/v1")
    finally:
        await served.stop()


async def test_a_variant_with_room_to_talk_is_offered_and_made() -> None:
    ollama, person = Ollama(), ScriptedPerson("y")
    async with serving(ollama) as wanted:
        found = await step(person).with_window(wanted)
    assert (found.name, found.context_window) == ("qwen3-8b-16k", 16_384)
    assert ollama.made == {"qwen3-8b-16k": 16_384}
    assert person.said[0].startswith("WARNING: Ollama accepts only 4,096 tokens")
    assert person.said[-1] == "Ollama accepts 16,384 tokens.", "enough needs no advice"


async def test_ollama_that_loaded_nothing_yet_is_not_called_both_small_and_unknown() -> None:
    ollama, person = Ollama(loaded=False), ScriptedPerson()
    async with serving(ollama) as wanted:
        found = await step(person, "--non-interactive").with_window(wanted)
    assert found.context_window == 4_096
    (said,) = person.said
    assert "context window of Ollama is unknown" in said


async def test_who_wants_no_variant_is_told_how_to_raise_it_and_goes_on() -> None:
    ollama, person = Ollama(), ScriptedPerson("n")
    async with serving(ollama) as wanted:
        found = await step(person).with_window(wanted)
    assert (found.name, found.context_window, ollama.made) == ("qwen3:8b", 4_096, {})
    said = "\n".join(person.said)
    assert (said.count("WARNING"), said.count("OLLAMA_CONTEXT_LENGTH")) == (1, 1)


async def test_a_variant_takes_as_much_as_the_options_say() -> None:
    ollama, person = Ollama(), ScriptedPerson("y")
    async with serving(ollama) as wanted:
        found = await step(person, "--context-window", "32768").with_window(wanted)
    assert (found.name, found.context_window, ollama.made) == (
        "qwen3-8b-32k", 32_768, {"qwen3-8b-32k": 32_768}
    )  # fmt: skip


async def test_a_configured_window_that_is_too_large_by_now_is_lowered_and_that_is_said() -> None:
    async with FakeOpenAI(pages=llama(16_384)) as server:
        present = ModelSettings(
            name="fake-model",
            base_url=server.base_url,
            context_window=32_768,
            provider="openai",
        )
        person = ScriptedPerson()
        asked = ("--non-interactive", "--base-url", server.base_url)
        part = await step(person, *asked, present=present).run()
    assert values_of(part)["context_window"] == 16_384
    assert "is set to 32,768 tokens, but llama.cpp accepts 16,384" in "\n".join(person.said)


async def test_a_script_is_warned_as_well() -> None:
    person = ScriptedPerson()
    async with serving(Ollama()) as wanted:
        found = await step(person, "--non-interactive").with_window(wanted)
    assert found.context_window == 4_096
    assert person.said[0].startswith("WARNING")


async def test_an_address_without_its_v1_is_completed() -> None:
    async with serving(Ollama()) as wanted:
        person = ScriptedPerson("Another server", wanted.base_url.removesuffix("/v1"), "", "y")
        part = await step(person, "--no-test").run()
    values = values_of(part)
    assert values["base_url"] == wanted.base_url
    assert values["name"] == "qwen3-8b-16k"
    assert f"The server's API is at {wanted.base_url}." in person.said


def llama(window: int, *, tools: bool = True) -> Mapping[str, object]:
    """Return the properties page of llama.cpp's server, as of 2026, shortened."""
    caps = {"supports_tools": tools, "supports_tool_calls": tools}
    return {
        "/props": {
            "default_generation_settings": {"n_ctx": window},
            "modalities": {"vision": False},
            "chat_template_caps": caps,
        }
    }


async def run_script(server: FakeOpenAI, *arguments: str) -> tuple[dict[str, object], str]:
    """Run with options that name a server. Return the changes, and standard error."""
    person = ScriptedPerson()
    asked = ("--non-interactive", "--base-url", server.base_url, "--model-name", "fake-model")
    part = await step(person, *asked, *arguments).run()
    return values_of(part), "\n".join(person.said)


async def test_a_window_that_is_too_small_is_said_once_with_what_raises_it() -> None:
    async with FakeOpenAI(pages=llama(2_048)) as server:
        with pytest.raises(NanobotError, match=r"window of 2,048 tokens is too small"):
            await run_script(server)
        person = ScriptedPerson()
        asking = step(person, "--base-url", server.base_url, "--model-name", "fake-model")
        with pytest.raises(NanobotError, match=r"2,048") as caught:
            await asking.run()
    assert "--ctx-size" in caught.value.hint
    assert "2,048" not in "\n".join(person.said)
    assert "does not say" not in "\n".join(person.said)


async def test_a_larger_window_than_the_server_takes_is_warned_of_and_not_written() -> None:
    async with FakeOpenAI(pages=llama(16_384)) as server:
        values, said = await run_script(server, "--context-window", "32768")
        assert values["context_window"] == 16_384
        assert "window is set to 32,768 tokens, but llama.cpp accepts 16,384" in said
        smaller, said = await run_script(server, "--context-window", "8192")
        assert (smaller["context_window"], said.count("WARNING")) == (8_192, 0)
        insisted, _ = await run_script(server, "--context-window", "32768", "--no-test")
        assert insisted["context_window"] == 32_768


@pytest.mark.parametrize("test", [(), ("--no-test",)], ids=["tried", "not tried"])
async def test_an_unknown_window_is_assumed_to_be_small_and_the_option_is_named(
    test: tuple[str, ...],
) -> None:
    async with FakeOpenAI() as server:
        values, said = await run_script(server, *test)
        assert values["context_window"] == 4_096
        assert "WARNING: the context window of the server is unknown" in said
        assert "--context-window 16384" in said
        values, said = await run_script(server, *test, "--context-window", "16384")
        assert (values["context_window"], said.count("WARNING")) == (16_384, 0)


async def test_a_number_that_no_nanobot_can_work_with_is_refused() -> None:
    async with FakeOpenAI() as server:
        with pytest.raises(NanobotError, match=r"window of 2,048 tokens is too small"):
            await run_script(server, "--context-window", "2048")


async def test_a_window_from_a_list_that_is_too_small_is_not_replaced_by_the_default() -> None:
    listed = {"data": [{"id": "fake-model", "context_length": 2_048}]}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(listed)

    app = web.Application()
    app.router.add_get("/v1/models", answer)
    served = await Served.start(app)
    wanted = model_at("fake-model", f"http://127.0.0.1:{served.port}/v1")
    try:
        with pytest.raises(NanobotError, match=r"2,048 tokens is too small"):
            await step(ScriptedPerson()).with_window(wanted)
    finally:
        await served.stop()


async def test_a_chat_template_without_tools_is_warned_of_with_what_to_do() -> None:
    async with FakeOpenAI(pages=llama(16_384, tools=False)) as server:
        values, said = await run_script(server)
    assert values["context_window"] == 16_384
    assert "WARNING: llama.cpp reports that this model can't call tools" in said
    assert "--jinja" in said


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("llama.cpp-without-tools", "Start llama-server with --jinja."),
        ("vllm-without-parser", "--enable-auto-tool-choice"),
    ],
)
async def test_a_server_that_refuses_tools_comes_with_what_to_do(kind: str, hint: str) -> None:
    async with DialectServer(KINDS[kind]) as server:
        with pytest.raises(ProviderError) as caught:
            await run_script(server)
    assert hint in caught.value.hint


class SlowClock(SystemClock):
    """A clock that advances by three seconds each time it is read."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 3.0
        return self.seconds


@pytest.mark.parametrize(("clock", "shown"), [(SlowClock(), True), (SystemClock(), False)])
async def test_the_person_sees_how_far_a_slow_server_has_read(
    clock: SystemClock, shown: bool
) -> None:
    person = ScriptedPerson()
    async with DialectServer(KINDS["llama.cpp"]) as server:
        asked = ("--non-interactive", "--base-url", server.base_url)
        await step(person, *asked, clock=clock).run()
    said = "\n".join(person.said)
    assert "on a slow machine" in said
    assert ("Reading " in said) == shown


async def test_a_server_nearby_may_read_longer_than_its_silence_may_last() -> None:
    async with FakeOpenAI(latency=0.5, pages=llama(16_384)) as server:
        present = ModelSettings(
            name="fake-model", base_url=server.base_url, timeout_seconds=0.3, provider="openai"
        )
        person = ScriptedPerson()
        part = await step(
            person, "--non-interactive", "--base-url", server.base_url, present=present
        ).run()
    assert any("answered in" in said for said in person.said)
    assert values_of(part)["context_window"] == 16_384


async def test_a_script_s_address_without_its_v1_is_completed() -> None:
    async with serving(Ollama()) as wanted:
        person = ScriptedPerson()
        bare = wanted.base_url.removesuffix("/v1")
        asked = ("--non-interactive", "--base-url", bare, "--model-name", "qwen3:8b")
        with pytest.raises(ProviderError, match="404"):  # this Ollama has no conversations
            await step(person, *asked).run()
    assert f"The server's API is at {wanted.base_url}." in person.said


async def test_a_server_nearby_that_reads_too_long_names_the_setting_for_that() -> None:
    async with FakeOpenAI([Stall()], pages=llama(16_384)) as server:
        present = ModelSettings(
            name="fake-model",
            base_url=server.base_url,
            timeout_seconds=0.1,
            provider="openai",
        )
        asked = ("--non-interactive", "--base-url", server.base_url)
        with pytest.raises(ProviderError, match=r"sent nothing for 0\.5 seconds") as caught:
            await step(ScriptedPerson(), *asked, present=present).run()
    assert caught.value.hint == "If it needs longer, raise model.timeout_seconds."
