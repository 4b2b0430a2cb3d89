"""Probing whether a model server is running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from nanobot.errors import ProviderRejected, ProviderUnavailable
from nanobot.providers.discovery import ModelServer
from tests.doubles.openai.server import FakeOpenAI


@contextlib.asynccontextmanager
async def answering(status: str, body: str) -> AsyncIterator[str]:
    """Yield the address of a server that always gives this answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def list_models(base_url: str) -> tuple[str, ...]:
    return tuple(one.name for one in await ModelServer(base_url, "sk-1", 5).models())


async def test_a_server_that_answers_says_what_it_serves() -> None:
    async with FakeOpenAI() as server:
        assert await list_models(server.base_url) == ("fake-model",)
        (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/models", "Bearer sk-1")


@pytest.mark.parametrize(
    ("status", "body"),
    [("404 Not Found", "{}"), ("200 OK", "<html>"), ("200 OK", '{"data": [1]}')],
)
async def test_a_server_without_a_list_is_there_all_the_same(status: str, body: str) -> None:
    async with answering(status, body) as base_url:
        assert await list_models(base_url) == ()


async def test_a_key_that_is_refused_is_an_error() -> None:
    async with answering("401 Unauthorized", '{"error": {"message": "bad key"}}') as base_url:
        with pytest.raises(ProviderRejected, match="401"):
            await list_models(base_url)


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    with pytest.raises(ProviderUnavailable):
        await list_models("http://127.0.0.1:1/v1")
