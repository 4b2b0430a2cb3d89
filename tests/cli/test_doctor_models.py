"""`nanobot doctor --ask-model`: each model is tried, and its server's dialect is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nanobot.providers.dialect import decode_dialects
from tests.cli.support import Nanobot
from tests.cli.test_onboard_window import Ollama, serving
from tests.doubles.dialects.replies import Call, Says
from tests.doubles.dialects.requests import functions_of, has_image, messages_of
from tests.doubles.dialects.server import KINDS, DialectServer
from tests.doubles.openai.answers import ChatRequest

NO_SHELL = "tools: {exec: {enabled: false}}\n"
ARGUMENTS = {
    "get_weather": '{"city": "Rome"}',
    "save_person": '{"name": "Ada", "city": "Rome"}',
}
Doctor = Callable[..., Any]


def capable(request: ChatRequest) -> Says:
    """A model that calls the tool it is offered, natively, and sees red."""
    if any(map(has_image, messages_of(request.body))):
        return Says("It is red.")
    for function in functions_of(request.body):
        name = str(function["name"])
        return Says(calls=(Call(name, ARGUMENTS[name]),))
    return Says("Ready.")


def small(request: ChatRequest) -> Says:
    """A model such as Qwen2.5-Coder 1.5B on llama.cpp: it writes calls as text even if they are
    forced, and fits a JSON Schema if it has to."""
    if any(map(has_image, messages_of(request.body))):
        return Says("It is a cat.")
    if "response_format" in request.body:
        return Says(ARGUMENTS["save_person"])
    if any(function["name"] == "get_weather" for function in functions_of(request.body)):
        call = f'{{"name": "get_weather", "arguments": {ARGUMENTS["get_weather"]}}}'
        return Says(f"<tools>\n{call}\n</tools>")
    return Says("I would save that Ada lives in Rome.")


def talker(_: ChatRequest) -> Says:
    """A model that can only talk."""
    return Says("I am fine, thank you.")


@pytest.fixture
def doctor(home: Path, here: Nanobot) -> Doctor:
    """Examine a home with a model configuration. Return the exit code and the findings on
    models."""

    def examine(model: Mapping[str, object], *options: str) -> tuple[int, list[dict[str, str]]]:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(json.dumps(model) + "\n")
        (home / "config.yaml").chmod(0o600)
        done = here("doctor", "--json", *options)
        found = json.loads(done.stdout)
        return done.returncode, [one for one in found if one["check"] == "model"]

    return examine


def model_at(server: DialectServer, **more: object) -> dict[str, object]:
    return {
        "name": server.kind.model,
        "base_url": server.base_url,
        "context_window": 16_384,
        "max_completion_tokens": 4_096,
        **more,
    }


def config(server: DialectServer, **more: object) -> dict[str, object]:
    return {"model": model_at(server, **more), "tools": {"exec": {"enabled": False}}}


def load_stored(home: Path, here: Nanobot) -> Mapping[str, object]:
    """Return the stored dialects, by server and model."""
    done = here("state", "show", "dialects")
    return decode_dialects(done.stdout.encode()) if done.returncode == 0 else {}


async def test_a_capable_model_passes_each_test_in_a_line(doctor: Doctor) -> None:
    async with DialectServer(KINDS["lm-studio"], capable) as server:
        code, found = await asyncio.to_thread(doctor, config(server), "--ask-model")
        assert len([one for one in server.requests if "chat" in one.path]) == 5
    said = [f"{one['state']}: {one['text'].partition(' in 0')[0]}" for one in found]
    assert (code, said) == (
        0,
        [
            "ok: model, server reachable",
            "ok: answered “Ready.”",
            "ok: tool calls: native",
            "ok: structured answers: with a required tool call",
            "ok: pictures: supported",
            "ok: detected: requires alternating roles, returns native tool calls,"
            " gives structured answers with a required tool call",
        ],
    )


async def test_a_small_model_gets_its_weaknesses_in_words_with_what_to_do(doctor: Doctor) -> None:
    async with DialectServer(KINDS["llama.cpp"], small) as server:
        code, found = await asyncio.to_thread(doctor, config(server), "--ask-model")
    assert code == 0
    _, _, call, structure, picture, learned = found
    assert (call["state"], call["text"].partition(",")[0]) == (
        "warn",
        "tool calls: written as text",
    )
    assert "--jinja" in call["hint"]
    assert structure["text"] == "structured answers: with a JSON Schema"
    assert picture["state"] == "ok"
    assert "not supported" in picture["text"]
    assert "reports its progress while reading a prompt" in learned["text"]


async def test_a_model_that_only_talks_is_warned_of(doctor: Doctor) -> None:
    async with DialectServer(KINDS["vllm"], talker) as server:
        _, found = await asyncio.to_thread(doctor, config(server), "--ask-model")
    _, _, call, structure, picture, *_ = found
    assert (call["state"], structure["state"], picture["state"]) == ("warn", "warn", "ok")
    assert call["text"] == "tool calls: the model made none (it answered “I am fine, thank you.”)"
    assert "only excerpts of conversations are stored" in structure["text"]
    assert "not supported (it answered “I am fine, thank you.”" in picture["text"]


async def test_a_server_that_refuses_tools_fails_with_what_to_do(doctor: Doctor) -> None:
    async with DialectServer(KINDS["llama.cpp-without-tools"], talker) as server:
        code, found = await asyncio.to_thread(doctor, config(server), "--ask-model")
        _, untried = await asyncio.to_thread(doctor, config(server))
    (refused,) = (one for one in found if one["state"] == "fail")
    assert (code, refused["hint"]) == (1, "Start llama-server with --jinja.")
    (warned,) = (one for one in untried if one["state"] == "warn")
    assert "can't call tools" in warned["text"]
    assert "--jinja" in warned["hint"]


async def test_what_is_learned_is_stored_shown_and_replaced(
    doctor: Doctor, home: Path, here: Nanobot
) -> None:
    behaves: list[Callable[[ChatRequest], Says]] = [capable]
    async with DialectServer(KINDS["vllm"], lambda request: behaves[-1](request)) as server:  # noqa: PLW0108 - it changes
        await asyncio.to_thread(doctor, config(server), "--ask-model")
        (source,) = load_stored(home, here)
        assert source == f"{server.base_url} model"
        before = len(server.requests)
        _, found = await asyncio.to_thread(doctor, config(server))
        assert not any("chat" in one.path for one in server.requests[before:])
        assert found[-1]["text"].startswith(
            "detected: requires alternating roles, returns native tool calls"
        )
        behaves.append(small)
        await asyncio.to_thread(doctor, config(server), "--ask-model")
        _, found = await asyncio.to_thread(doctor, config(server))
        assert "returns native tool calls" not in found[-1]["text"]
        assert "with a JSON Schema" in found[-1]["text"]
        behaves.append(talker)
        await asyncio.to_thread(doctor, config(server), "--ask-model")
        assert load_stored(home, here) == {}, "nothing special was found this time"


async def test_a_running_gateway_is_given_what_is_learned_and_its_files_are_left_alone(
    doctor: Doctor, home: Path, gateway: Any
) -> None:
    gateway.answers["dialects.replace"] = {}
    async with DialectServer(KINDS["vllm"], capable) as server:
        await asyncio.to_thread(doctor, config(server), "--ask-model")
    (given,) = (arguments for name, arguments in gateway.asked if name == "dialects.replace")
    ((source, dialect),) = given["learned"].items()
    assert (source, dialect["native_calls"]) == (f"{server.base_url} model", True)
    assert not (home / "state" / "journal.db").exists()


async def test_fallbacks_and_named_models_are_tried_once_each(doctor: Doctor) -> None:
    async with (
        DialectServer(KINDS["vllm"], capable) as server,
        DialectServer(KINDS["vllm"], talker) as other,
    ):
        elsewhere = {"name": "model", "base_url": other.base_url}
        given = config(server, fallbacks=[elsewhere])
        given["models"] = {"twin": {"name": "model"}, "gone": {"base_url": "http://127.0.0.1:9/v1"}}
        code, found = await asyncio.to_thread(doctor, given, "--ask-model")
    said = [one["text"] for one in found]
    assert sum("answered “" in text and "(it" not in text for text in said) == 2
    assert (
        "fallback model: tool calls: the model made none (it answered “I am fine, thank you.”)"
        in said
    )
    (gone,) = (one for one in found if one["text"].startswith("model gone: "))
    assert (code, gone["state"]) == (0, "warn"), "the agent works without it"
    assert not any("twin" in text for text in said)


async def test_a_window_is_compared_for_each_model(doctor: Doctor) -> None:
    async with DialectServer(KINDS["llama.cpp"]) as server:
        given = config(server, context_window=8_192, max_completion_tokens=2_000)
        given["models"] = {"long": {"context_window": 32_768}}
        _, found = await asyncio.to_thread(doctor, given)
    (warned,) = (one for one in found if one["state"] == "warn")
    assert warned["text"].startswith(
        "model long: llama.cpp accepts 16,384 tokens, but models.long.context_window is 32,768"
    )
    assert "Then set models.long.context_window." in warned["hint"]


async def test_an_address_without_its_v1_is_said_with_the_right_one(doctor: Doctor) -> None:
    async with serving(Ollama()) as wanted:
        bare = wanted.base_url.removesuffix("/v1")
        model = {"name": wanted.name, "base_url": bare, "context_window": 4_096}
        given = {"model": {**model, "max_completion_tokens": 1_000}}
        code, found = await asyncio.to_thread(doctor, given)
    assert code == 0
    assert f"Set model.base_url to {wanted.base_url}" in [one["hint"] for one in found]
