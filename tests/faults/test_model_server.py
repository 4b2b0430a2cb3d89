"""Every failure of a model server: the person's error message, and a working next message.

The provider is the real one, and the server speaks HTTP. Only long waits use a fake time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from tests.doubles.openai.answers import Answer, Raw, Step
from tests.doubles.openai.faults import (
    FAULTS,
    Cut,
    Huge,
    Stall,
    busy,
    context_length_exceeded,
    refusal,
    server_error,
    wants,
    wrong_key,
)
from tests.doubles.openai.rules import ApiError
from tests.doubles.openai.server import FakeOpenAI
from tests.ports import free_port
from tests.support import read_stored, running, window


@asynccontextmanager
async def talking(
    home: Path,
    script: Sequence[Step | str],
    *,
    retry: float = 60.0,
    steps: int = 50,
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[FakeChannel, FakeOpenAI]]:
    """Run a nanobot whose model server answers from `script`, then "fine" forever."""
    answers = list(script)
    clock = clock or FakeClock(datetime.now(UTC), auto=True)
    channel = FakeChannel(clock=clock)
    async with (
        FakeOpenAI(lambda _: answers.pop(0) if answers else "fine") as server,
        running(
            home,
            None,
            channel,
            clock=clock,
            NANOBOT_MODEL__NAME="fake",
            NANOBOT_MODEL__BASE_URL=server.base_url,
            NANOBOT_MODEL__API_KEY="sk-secret-key",
            NANOBOT_MODEL__TIMEOUT_SECONDS="0.2",
            NANOBOT_MODEL__RETRY_SECONDS=str(retry),
            NANOBOT_AGENT__MAX_ITERATIONS=str(steps),
        ),
    ):
        yield channel, server


PASSING: dict[str, Callable[[], Step]] = {
    "429": busy,
    "429 with seconds": lambda: busy(2),
    "429 with a date": lambda: busy(2, as_date=True),
    "500": lambda: server_error(500),
    "502": lambda: server_error(502),
    "503 with seconds": lambda: server_error(503, 3),
    "a stall before the headers": Stall,
    "a stall in mid-stream": lambda: Stall(3),
    "a cut in mid-stream": Cut,
    "HTML with status 200": FAULTS["HTML with status 200"],
    "a body of 50 MB": Huge,
    "no choices": FAULTS["empty choices"],
    "null content": lambda: Answer(None),
    "arguments that are not JSON": FAULTS["arguments that are not JSON"],
    "arguments that are not an object": FAULTS["arguments that are not an object"],
    "arguments with NaN": FAULTS["arguments with NaN"],
    "arguments nested deeply": FAULTS["arguments nested deeply"],
    "an unknown tool": FAULTS["unknown tool"],
    "duplicate call ids": FAULTS["duplicate call ids"],
}


@pytest.mark.parametrize("fault", PASSING)
async def test_what_passes_or_can_be_told_to_the_model_costs_the_person_nothing(
    tmp_path: Path, fault: str
) -> None:
    async with talking(tmp_path, [PASSING[fault](), "here I am"]) as (channel, _):
        assert await channel.ask("hello") == "here I am"
        assert await channel.ask("and now?") == "fine"
    assert [part.content for part in channel.sent] == ["here I am", "fine"]
    assert [m.content for m in read_stored(tmp_path) if m.role == "user"] == ["hello", "and now?"]


WAITS: dict[str, tuple[Step, float, str]] = {
    "429 with seconds": (busy(900), 901, "is busy (429): Rate limit reached"),
    "500": (server_error(500), 15, "failed (500): The server had an error"),
    "a stall": (Stall(3), 15, "sent nothing for 0.2 seconds"),
    "a cut": (Cut(), 15, "stopped in the middle of its answer"),
}


@pytest.mark.parametrize("fault", WAITS)
async def test_an_outage_is_told_once_and_the_message_is_answered_after_it(
    tmp_path: Path, fault: str
) -> None:
    step, pause, reason = WAITS[fault]
    clock = FakeClock(datetime.now(UTC))
    async with talking(tmp_path, [step, "here I am"], retry=0, clock=clock) as (channel, server):
        await channel.say("hello")
        await clock.until_sleeping()
        await clock.advance(pause)
        notice, answer = await channel.receive(2)
        assert await channel.ask("and now?") == "fine"
    assert notice == (
        f"The model cannot be reached right now (the model server at {server.base_url} {reason})."
        " Your message will be answered if the model is back within 24 hours. To drop it, send"
        " /stop."
    )
    assert answer == "here I am"
    assert [text for _, text in await window(tmp_path)] == [
        "hello", "here I am", "and now?", "fine",
    ]  # fmt: skip


async def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    clock = FakeClock(datetime.now(UTC))
    channel = FakeChannel(clock=clock)
    async with running(
        tmp_path,
        None,
        channel,
        clock=clock,
        NANOBOT_MODEL__NAME="fake",
        NANOBOT_MODEL__BASE_URL=f"http://127.0.0.1:{port}/v1",
        NANOBOT_MODEL__RETRY_SECONDS="0",
    ):
        await channel.say("hello")
        await clock.until_sleeping()
        assert (await channel.receive(1))[0].startswith("The model cannot be reached right now")
        async with FakeOpenAI(["here I am", "fine"], port=port):
            await clock.advance(15)
            assert (await channel.receive(2))[1] == "here I am"
            assert await channel.ask("and now?") == "fine"


FINAL: dict[str, tuple[Sequence[Step], str]] = {
    "401": (
        [wrong_key("sk-secret-key")],
        "The model gave no answer: the model server at {url} rejected the request (401):"
        " Incorrect API key provided: [api key]. Check model.api_key: the server does not accept"
        " it. To try again, send /retry.",
    ),
    "HTML with status 200": (
        [FAULTS["HTML with status 200"]()] * 3,
        "The model gave no answer: the model server at {url} answered with a web page:"
        " Sign in Please sign in. Check model.name and model.base_url, which usually ends in /v1."
        " To try again, send /retry.",
    ),
    "no choices": (
        [FAULTS["empty choices"]()] * 3,
        "The model gave no answer: the model server at {url} answered with no choices."
        " To try again, send /retry.",
    ),
    "null content": (
        [Answer(None)] * 2,
        "The model gave no answer: the model gave an empty answer, twice."
        " To try again, send /retry.",
    ),
    "a filter": (
        [Answer(None, finish="content_filter")],
        "The model gave no answer: the provider's filter withheld the answer (content_filter)."
        " Rephrase the message, or use another model. To try again, send /retry.",
    ),
    "all tokens used for thinking": (
        [Answer("", finish="length", reasoning="Let me think about it")],
        "The model gave no answer: the model used all of its output tokens for thinking. Raise"
        " model.max_completion_tokens, or lower model.reasoning_effort. To try again, send /retry.",
    ),
    "nothing but thinking": (
        [Answer("", reasoning="Let me think about it")] * 2,
        "The model gave no answer: the model thought but wrote no answer, twice."
        " To try again, send /retry.",
    ),
    "an early end": (
        [Answer("", finish="abort")] * 2,
        "The model gave no answer: the provider ended the answer before the first word (abort),"
        " twice. To try again, send /retry.",
    ),
    "a template that can't be filled": (
        [refusal(ApiError(500, "Jinja Exception: roles must alternate", None, "server_error"))] * 3,
        "The model gave no answer: the model server at {url} cannot handle the request (500): Jinja"
        " Exception: roles must alternate. To try again, send /retry.",
    ),
    "a body of 50 MB": (
        [Huge(), Huge(), Huge()],
        "The model gave no answer: the model server at {url} answered with more than"
        " 2097152 bytes. To try again, send /retry.",
    ),
    "context length exceeded": (
        [context_length_exceeded()],
        "Even when shortened, this conversation doesn't fit in the model's context window. To start"
        " a new one, send /new. If the model's window is smaller than model.context_window, lower"
        " that setting. (the prompt is too long"
        " for fake: the server accepts 8,192 tokens)",
    ),
}


@pytest.mark.parametrize("fault", FINAL)
async def test_what_does_not_pass_is_one_clear_text_that_the_model_never_said(
    tmp_path: Path, fault: str
) -> None:
    script, text = FINAL[fault]
    async with talking(tmp_path, script) as (channel, server):
        text = text.format(url=server.base_url)
        assert await channel.ask("hello") == text
        assert await channel.ask("and now?") == "fine"
        assert text[:40].encode() not in server.requests[-1].raw
    assert len(channel.sent) == 2
    assert [said for _, said in await window(tmp_path)] == ["hello", "and now?", "fine"]


def events(*chunks: dict[str, object]) -> Raw:
    """Return a stream of these chunks."""
    data = (f"data: {json.dumps(one)}\n\n" for one in (*chunks, {"choices": []}))
    return Raw(f"{''.join(data)}data: [DONE]\n\n".encode(), content_type="text/event-stream")


def choice(finish: str | None, text: str | None = "", **fields: object) -> dict[str, object]:
    delta = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **fields}]}


_JUDGED = {"hate": {"filtered": False, "severity": "safe"}, "violence": {"filtered": True}}
WITHHELD: dict[str, tuple[Raw, str]] = {
    # openrouter.ai/docs/api-reference/overview: `native_finish_reason`
    "OpenRouter": (events(choice("stop", native_finish_reason="SAFETY")), "SAFETY"),
    "OpenRouter, of the model itself": (
        events(choice("stop", native_finish_reason="refusal")),
        "refusal",
    ),
    # learn.microsoft.com, "Content filtering": verdicts in each choice, and of the prompt
    "Azure": (events(choice("stop", content_filter_results=_JUDGED)), "content_filter: violence"),
    "Azure, of the prompt": (
        events(
            {
                "choices": [],
                "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _JUDGED}],
            }
        ),
        "content_filter: violence",
    ),
    # ai.google.dev/api/generate-content: `promptFeedback`
    "Gemini, of the prompt": (
        events({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
        "PROHIBITED_CONTENT",
    ),
    # github.com/diegosouzapw/OmniRoute/pull/7973: a proxy between Gemini and us
    "a proxy that ends each stream with a reason of its own": (
        events(choice("content_filter", None), choice("stop", None)),
        "content_filter",
    ),
}


@pytest.mark.parametrize("name", WITHHELD)
async def test_an_answer_that_a_filter_withheld_is_no_empty_answer(
    tmp_path: Path, name: str
) -> None:
    step, reason = WITHHELD[name]
    async with talking(tmp_path, [step] * 3) as (channel, server):
        assert await channel.ask("hello") == (
            f"The model gave no answer: the provider's filter withheld the answer ({reason})."
            " Rephrase the message, or use another model. To try again, send /retry."
        )
        assert len(server.requests) == 1


async def test_an_answer_that_a_filter_cut_says_so(tmp_path: Path) -> None:
    step = events(choice(None, "It begins"), choice("stop", "", native_finish_reason="SAFETY"))
    async with talking(tmp_path, [step]) as (channel, _):
        assert await channel.ask("hello") == (
            "It begins\n\n[The provider's content filter ended this answer here.]"
        )


async def test_verdicts_that_nothing_was_filtered_change_nothing(tmp_path: Path) -> None:
    fine = {"hate": {"filtered": False}, "error": {"code": "content_filter_error"}, "x": None}
    step = events(choice("stop", "Hi", content_filter_results=fine, native_finish_reason="STOP"))
    async with talking(tmp_path, [step]) as (channel, _):
        assert await channel.ask("hello") == "Hi"


async def test_once_the_key_is_mended_retry_answers(tmp_path: Path) -> None:
    async with talking(tmp_path, [wrong_key("sk-secret-key")]) as (channel, _):
        assert "Check model.api_key" in await channel.ask("hello")
        assert await channel.ask("/retry") == "fine"


async def test_an_answer_cut_by_length_says_so_and_keeps_only_the_models_words(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, [FAULTS["finish by length"]()]) as (channel, _):
        assert await channel.ask("hello") == (
            "This sentence is cut by the\n\n[This answer was cut off at the model's limit. Say “go"
            " on” to read the rest.]"
        )
        assert await channel.ask("go on") == "fine"
    assert (await window(tmp_path))[1] == ("assistant", "This sentence is cut by the")


async def test_a_conversation_beyond_the_context_length_is_shortened_once_and_answered(
    tmp_path: Path,
) -> None:
    script: list[Step | str] = [f"answer {n}" for n in range(6)]
    script += [context_length_exceeded(), "that fits"]
    async with talking(tmp_path, script) as (channel, server):
        for n in range(6):
            await channel.ask(f"message {n}")
        assert await channel.ask("one more") == "that fits"
        *_, refused, taken = (len(request.messages) for request in server.requests)
        assert taken < refused
    assert len(read_stored(tmp_path)) == 14


async def test_what_the_model_did_wrong_is_told_to_it(tmp_path: Path) -> None:
    script: list[Step | str] = [FAULTS["arguments that are not JSON"](), "sorry"]
    async with talking(tmp_path, script) as (channel, server):
        await channel.ask("hello")
        told = server.requests[-1].messages[-1]
    assert told["role"] == "tool"
    assert "your call is invalid" in str(told["content"])
    assert '{"path": oops' in str(told["content"]), "it sees what it wrote"


async def test_at_the_limit_of_steps_the_server_is_asked_for_text_with_the_tools_in_place(
    tmp_path: Path,
) -> None:
    script: list[Step | str] = [wants("list_dir", "{}"), "that is what I have"]
    async with talking(tmp_path, script, steps=1) as (channel, server):
        assert await channel.ask("hello") == "that is what I have"
    first, last = (request.body for request in server.requests)
    assert last["tool_choice"] == "none"
    assert last["tools"] == first["tools"]
