"""The proxy in front of a real model's server, and the judgement of a model's raw answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
from aiohttp import ClientSession, web

from bench.llama import Raw, Recorder
from tests.ports import free_port
from tests.support import PATIENCE


@pytest.mark.parametrize(
    "text",
    [
        '<tools>\n{"name": "write_file", "arguments": {"path": "hello.txt"}}\n</tools>',
        'I do it.\n<tool_call>{"name": "write_file", "arguments": {"path": "hello.txt"}}',
        '```json\n{"name": "write_file", "parameters": {"path": "hello.txt"}}\n```',
        '<function=write_file>{"path": "hello.txt"}</function>',
        "<function=write_file><parameter=path>hello.txt</parameter></function>",
        '[TOOL_CALLS]write_file{"path": "hello.txt"}',
        '[TOOL_CALLS][{"name": "write_file", "arguments": {"path": "hello.txt"}}]',
        '<|channel|>commentary to=functions.write_file<|message|>{"path": "hello.txt"}<|call|>',
    ],
)
def test_a_call_counts_in_whatever_form_the_model_wrote_it(text: str) -> None:
    raw = Raw.of({"content": text})
    assert (raw.form, raw.is_call(("write_file",), "hello.txt")) == ("as text", True)
    assert not raw.is_call(("write_file",), "another.txt")
    assert not raw.is_call(("read_file",), "hello.txt")


def test_a_native_call_counts_and_plain_words_do_not() -> None:
    function = {"name": "write_file", "arguments": '{"path": "hello.txt"}'}
    raw = Raw.of({"content": None, "tool_calls": [{"function": function}]})
    assert (raw.form, raw.is_call(("write_file",), "hello.txt")) == ("native", True)
    assert Raw.of({"content": "I wrote {it} into hello.txt."}).form == "no call"


class _Server:
    """Answers with two events, and waits for a release between them."""

    def __init__(self) -> None:
        self.goes_on, self.hung_up = asyncio.Event(), asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices":[]}\n\n')
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.hung_up.set()
            raise
        usage = b'{"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"a": 0}}'
        await response.write(b'data: {"usage": ' + usage + b"}\n\n")
        return response


async def test_an_answer_is_passed_on_as_it_comes_and_recorded() -> None:
    server, port = _Server(), free_port()
    async with _running(server, port) as stack, ClientSession() as client:
        recorder = stack.enter_context(Recorder(port))
        url = f"http://127.0.0.1:{recorder.port}/v1/chat/completions"
        asked = {"messages": [{"role": "user", "content": "a question"}]}
        async with asyncio.timeout(PATIENCE), client.post(url, json=asked) as answer:
            first = await answer.content.readuntil(b"\n\n")
            server.goes_on.set()
            rest = await answer.read()
    (exchange,) = recorder.exchanges
    assert exchange.asks("a question")
    assert (bytes(exchange.body), exchange.whole) == (first + rest, True)
    assert exchange.usage == (7, 3)


async def test_a_client_that_hangs_up_ends_the_request_at_the_server() -> None:
    server, port = _Server(), free_port()
    async with _running(server, port) as stack, asyncio.timeout(PATIENCE):
        recorder = stack.enter_context(Recorder(port))
        url = f"http://127.0.0.1:{recorder.port}/v1/chat/completions"
        async with ClientSession() as client, client.post(url, json={}) as answer:
            await answer.content.readuntil(b"\n\n")
            answer.close()
            await server.hung_up.wait()
        assert not recorder.exchanges[0].whole


@contextlib.asynccontextmanager
async def _running(server: _Server, port: int) -> AsyncIterator[ExitStack]:
    """Run the server at this port, and yield a stack for its proxy."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    with ExitStack() as stack:
        yield stack
    await runner.cleanup()
