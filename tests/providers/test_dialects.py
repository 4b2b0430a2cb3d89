"""Some shapes of `bench.dialects`: a whole nanobot against servers as strict as the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.dialects.__main__ import SHAPES
from bench.dialects.properties import conformity_campaign, separation_campaign

pytestmark = pytest.mark.campaign

BY_NAME = {shape.name: shape for shape in SHAPES}

SHORT = (
    "openai: a turn with tools",
    "mistral: a message during a tool",
    "mistral: the step limit",
    "deepseek: /stop during a tool",
    "deepseek: a new process after a turn with tools",
    "openrouter-gemini: a turn with tools",
    "gemini: a message during a tool",
    "groq: a picture from a tool",
    "minimax: an album during a tool",
    "vllm-alternating: /stop during a tool",
    "llama.cpp-alternating: two failed turns",
    "llama.cpp-alternating-new: a job speaks between messages",
    "llama.cpp-gemma: a message during a tool",
    "lm-studio: a new process after a turn with tools",
    "kimi: openai goes on with its conversation",
    "openai: deepseek goes on with its conversation",
    "kimi: two people at once",
    "vllm: arguments with single quotes",
    "llama.cpp: arguments: cut by the limit",
    "ollama: arguments: a list",
    "minimax: arguments: nested deeply",
    "calls: all indices 0",
    "markup quoted in a code fence",
    "stream: neither [DONE] nor finish reason",
    "an empty answer: all tokens used for thinking",
    "200: base_resp of MiniMax",
    "400: metadata.raw of OpenRouter",
    "too long: xAI",
    "a 500 that is a template's refusal",
    "gemini: a schema with const",
    "lm-studio: structured answers: required",
    "openrouter-gemini: a crash between a call and its result",
)


@pytest.mark.parametrize("name", SHORT)
async def test_a_conversation_with_such_a_server_ends_right(name: str, tmp_path: Path) -> None:
    await BY_NAME[name].run(tmp_path)


@pytest.mark.parametrize("kind", ["openai", "mistral", "deepseek", "llama.cpp-alternating"])
def test_a_strict_server_takes_whatever_a_conversation_holds(kind: str) -> None:
    conformity_campaign(kind, examples=40)


@pytest.mark.parametrize("kind", ["kimi", "openrouter-gemini"])
async def test_no_reasoning_of_one_conversation_is_in_a_request_of_another(kind: str) -> None:
    assert await separation_campaign(kind, examples=20) > 0


def test_no_two_shapes_have_one_name() -> None:
    assert len(BY_NAME) == len(SHAPES)
