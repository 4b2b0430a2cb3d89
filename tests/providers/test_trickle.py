"""A server that only sends a byte now and then is given up, anywhere in its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, cycle

import pytest

from nanobot.errors import ProviderError
from nanobot.providers.anthropic import AnthropicProvider
from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message
from nanobot.providers.response_body import LONGEST_SECONDS, Progress
from tests.providers.transports import provider

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
FAILED = HEAD.replace(b"200 OK", b"500 Oh no")
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"It begins"}}]}\n\n'
BEGUN = b'event: message_start\ndata: {"type":"message_start","message":{"model":"m"}}\n\n'

TRICKLES = {
    "the head": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"),
    "blanks": (HEAD, b" "),
    "an object": (HEAD, b'{"choices":[{"message":{"content":"a', b"a"),
    "an event": (HEAD, b'data: {"choices":[{"delta":{"content":"a', b"a"),
    "what follows an event": (HEAD + EVENT, b'data: {"choices":[{"delta":{"content":"a', b"a"),
    "what follows Anthropic's first": (HEAD + BEGUN, b'data: {"type":"content_block_delta', b"a"),
    "comments": (HEAD + EVENT, b": a\n"),
    "tiny events": (HEAD + EVENT, b"data:{}\n\n"),
    "an error": (FAILED, b'{"error":{"message":"a', b"a"),
}


@asynccontextmanager
async def trickling(begin: bytes, *rest: bytes) -> AsyncIterator[str]:
    """Yield a server that sends `begin`, then a byte each quarter of a second, the last part
    forever."""
    serving = set[asyncio.Task[None] | None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            for byte in chain(b"".join(rest[:-1]), cycle(rest[-1])):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.25)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        tasks = list(filter(None, serving))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("name", TRICKLES)
async def test_an_answer_that_trickles_ends(name: str) -> None:
    async with asyncio.timeout(20), trickling(*TRICKLES[name]) as url:
        model = provider(url, stall_seconds=0.6, patience_seconds=1.2)
        with pytest.raises(ProviderError):
            await model.complete(HELLO, CallOptions())
        await model.close()


@pytest.mark.parametrize("name", TRICKLES)
async def test_an_answer_of_the_messages_api_that_trickles_ends(name: str) -> None:
    async with asyncio.timeout(20), trickling(*TRICKLES[name]) as url:
        model = AnthropicProvider(
            model="m",
            base_url=url,
            api_key="",
            max_tokens=0,
            stall_seconds=0.6,
            patience_seconds=1.2,
        )
        with pytest.raises(ProviderError):
            await model.complete(HELLO, CallOptions())
        await model.close()


def test_a_slow_model_is_waited_for_and_a_trickle_is_not() -> None:
    slow, trickle, endless = Progress(0, 600), Progress(0, 600), Progress(0, 600)
    for second in range(400, 2_000, 10):  # it read the prompt for a long time
        slow.note(second, 150, is_part=True)  # a token each ten seconds
        assert slow.until > second
    for second in range(2_000):
        trickle.note(second, 2, is_part=second % 25 == 0)  # two bytes a second
    assert trickle.until == 600
    for second in range(10_000):
        endless.note(second, 1_000, is_part=True)
    assert endless.until == LONGEST_SECONDS
