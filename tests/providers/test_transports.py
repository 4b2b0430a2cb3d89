"""Connections to a model server and their bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from loguru import logger

from nanobot.errors import ProviderBusy, ProviderRejected, ProviderUnavailable
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, RequestSettings, Toolset, user_message
from nanobot.providers.retry import Model, RetryingProvider, RetryPolicy
from nanobot.testing import FakeClock
from tests.doubles.openai.server import FakeOpenAI
from tests.providers.transports import provider

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
FINE = {"choices": [{"index": 0, "message": {"content": "fine"}, "finish_reason": "stop"}]}
BODY = json.dumps(FINE).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the port of a server that treats each connection like this."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(one, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def request(reader: asyncio.StreamReader) -> str:
    """Return the head of the next request, and read its body as well."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = (line.partition(": ") for line in head.splitlines()[1:])
    length = next(value for name, _, value in lines if name.lower() == "content-length")
    await reader.readexactly(int(length))
    return head


async def ask(model: OpenAIProvider) -> str:
    return (await model.complete(HELLO, CallOptions())).text


async def ask_once(model: OpenAIProvider) -> str:
    try:
        return await ask(model)
    finally:
        await model.close()


async def test_a_request_is_the_official_sdks() -> None:
    """Only headers that identify the client differ."""
    from openai import AsyncOpenAI

    text = "Grüße, 你好 🙂 " + "x" * 2_000_000
    async with FakeOpenAI(["one", "two"]) as server:
        model = provider(server.base_url, api_key="k", max_tokens=9)
        await model.complete(Prompt((user_message(text),), Toolset.of([])), CallOptions())
        await model.close()
        sdk = AsyncOpenAI(base_url=server.base_url, api_key="k")
        async for _ in await sdk.chat.completions.create(
            model="m-1",
            messages=[{"role": "user", "content": text}],
            max_tokens=9,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"return_progress": True},
        ):
            pass
        await sdk.close()
        seen = server.requests
    ours, theirs = seen
    assert (ours.path, ours.body) == (theirs.path, theirs.body)
    for name in ("authorization", "content-type", "accept"):
        assert ours.headers.get(name) == theirs.headers.get(name), name
    assert not [name for name in ours.headers if name.startswith("x-")]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
async def test_bytes_may_be_cut_anywhere_and_a_reply_may_be_long(stream: bool) -> None:
    text = "é 你好 🙂 " * 40
    async with FakeOpenAI([text], wire_bytes=1) as server:
        assert await ask_once(provider(server.base_url, stream=stream)) == text
    long = "word " * 300_000
    async with FakeOpenAI([long], characters=100_000) as server:
        assert await ask_once(provider(server.base_url, stream=stream)) == long


async def test_a_server_may_speak_http_1_0() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + BODY)
        await writer.drain()

    async with listening(serve) as port:
        model = provider(f"http://127.0.0.1:{port}/v1")
        assert [await ask(model), await ask_once(model)] == ["fine", "fine"]


async def test_connections_that_the_server_closed_meanwhile_are_not_used_again() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with listening(serve) as port:
        model = provider(f"http://127.0.0.1:{port}/v1")
        for _ in range(3):
            assert await ask(model) == "fine"
            await closed.wait()
            closed.clear()
            await asyncio.to_thread(int)  # the end of the connection is seen in this time
        await model.close()


async def test_connections_are_kept_for_the_next_request() -> None:
    opened = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        while True:
            await request(reader)
            writer.write(ANSWER)

    async with listening(serve) as port:
        model = provider(f"http://127.0.0.1:{port}/v1")
        assert [await ask(model), await ask(model), await ask_once(model)] == ["fine"] * 3
    assert len(opened) == 1


async def test_the_owners_headers_win_over_ours() -> None:
    own = {"authorization": "Token canary-7f3a91", "X-Team": "ops", "user-agent": "mine"}
    async with FakeOpenAI() as server:
        settings = RequestSettings(headers=own)
        await ask_once(provider(server.base_url, settings=settings, api_key="sk-4711"))
    (asked,) = server.requests
    assert {name: asked.headers[name.lower()] for name in own} == own
    assert "sk-4711" not in str(asked.headers)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_the_environment_may_name_a_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await request(reader))
        writer.write(ANSWER)
        await writer.drain()

    async with listening(serve) as port:
        monkeypatch.setenv(name, f"http://me:pass@127.0.0.1:{port}")
        assert await ask_once(provider("http://model.example/v1")) == "fine"
        monkeypatch.setenv("NO_PROXY", "example.com, .invalid")
        with pytest.raises(ProviderUnavailable, match="cannot reach the model server"):
            await ask_once(provider("http://model.invalid/v1"))
    assert len(heads) == 1
    assert heads[0].startswith("POST http://model.example/v1/chat/completions HTTP/1.1\r\n")
    assert "proxy-authorization: basic bwu6cgfzcw==\r\n" in heads[0].lower()


