"""Named models through a whole gateway: the model of each answer, and its effort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.events import Media
from nanobot.config.load import load_settings
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.doubles.openai.server import FakeOpenAI
from tests.support import running

PICTURE = Media("picture", "image", "image/png", "p.png")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def environ(server: FakeOpenAI, **more: str) -> dict[str, Any]:
    """Return settings of a main model and two named ones on one server, each with its name
    there."""
    return {
        "NANOBOT_MODEL__BASE_URL": server.base_url,
        "NANOBOT_MODEL__NAME": "main-1",
        "NANOBOT_MODELS__FAST__NAME": "fast-1",
        "NANOBOT_MODELS__SMART__NAME": "smart-1",
        **more,
    }


def models_of(server: FakeOpenAI) -> list[object]:
    return [request.body["model"] for request in server.requests if "messages" in request.body]


async def test_each_conversation_has_the_model_that_was_chosen_by_name(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with (
        FakeOpenAI(models=("main-1", "other-1")) as server,
        running(tmp_path, None, channel, **environ(server)),
    ):
        shown = await channel.ask("/model")
        assert shown.startswith("This conversation uses main-1. To switch, send /model NAME.")
        assert shown.endswith("\n- fast\n- smart\n- other-1")
        assert await channel.ask("/model smart") == "This conversation now uses smart."
        await channel.ask("hello")
        await channel.ask("hello", "2")
        assert "Did you mean smart" in await channel.ask("/model smrt", "2")
        await channel.ask("/model default")
        await channel.ask("hello again")
        assert models_of(server) == ["smart-1", "main-1", "main-1"]


async def test_a_use_has_the_model_that_was_chosen_for_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files["picture"] = PNG
    async with (
        FakeOpenAI() as server,
        running(
            tmp_path,
            None,
            channel,
            **environ(server, NANOBOT_USE__CHAT="fast", NANOBOT_USE__PICTURES="smart"),
        ),
    ):
        assert (await channel.ask("/model")).startswith("This conversation uses fast.")
        await channel.ask("hello")
        await channel.answer_to(await channel.say("look", media=(PICTURE,)))
        await channel.ask("and now?")
        assert models_of(server) == ["fast-1", "smart-1", "fast-1"]


async def test_a_helper_is_a_use_of_its_own(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(
        calls("spawn", task="count"), says("started"), author=lambda _: says("done")
    )
    async with running(tmp_path, model, channel):
        await channel.ask("count for me")
        await channel.receive(2)
    assert {options.use for options in model.options} == {"chat", "helpers"}


async def test_thinking_is_set_for_a_conversation_and_taken_back(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(author=lambda _: says("ok"))
    async with running(tmp_path, model, channel):
        assert await channel.ask("/think") == "Thinking effort: default."
        assert await channel.ask("/think high") == "Thinking effort: high."
        await channel.ask("hello")
        await channel.ask("hello", "2")
        assert await channel.ask("/think a lot") == (
            "Usage: /think none | low | medium | high | default"
        )
        assert await channel.ask("/think default") == "Thinking effort: default."
        await channel.ask("hello")
    assert [options.effort for options in model.options] == ["high", "", ""]


async def test_the_status_says_who_stood_in_and_what_that_cost(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with (
        FakeOpenAI() as server,
        running(
            tmp_path,
            None,
            channel,
            **environ(
                server,
                NANOBOT_MODEL__BASE_URL="http://127.0.0.1:9/v1",
                NANOBOT_MODEL__FALLBACKS=(
                    f"[{{name: spare-1, base_url: '{server.base_url}', prices: {{input: 1000}}}}]"
                ),
            ),
        ),
    ):
        assert "Last answer" not in await channel.ask("/status")
        await channel.ask("hello")
        status = await channel.ask("/status")
    assert "model main-1" in status
    (last,) = [line for line in status.splitlines() if line.startswith("Last answer:")]
    assert last.startswith("Last answer: spare-1 (instead of main-1), ")
    cost = float(last.rpartition("cost ")[2])
    (request,) = (one for one in server.requests if "messages" in one.body)
    assert request.body["model"] == "spare-1"
    assert cost > 0


async def test_what_the_owner_set_is_in_each_request_and_think_changes_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    set_ = {
        "NANOBOT_MODEL__REASONING_EFFORT": "low",
        "NANOBOT_MODEL__TEMPERATURE": "0.5",
        "NANOBOT_MODEL__EXTRA_BODY": "{top_p: 0.9, seed: 7}",
        "NANOBOT_MODEL__HEADERS": "{X-Team: ops-7f3a}",
    }
    async with (
        FakeOpenAI() as server,
        running(tmp_path, None, channel, **environ(server, **set_)),
    ):
        await channel.ask("hello")
        await channel.ask("/think high")
        await channel.ask("hello again")
    first, second = [one for one in server.requests if "messages" in one.body]
    assert [one.body["reasoning_effort"] for one in (first, second)] == ["low", "high"]
    assert (first.body["temperature"], first.body["top_p"], first.body["seed"]) == (0.5, 0.9, 7)
    assert first.headers["x-team"] == "ops-7f3a"


@pytest.mark.parametrize(
    ("uses", "expected"),
    [((), 64_000), (("chat",), 16_000), (("helpers", "memory"), 64_000)],
)
def test_a_prompt_fits_into_the_smallest_window_of_the_models_that_may_answer(
    tmp_path: Path, uses: tuple[str, ...], expected: int
) -> None:
    settings = load_settings(
        tmp_path,
        {
            "NANOBOT_MODEL__BASE_URL": "http://127.0.0.1:1/v1",
            "NANOBOT_MODEL__CONTEXT_WINDOW": "64000",
            "NANOBOT_MODELS__SMALL": "{name: s, context_window: 16000}",
            "NANOBOT_MODELS__LARGE": "{name: l, context_window: 1000000}",
            "NANOBOT_USE__CHAT": "small",
            "NANOBOT_USE__MEMORY": "large",
        },
    )
    kept = settings.model.context_window - settings.model.prompt_tokens
    assert settings.prompt_tokens(*uses) == expected - kept
    assert settings.prompt_tokens_by_name == {"small": 16_000 - kept, "large": 64_000 - kept}
