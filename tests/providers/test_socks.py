"""A model server, and a platform, behind a SOCKS5 proxy."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.channel.http import HttpClient, Unsent
from nanobot.errors import ProviderUnavailable
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.socks import FakeSocks

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
LOGIN = ("me", "pass:4711")


def provider(host: str) -> OpenAIProvider:
    return OpenAIProvider(model="m", base_url=f"http://{host}/v1", api_key="k", max_tokens=0)


async def ask(model: OpenAIProvider) -> str:
    try:
        return (await model.complete(HELLO, CallOptions())).text
    finally:
        await model.close()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
async def test_the_proxy_looks_up_the_model_server_and_passes_all_on(
    scheme: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeOpenAI() as server:
        port = int(server.base_url.rpartition(":")[2].removesuffix("/v1"))
        async with FakeSocks({"model.example": port}, LOGIN).open() as proxy:
            monkeypatch.setenv(name, f"{scheme}://me:pass%3A4711@127.0.0.1:{proxy.port}")
            assert await ask(provider("model.example")) == "Hello"
    assert proxy.asked == [("model.example", 80)]


async def test_a_connection_through_the_proxy_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI() as server:
        port = int(server.base_url.rpartition(":")[2].removesuffix("/v1"))
        async with FakeSocks({"model.example": port}).open() as proxy:
            monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{proxy.port}")
            model = provider("model.example")
            answers = [await model.complete(HELLO, CallOptions()) for _ in range(3)]
            await model.close()
    assert [answer.text for answer in answers] == ["Hello"] * 3
    assert len(proxy.asked) == 1


@pytest.mark.parametrize(
    ("login", "host", "reason"),
    [
        ("you:wrong", "model.example", "authentication"),
        ("me:pass", "nowhere.example", "host unreachable"),
    ],
)
async def test_a_proxy_that_does_not_connect_is_named_without_its_password(
    login: str, host: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeSocks({"model.example": 9}, ("me", "pass")).open() as proxy:
        monkeypatch.setenv("ALL_PROXY", f"socks5h://{login}@127.0.0.1:{proxy.port}")
        with pytest.raises(ProviderUnavailable, match="SOCKS proxy") as failed:
            await ask(provider(host))
    assert reason in str(failed.value).lower()
    assert login.partition(":")[2] not in str(failed.value)


async def test_a_proxy_that_is_not_there_makes_the_server_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:9")
    with pytest.raises(ProviderUnavailable, match="cannot reach the model server"):
        await ask(provider("model.example"))


async def test_a_server_that_ends_each_connection_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, FakeSocks({"model.example": _port(server)}).open() as proxy:
        monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{proxy.port}")
        with pytest.raises(ProviderUnavailable):
            await ask(provider("model.example"))
    assert connections == 1


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_a_platform_is_reached_through_the_proxy_of_its_channel(scheme: str) -> None:
    async with FakeOpenAI() as server:
        port = int(server.base_url.rpartition(":")[2].removesuffix("/v1"))
        async with FakeSocks({"api.example": port}, LOGIN).open() as proxy:
            client = HttpClient("t", proxy=f"{scheme}://me:pass%3A4711@127.0.0.1:{proxy.port}")
            answer = await client.request("GET", "http://api.example/v1/models", 5.0, 10_000)
            await client.close()
    assert answer.status == 200
    assert proxy.asked == [("api.example", 80)]
    client = HttpClient("t", proxy=f"{scheme}://127.0.0.1:9")
    with pytest.raises(Unsent):
        await client.request("GET", "http://api.example/v1/models", 5.0, 10_000)
    await client.close()


async def test_a_proxy_that_hangs_up_got_no_request() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(3)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        client = HttpClient("t", proxy=f"socks5://127.0.0.1:{_port(server)}")
        with pytest.raises(Unsent):
            await client.request("GET", "http://api.example/v1/models", 5.0, 10_000)
        await client.close()