@pytest.mark.parametrize("base_url", ["http://model.example/v1", "https://model.example/v1"])
async def test_a_proxy_is_not_told_the_key_as_its_own(
    base_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with listening(serve) as port:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        with pytest.raises((ProviderRejected, ProviderUnavailable)):
            await ask_once(provider(base_url, api_key="sk-4711"))
    lines = heads[0].lower().splitlines()
    assert not [line for line in lines if line.startswith("proxy-authorization")]
    assert ("sk-4711" in heads[0]) == base_url.startswith("http:")  # which it passes on


@pytest.mark.parametrize(
    ("host", "exceptions", "direct"),
    [
        ("model.invalid", "other, .invalid", True),
        ("model.invalid", "MODEL.invalid", True),
        ("model.invalid", "*.invalid", True),
        ("model.invalid", "model.invalid:80", True),
        ("model.invalid", "model.invalid:81,del.invalid,10.0.0.0/8", False),
        ("127.0.0.2", "127.0.0.2", True),
        ("127.0.0.2", "127.0.0.0/8", True),
        ("127.0.0.2", "127.0.0.3 ::1 127", False),
        ("model.invalid", "*", True),
    ],
)
async def test_the_environment_may_name_servers_that_need_no_proxy(
    host: str, exceptions: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await request(reader))
        writer.write(ANSWER)
        await writer.drain()

    async with listening(serve) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", exceptions)
        if direct:
            with pytest.raises(ProviderUnavailable, match="cannot reach"):
                await ask_once(provider(f"http://{host}/v1"))
        else:
            assert await ask_once(provider(f"http://{host}/v1")) == "fine"
    assert bool(heads) != direct


@pytest.mark.parametrize(
    "proxy", ["socks4://me:pass-4711@127.0.0.1:9", "http://me:pass-4711@[::1", "http://h:pass-4711"]
)
async def test_a_proxy_that_is_none_is_refused_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(ProviderRejected, match="proxy in the environment can't be used") as refused:
        await ask_once(provider("http://model.example/v1"))
    assert "pass-4711" not in f"{refused.value} {refused.value.hint}"


async def test_what_a_new_connection_may_have_taken_is_not_sent_again() -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        asked.append(await request(reader))

    async with listening(serve) as port:
        with pytest.raises(ProviderUnavailable, match="stopped in the middle"):
            await ask_once(provider(f"http://127.0.0.1:{port}/v1"))
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("head", "kind"), [("401 No", ProviderRejected), ("429 No\r\nRetry-After: 7", ProviderBusy)]
)
async def test_a_refusal_counts_though_its_body_breaks_off(
    head: str, kind: type[ProviderRejected | ProviderBusy]
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: 500\r\n\r\nbecause".encode())
        await writer.drain()

    async with listening(serve) as port:
        with pytest.raises(kind, match="because") as refused:
            await ask_once(provider(f"http://127.0.0.1:{port}/v1"))
    assert refused.value.retry_after == (7 if kind is ProviderBusy else 0)


async def test_a_list_of_models_is_not_waited_for_without_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.01)

    async with listening(serve) as port:
        with pytest.raises(ProviderUnavailable, match=r"sent nothing for 0\.4 seconds"):
            await ask_once(provider(f"http://127.0.0.1:{port}/v1", model="", stall_seconds=0.2))


async def test_the_environment_may_name_a_certificate_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    making = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", "2", "-subj", "/CN=ours", "-addext", "subjectAltName=DNS:localhost",
        "-keyout", key, "-out", certificate, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await making.wait() == 0
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)
        await writer.drain()

    async with listening(serve, served) as port:
        with pytest.raises(ProviderUnavailable, match="certificate verify failed"):
            await ask_once(provider(f"https://localhost:{port}/v1"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await ask_once(provider(f"https://localhost:{port}/v1")) == "fine"


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_server_that_resets_new_connections_is_asked_once_a_try(at_once: bool) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        if not at_once:
            await request(reader)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    clock = FakeClock(auto=True)
    async with listening(serve) as port:
        model = provider(f"http://127.0.0.1:{port}/v1")
        retrying = RetryingProvider([Model("m", model)], RetryPolicy(), clock, Random(7))
        with pytest.raises(ProviderUnavailable):
            await retrying.complete(HELLO, CallOptions())
        await retrying.close()
    assert len(asked) == len(clock.slept) + 1
    assert 20 < clock.monotonic() < 60


@pytest.mark.parametrize(
    "elsewhere",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n404 page not found",  # Ollama
        b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_an_address_without_a_path_works_where_the_api_is_under_v1(elsewhere: bytes) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append((await request(reader)).split()[1])
            writer.write(ANSWER if asked[-1].startswith("/v1/") else elsewhere)

    async with listening(serve) as port:
        model = provider(f"http://127.0.0.1:{port}")
        warnings: list[str] = []
        sink = logger.add(warnings.append, level="WARNING", format="{message}")
        assert await ask(model) == "fine"
        logger.remove(sink)
        assert await ask_once(model) == "fine"
    assert asked == ["/chat/completions", "/v1/chat/completions", "/v1/chat/completions"]
    assert warnings == [
        f"the model server answers at http://127.0.0.1:{port}/v1."
        " Set model.base_url to that address\n"
    ]


@pytest.mark.parametrize("path", ["", "/v1"])
async def test_what_the_server_refuses_under_v1_is_what_a_person_hears(path: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await request(reader)).split()[1]
            body = b'{"error":"no model m-1"}' if head.startswith("/v1/") else b"no page"
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with listening(serve) as port:
        with pytest.raises(ProviderRejected, match="no model m-1") as caught:
            await ask_once(provider(f"http://127.0.0.1:{port}{path}"))
    assert "model.base_url" in caught.value.hint
