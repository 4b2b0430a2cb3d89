"""Some shapes of `bench.dialects`: a whole nanobot against servers as strict as the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.dialects.__main__ import SHAPES
from bench.dialects.properties import conformity_campaign

BY_NAME = {shape.name: shape for shape in SHAPES}

SHORT = (
    "openai: a turn with tools",
    "openai: a message during a tool",
    "mistral: a turn with tools",
    "mistral: two failed turns",
    "deepseek: a turn with tools",
    "deepseek: a new process after a turn with tools",
    "gemini: /stop during a tool",
    "groq: a message during a tool",
    "llama.cpp: a picture from a tool",
    "llama.cpp-alternating: a turn with tools",
    "lm-studio: a new process after a turn with tools",
    "kimi: openai goes on with its conversation",
    "openai: deepseek goes on with its conversation",
    "deepseek: two people at once",
    "mistral: call ids missing",
    "calls: all indices 0",
    "markup quoted in a code fence",
    "stream: finish reason stop in each chunk",
    "stream: no finish reason",
    "thinking: <think> in the text",
    "an empty answer: really empty",
    "400: error.message",
    "400: an array around it",
    "in a stream: after some text",
    "a key that a server repeats",
    "one connection is reset",
    "deepseek: structured answers: text",
    "mistral: a crash between a call and its result",
)


@pytest.mark.parametrize("name", SHORT)
async def test_a_conversation_with_such_a_server_ends_right(name: str, tmp_path: Path) -> None:
    await BY_NAME[name].run(tmp_path)


@pytest.mark.parametrize("kind", ["vllm", "ollama"])
def test_a_strict_server_takes_whatever_a_conversation_holds(kind: str) -> None:
    conformity_campaign(kind, examples=40)


def test_no_two_shapes_have_one_name() -> None:
    assert len(BY_NAME) == len(SHAPES)
