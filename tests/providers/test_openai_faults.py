"""Each fault of a model server has one outcome, with a text for a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderStalled,
    ProviderUnavailable,
)
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, Reply, Toolset, user_message
from tests.doubles.openai.answers import Answer, Raw, Step
from tests.doubles.openai.faults import FAULTS, Cut, Huge, Stall
from tests.doubles.openai.server import FakeOpenAI
from tests.ports import free_port
from tests.providers.transports import provider

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
KEY = "sk-very-secret-0123456789"


@asynccontextmanager
async def asking(
    server: FakeOpenAI, *, stall: float = 30.0, patience: float = 60.0, stream: bool = True
) -> AsyncIterator[OpenAIProvider]:
    async with server:
        provider = provider_at(server.base_url, stall=stall, patience=patience, stream=stream)
        yield provider
        await provider.close()


def provider_at(
    base_url: str,
    *,
    key: str = KEY,
    stall: float = 30.0,
    patience: float = 60.0,
    stream: bool = True,
) -> OpenAIProvider:
    return provider(
        base_url,
        api_key=key,
        stall_seconds=stall,
        patience_seconds=patience,
        stream=stream,
    )


async def outcome(step: Step, *, stall: float = 30.0, stream: bool = True) -> Reply | ProviderError:
    patience = 60.0 if stream else stall
    async with asking(FakeOpenAI([step]), stall=stall, patience=patience, stream=stream) as one:
        try:
            return await one.complete(HELLO, CallOptions())
        except ProviderError as error:
            return error


ERRORS = {
    "429 with seconds": (ProviderBusy, "is busy (429): Rate limit reached."),
    "429 with a date": (ProviderBusy, "is busy (429): Rate limit reached."),
    "500": (ProviderUnavailable, "failed (500): The server had an error."),
    "503": (ProviderUnavailable, "failed (503): The server had an error."),
    "stall before headers": (ProviderStalled, "sent nothing for 0.2 seconds"),
    "stall in mid-stream": (ProviderStalled, "sent nothing for 0.2 seconds"),
    "cut in mid-stream": (ProviderUnavailable, "stopped in the middle of its answer"),
    "HTML with status 200": (ProviderGarbage, "answered with a web page"),
    "50 MB body": (ProviderGarbage, "answered with more than 2097152 bytes"),
    "empty choices": (ProviderGarbage, "answered with no choices"),
    "context length exceeded": (ContextTooLong, "the prompt is too long for m-1"),
    "401": (ProviderRejected, "rejected the request (401): Incorrect API key provided"),
}
MALFORMED = {
    "arguments that are not JSON": '{"path": oops',
    "arguments that are not an object": '["a.txt"]',
    "arguments with NaN": '{"path":"a.txt","start_line":NaN}',
    "arguments nested deeply": '{"path":' + "[" * 492,
}
REPLIES = {
    "null content": Reply(""),
    "finish by length": Reply("This sentence is cut by the", finish="length"),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
@pytest.mark.parametrize("fault", ERRORS)
async def test_a_fault_becomes_the_error_that_says_what_to_do(fault: str, stream: bool) -> None:
    kind, text = ERRORS[fault]
    stall = 0.2 if "stall" in fault else 30.0
    error = await outcome(FAULTS[fault](), stall=stall, stream=stream)
    assert type(error) is kind
    assert text in str(error)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
@pytest.mark.parametrize("fault", REPLIES)
async def test_what_the_model_got_wrong_is_passed_on_as_it_is(fault: str, stream: bool) -> None:
    reply = await outcome(FAULTS[fault](), stream=stream)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish) == (REPLIES[fault].text, REPLIES[fault].finish)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
@pytest.mark.parametrize("fault", MALFORMED)
async def test_arguments_that_are_no_json_object_are_kept_apart_from_the_call(
    fault: str, stream: bool
) -> None:
    reply = await outcome(FAULTS[fault](), stream=stream)
    assert isinstance(reply, Reply)
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("read_file", "{}")
    assert call.malformed.startswith(MALFORMED[fault])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
async def test_a_call_of_an_unknown_tool_is_passed_on(stream: bool) -> None:
    reply = await outcome(FAULTS["unknown tool"](), stream=stream)
    assert isinstance(reply, Reply)
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, call.malformed) == ("no_such_tool", "{}", "")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
async def test_calls_with_the_same_id_get_different_ones_that_do_not_vary(stream: bool) -> None:
    first, again = [await outcome(FAULTS["duplicate call ids"](), stream=stream) for _ in range(2)]
    assert isinstance(first, Reply)
    assert isinstance(again, Reply)
    assert len({call.id for call in first.tool_calls}) == 2
    assert first.tool_calls == again.tool_calls


def test_every_known_fault_is_covered_here() -> None:
    assert set(FAULTS) == {*ERRORS, *REPLIES, *MALFORMED, "unknown tool", "duplicate call ids"}


async def test_a_huge_body_is_not_read_to_its_end() -> None:
    for huge in (Huge(), Huge(status=500), Huge(start=b"data: {"), Huge(start=b"\n" * 65_536)):
        assert isinstance(await outcome(huge), ProviderError)
        assert huge.sent < 30_000_000


async def test_a_stream_that_is_cut_before_a_finish_reason_is_an_outage() -> None:
    assert type(await outcome(Cut(3))) is ProviderUnavailable


async def test_a_body_that_ends_without_a_finish_reason_is_a_whole_answer() -> None:
    reply = await outcome(Cut(2, answer=Answer("Hi"), clean=True))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish) == ("Hi", "stop")


async def test_a_body_that_ends_before_its_answer_is_an_outage() -> None:
    assert type(await outcome(Cut(1, answer=Answer("Hi"), clean=True))) is ProviderUnavailable


async def test_a_stream_that_ends_after_its_finish_reason_is_whole() -> None:
    answer = Answer("Hi")
    for step in (Cut(3, answer=answer), Cut(3, answer=answer, clean=True)):
        reply = await outcome(step)
        assert isinstance(reply, Reply)
        assert (reply.text, reply.finish) == ("Hi", "stop")


async def test_a_stall_after_the_finish_reason_does_not_lose_the_reply() -> None:
    reply = await outcome(Stall(3, Answer("Hi")), stall=0.2)
    assert isinstance(reply, Reply)
    assert reply.text == "Hi"


async def test_signs_of_life_alone_do_not_keep_a_call_waiting_for_ever() -> None:
    comments = Raw(b": still here\n\n" * 1000, content_type="text/event-stream")
    server = FakeOpenAI([comments], wire_bytes=14, pace=0.01)
    async with asking(server, patience=0.2) as provider:
        error = await failure_of(provider)
    assert type(error) is ProviderStalled
    assert "sent nothing for 0.2 seconds" in str(error)


async def failure_of(provider: OpenAIProvider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await provider.complete(HELLO, CallOptions())
    await provider.close()
    return caught.value


async def test_refused_connections_name_the_address() -> None:
    port = free_port()
    error = await failure_of(provider_at(f"http://user:{KEY}@127.0.0.1:{port}/v1?key={KEY}"))
    assert type(error) is ProviderUnavailable
    assert f"cannot reach the model server at http://127.0.0.1:{port}/v1: " in str(error)
    assert str(error).endswith("connection refused")


async def test_unknown_hosts_name_the_address() -> None:
    error = await failure_of(provider_at("http://no-such-host.invalid/v1"))
    assert type(error) is ProviderUnavailable
    assert "http://no-such-host.invalid/v1" in str(error)
    assert "model.base_url" in error.hint


async def test_a_server_that_speaks_something_else_is_an_outage() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ready\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure_of(provider_at(f"http://127.0.0.1:{port}/v1"))
    assert type(error) is ProviderUnavailable


async def test_cancelling_a_call_leaves_the_provider_usable() -> None:
    server = FakeOpenAI([Stall(3), "still here"])
    async with asking(server) as provider, asyncio.TaskGroup() as group:
        seen = asyncio.Event()
        call = group.create_task(
            provider.complete(HELLO, CallOptions(), lambda _text, _restart: seen.set())
        )
        await seen.wait()
        call.cancel()
        assert (await provider.complete(HELLO, CallOptions())).text == "still here"
