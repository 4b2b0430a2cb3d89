"""Providers by name: choosing, going back, keeping unreachable ones, and their windows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from msgspec import convert
from msgspec.structs import replace

from nanobot.app.setup.questions import PersonWithDefaults, walk
from nanobot.config.model import ModelSettings
from nanobot.errors import NanobotError, ProviderError
from nanobot.providers.discovery import LocalServer
from nanobot.providers.known_servers import PROVIDERS, KnownProvider
from nanobot.testing import ScriptedPerson
from tests.cli.test_onboard_parts import interview, step, values_of
from tests.doubles.server import Served

KEY = "sk-right-0123456789"
MANY = [f"vendor{at % 7}/model-{at}" for at in range(120)]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all providers unreachable, without keys in the environment."""
    monkeypatch.setenv("HTTPS_PROXY", NOWHERE)
    for one in PROVIDERS:
        if one.key_variable:
            monkeypatch.delenv(one.key_variable, raising=False)


def move_provider(id: str, root: str) -> tuple[KnownProvider, ...]:
    """Return the catalogue with one provider at another address."""
    return tuple(
        replace(one, base_url=root + urlsplit(one.base_url).path) if one.id == id else one
        for one in PROVIDERS
    )


@asynccontextmanager
async def listing(
    id: str, windows: Mapping[str, int], refusal: int = 401
) -> AsyncIterator[tuple[KnownProvider, ...]]:
    """Yield the catalogue with a provider that lists these models for its key."""

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return web.json_response({"error": {"message": "no such key"}}, status=refusal)
        data = [{"id": name, "context_window": size} for name, size in windows.items()]
        return web.json_response({"object": "list", "data": data})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    served = await Served.start(app)
    try:
        yield move_provider(id, f"http://127.0.0.1:{served.port}")
    finally:
        await served.stop()


async def test_every_provider_is_offered_and_those_that_run_here_come_first() -> None:
    person = ScriptedPerson("None yet")
    here = LocalServer("Ollama", "http://127.0.0.1:11434/v1", ("qwen3:8b",))
    await step(person, found=[here]).run()
    _, *choices = person.said[-1].split("\n")
    assert choices[0] == "Ollama on this machine: qwen3:8b"
    for one in PROVIDERS:
        assert len([choice for choice in choices if choice.startswith(one.name)]) == 1, one.name
    assert len(choices) == len(PROVIDERS) + 2


async def test_a_provider_is_chosen_by_name_with_its_key_its_model_and_its_window() -> None:
    async with listing("groq", {"small": 8_192, "openai/gpt-oss-120b": 131_072}) as providers:
        person = ScriptedPerson("Groq", KEY, "")
        part = await step(person, "--no-test", providers=providers).run()
        (groq,) = (one for one in providers if one.id == "groq")
    assert values_of(part) == {
        "name": "openai/gpt-oss-120b",  # its example, which is in its list
        "base_url": groq.base_url,
        "context_window": 131_072,
        "api_key": "${MODEL_API_KEY}",  # which is no address of Groq's, here
    }
    assert part.secrets == {"MODEL_API_KEY": KEY}
    assert any("openai/gpt-oss-120b, 131,072 tokens" in said for said in person.said)
    assert KEY not in "\n".join(person.said)


