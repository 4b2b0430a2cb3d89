"""Errors for servers that refuse, and their texts for people."""

from __future__ import annotations

import traceback

import pytest

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.endpoint import Endpoint, is_secret_key, retry_after
from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message
from tests.doubles.openai.answers import Raw, Step
from tests.doubles.openai.faults import Huge, busy, server_error
from tests.doubles.openai.server import FakeOpenAI
from tests.providers.transports import provider as provider_at

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
KEY = "sk-very-secret-0123456789"


async def failure_at(base_url: str, key: str = KEY) -> ProviderError:
    provider = provider_at(base_url, api_key=key)
    with pytest.raises(ProviderError) as caught:
        await provider.complete(HELLO, CallOptions())
    await provider.close()
    return caught.value


async def failure(step: Step) -> ProviderError:
    async with FakeOpenAI([step]) as server:
        return await failure_at(server.base_url)


@pytest.mark.parametrize(
    ("step", "low", "high"),
    [
        (busy(2), 2, 2),
        (busy(), 0, 0),
        (server_error(503, 7), 7, 7),
        (Raw(b"{}", status=429, headers={"Retry-After": "soon"}), 0, 0),
        (Raw(b"{}", status=429, headers={"Retry-After": "nan"}), 0, 0),
        (Raw(b"{}", status=429, headers={"retry-after-ms": "250"}), 0.25, 0.25),
        (Raw(b"{}", status=529, headers={"Retry-After": "1e12"}), 86_400, 86_400),
    ],
)
async def test_the_wait_a_server_asks_for_is_understood(
    step: Step, low: float, high: float
) -> None:
    error = await failure(step)
    assert isinstance(error, ProviderBusy | ProviderUnavailable)
    assert low <= error.retry_after <= high


async def test_a_wait_until_a_date_is_understood() -> None:
    error = await failure(busy(30, as_date=True))
    assert isinstance(error, ProviderBusy)
    assert 27 <= error.retry_after <= 30
    past = await failure(busy(-30, as_date=True))
    assert isinstance(past, ProviderBusy)
    assert past.retry_after == 0


def test_a_wait_until_a_date_counts_from_the_servers_own_clock() -> None:
    due = "Wed, 21 Oct 2026 07:28:30 GMT"
    assert retry_after({"retry-after": due, "date": "Wed, 21 Oct 2026 07:28:20 GMT"}) == 10
    assert retry_after({"retry-after": due}) == 0


def error_body(message: str, code: str = "", kind: str = "") -> bytes:
    return f'{{"error":{{"message":"{message}","code":"{code}","type":"{kind}"}}}}'.encode()


@pytest.mark.parametrize(
    ("step", "kind", "text"),
    [
        (Raw(error_body("no", "insufficient_quota"), status=429), ProviderRejected, "(429): no"),
        (Raw(b"", status=402), ProviderRejected, "no credit left"),
        (Raw(b"Forbidden", status=403), ProviderRejected, "Check model.api_key"),
        (Raw(error_body("no such model"), status=404), ProviderRejected, "Check model.name"),
        (Raw(b"", status=308, headers={"Location": "/v2"}), ProviderRejected, "redirect"),
        (Raw(error_body("bad 'messages'"), status=400), ProviderRejected, "(400): bad 'messages'"),
        (Raw(error_body("slow"), status=408), ProviderUnavailable, "(408): slow"),
        (Raw(b"", status=409), ProviderUnavailable, "(409)"),
        (Raw(b"<h1>Bad gateway</h1>", status=502), ProviderUnavailable, "Bad gateway"),
        (Raw(b'{"error":"out of memory"}', status=500), ProviderUnavailable, "out of memory"),
        (Raw(b'{"detail":"unprocessable"}', status=422), ProviderRejected, "unprocessable"),
        (Raw(b"[" * 60_000, status=418), ProviderRejected, "(418): [["),
        (Raw(b"", status=413), ContextTooLong, "too long for m-1"),
        (Huge(status=500), ProviderUnavailable, "failed (500)"),
        (Huge(status=400, start=b"no "), ProviderRejected, "(400): no x"),
    ],
)
async def test_statuses_and_codes_decide(step: Step, kind: type[ProviderError], text: str) -> None:
    error = await failure(step)
    assert type(error) is kind
    assert text in error.for_people()
    assert len(error.for_people()) < 700


@pytest.mark.parametrize(
    ("base_url", "key", "text"),
    [
        ("localhost:8080", KEY, "model.base_url"),
        ("ftp://example.org", KEY, "model.base_url"),
        ("http://[::1", KEY, "model.base_url"),
        ("http://127.0.0.1:9", "sk-\u200bhidden", "model.api_key"),
        ("http://127.0.0.1:9", "sk-two\nlines", "model.api_key"),
    ],
)
async def test_settings_that_cannot_work_are_said_so(base_url: str, key: str, text: str) -> None:
    error = await failure_at(base_url, key)
    assert type(error) is ProviderRejected
    assert text in str(error)
    assert key not in error.for_people()


async def test_certificates_that_are_not_there_are_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/mine.pem")
    error = await failure_at("https://127.0.0.1:9/v1")
    assert type(error) is ProviderRejected
    assert str(error) == "cannot use SSL_CERT_FILE (/nowhere/mine.pem): No such file or directory"
    assert "unset it" in error.hint


@pytest.mark.parametrize(
    "step",
    [
        Raw(error_body(f"Incorrect API key provided: {KEY}"), status=401),
        Raw(f"<html>{KEY}</html>".encode()),
        Raw(f"data: nonsense {KEY}\n\n".encode()),
        Raw(error_body(f"echo {KEY}")),
        Raw(KEY.encode(), status=500),
        Raw(KEY.encode()),
    ],
)
async def test_no_error_holds_the_key_that_a_server_echoes(step: Step) -> None:
    error = await failure(step)
    assert KEY not in f"{error.for_people()}{error!r}{error.detail}"
    assert KEY not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("base_url", "model", "key"),
    [
        ("http://localhost:11434/v1", "llama3.2", "ollama"),
        ("http://127.0.0.1:1234/v1", "qwen", "local"),
        ("http://lm-studio.lan:1234/v1", "qwen", "lm-studio"),
        ("http://localhost:8000/v1", "meta-llama/Llama-3", "meta-llama"),
    ],
)
def test_a_word_that_people_write_for_a_key_is_left_in_errors(
    base_url: str, model: str, key: str
) -> None:
    error = Endpoint(base_url, model, key).refusal_error(400, {}, f"no {key} here".encode())
    assert base_url in str(error)
    assert f"no {key} here" in str(error)


def test_no_error_holds_a_header_of_the_owners_or_the_password_of_the_address() -> None:
    headers = {"Authorization": "Bearer sk-of-my-own", "X-Gateway": "gateway secret"}
    here = Endpoint("http://me:p4ssw0rd!@localhost:1/v1", "m", own_headers=headers)
    error = here.refusal_error(
        401, {}, b"no sk-of-my-own, Bearer sk-of-my-own, gateway secret, p4ssw0rd!"
    )
    shown = f"{error} {error.detail}"
    assert not any(one in shown for one in ("sk-of-my-own", "gateway secret", "p4ssw0rd!"))
    assert "http://localhost:1/v1" in shown


def test_a_key_of_eight_characters_is_a_secret() -> None:
    error = Endpoint("http://localhost:1/v1", "m", "k1234567").refusal_error(
        400, {}, b"no k1234567"
    )
    assert "no [api key]" in str(error)


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("ollama", False),
        ("lm-studio", False),
        ("llama-3.2", False),
        ("not-needed", True),
        ("sk-12345", True),
        ("secret-in-the-address", True),
    ],
)
def test_a_word_of_the_server_or_its_model_is_no_secret_key(key: str, is_secret: bool) -> None:
    address = "http://user:secret-in-the-address@lm-studio.lan:1234/v1"
    assert is_secret_key(key, address, "meta/llama-3.2") is is_secret