async def test_claude_is_asked_by_its_own_api_and_the_next_provider_by_the_usual_one() -> None:
    script = ["--non-interactive", "--no-test", "--model-name", "m"]
    changed: list[object] = []
    present = ModelSettings()
    for provider in ("anthropic", "mistral", "mistral"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(f"{provider.upper()}_API_KEY", KEY)
            part = await step(
                ScriptedPerson(), *script, "--provider", provider, present=present
            ).run()
        new = values_of(part)
        changed.append(new.get("api"))
        url, api = new.get("base_url", present.base_url), new.get("api", present.api)
        present = convert({"base_url": url, "api": api}, ModelSettings)
    assert changed == ["messages", "chat", None]


async def test_one_of_120_models_is_found_and_one_that_is_not_listed_is_typed() -> None:
    async with listing("groq", dict.fromkeys(MANY, 32_768)) as providers:
        person = ScriptedPerson("Groq", KEY, "model-117")
        part = await step(person, "--no-test", providers=providers).run()
        assert values_of(part)["name"] == "vendor5/model-117"
        person = ScriptedPerson("Groq", KEY, "Another model", "not/listed")
        part = await step(person, "--no-test", providers=providers).run()
    assert values_of(part)["name"] == "not/listed"


async def test_a_small_window_of_a_provider_leaves_room_for_the_prompt() -> None:
    async with listing("groq", {"tiny": 8_192}) as providers:
        part = await step(ScriptedPerson("Groq", KEY), "--no-test", providers=providers).run()
    assert (values_of(part)["context_window"], values_of(part)["max_completion_tokens"]) == (
        8_192,
        2_048,
    )


async def test_the_window_of_another_model_does_not_stay() -> None:
    present = ModelSettings(name="old", base_url="https://a.example/v1", context_window=1_000_000)
    async with listing("groq", {"unknown": 0}) as providers:
        asking = step(
            ScriptedPerson("Groq", KEY), "--no-test", providers=providers, present=present
        )
        part = await asking.run()
    assert values_of(part)["context_window"] == ModelSettings().context_window


async def test_a_key_that_cannot_be_checked_now_is_kept() -> None:
    person = ScriptedPerson("Mistral", KEY, "y", "")
    part = await step(person, providers=move_provider("mistral", NOWHERE)).run()
    assert part.unchecked
    assert part.secrets == {"MODEL_API_KEY": KEY}
    assert values_of(part)["name"] == "mistral-medium-latest"
    assert ("model", "mistral-medium-latest at http://127.0.0.1:9/v1, not checked") in part.summary
    assert any(said.startswith("WARNING: cannot reach") for said in person.said)


async def test_who_does_not_want_that_is_asked_again_and_need_not_type_the_key_again() -> None:
    person = ScriptedPerson("Mistral", KEY, "n", "Mistral", "", "y", "")
    asking = step(person, providers=move_provider("mistral", NOWHERE))
    with pytest.raises(ProviderError, match="cannot reach"):
        await asking.run()
    assert (await asking.run()).secrets == {"MODEL_API_KEY": KEY}


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_key_that_is_refused_is_asked_for_again_and_not_kept(status: int) -> None:
    async with listing("groq", {"tiny": 8_192}, status) as providers:
        person = ScriptedPerson("Groq", "sk-wrong", "sk-wrong-too", KEY)
        with pytest.raises(ProviderError, match="405"):  # it lists models and has none
            await step(person, providers=providers).run()
        assert person.remaining == 0
        assert sum(f"({status})" in said for said in person.said) == 2
        leaving = ScriptedPerson("Groq", "sk-wrong", "")
        with pytest.raises(NanobotError, match=f"{status}"):
            await step(leaving, providers=providers).run()


async def test_a_server_of_ones_own_wants_a_key_only_where_it_says_so() -> None:
    async with listing("vllm", {"tiny": 0}) as providers:
        person = ScriptedPerson("vLLM", "", KEY)
        asking = step(person, providers=providers)
        with pytest.raises(ProviderError, match="405"):  # it lists models and has none
            await asking.run()
        assert "The server requires an API key." in person.said
        assert person.remaining == 0


@pytest.mark.parametrize(
    ("arguments", "environ", "key", "url"),
    [
        (["--provider", "groq"], {"GROQ_API_KEY": KEY}, "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
        (["--provider", "xai", "--api-key-env", "MINE"], {"MINE": KEY}, "MINE", "https://api.x.ai/v1"),
        (["--provider", "ollama"], {}, "", "http://127.0.0.1:11434/v1"),
        (["--provider", "vllm", "--base-url", "http://gpu:8000/v1"], {}, "", "http://gpu:8000/v1"),
    ],
)  # fmt: skip
async def test_a_script_names_a_provider_in_place_of_its_address(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environ: dict[str, str],
    key: str,
    url: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    asked = ["--non-interactive", "--no-test", "--model-name", "m", *arguments]
    part = await step(ScriptedPerson(), *asked).run()
    assert values_of(part)["base_url"] == url
    assert part.secrets == ({key: KEY} if key else {})


async def test_a_script_that_names_a_provider_without_its_key_is_told_where_it_belongs() -> None:
    with pytest.raises(NanobotError, match="DeepSeek requires a model and an API key") as caught:
        await step(ScriptedPerson(), "--non-interactive", "--provider", "deepseek").run()
    assert "DEEPSEEK_API_KEY" in caught.value.hint


async def test_one_can_go_back_at_any_question_and_earlier_answers_are_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = ScriptedPerson(
        *("Groq", "<"),  # from the key to the providers
        *("DeepSeek", KEY, "first-model"),  # no list is to be had
        *("<", "", "", "second-model"),  # from Telegram to the providers
        *("n", "n", "Ada", "<", "Grace", "Europe/Berlin"),
        *("<", "Hedy", "", "y"),  # from the confirmation to the name
    )
    part = await interview(tmp_path / "new", monkeypatch, person, "--no-test")
    assert part
    assert person.remaining == 0
    assert dict(part.summary) == {
        "model": "second-model at DeepSeek", "you": "Hedy", "time zone": "Europe/Berlin"
    }  # fmt: skip
    assert part.secrets == {"DEEPSEEK_API_KEY": KEY}


async def test_before_the_first_question_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = ScriptedPerson("<", "None yet", "n", "n", "Ada", "UTC", "y")
    part = await interview(tmp_path / "new", monkeypatch, person, "--no-test")
    assert part
    assert person.remaining == 0
    assert "This is the first question." in person.said
    assert values_of(part)["provider"] == "offline"


async def test_an_answer_is_the_default_of_its_own_question_only() -> None:
    person = PersonWithDefaults(ScriptedPerson("a", "<", "", "<", "b", "<", "", "c"))

    async def first(_: Sequence[str]) -> str:
        name = await person.ask("Name")
        return name + await person.ask(f"Name after {name}")

    assert await walk(person, [first]) == ["bc"]


async def test_a_secret_is_no_default_of_another_server() -> None:
    person = PersonWithDefaults(ScriptedPerson("sk-first", "<", ""))

    async def first(_: Sequence[str]) -> str:
        key = await person.ask("The API key", secret=True)
        return key + (await person.ask("Name") if key else "")

    assert await walk(person, [first]) == [""]
