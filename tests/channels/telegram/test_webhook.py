"""An update is confirmed to Telegram only when it is stored, and other senders are rejected."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from nanobot_telegram.webhook import HEADER
from tests.channels.telegram.support import (
    RecordingHost,
    WatchedClock,
    options_for,
    run_until_off,
    running,
)
from tests.doubles.telegram import FakeTelegram
from tests.ports import free_port

PUBLIC = "https://bot.example.org/telegram"


@contextlib.asynccontextmanager
async def listening(telegram: FakeTelegram, host: RecordingHost) -> AsyncIterator[str]:
    """Run the channel in webhook mode, and yield its address."""
    host.port = free_port()
    telegram.webhook.route = f"http://127.0.0.1:{host.port}/telegram"
    async with running(telegram, host, webhook_url=PUBLIC):
        await telegram.wait_for(lambda: telegram.webhook.url == PUBLIC)
        yield telegram.webhook.route


async def call(url: str, secret: str, *, method: str = "POST", body: bytes = b"{}") -> int:
    """Return the status of a call from anywhere."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=body, headers={HEADER: secret}) as answer,
    ):
        return answer.status


def secrets(telegram: FakeTelegram) -> list[str]:
    """Return the secrets that were registered at Telegram, in order."""
    return [str(call.params["secret_token"]) for call in telegram.calls_of("setWebhook")]


async def test_200_is_said_only_after_the_commit(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.gate.clear()
    telegram.say("hello")
    async with listening(telegram, host):
        await host.until(lambda: host.published)
        assert telegram.pending == 1
        host.gate.set()
        await telegram.wait_for(lambda: not telegram.pending)
    assert await host.texts(1) == ["hello"]
    assert telegram.webhook.failures == 0


async def test_what_cannot_be_stored_gets_500_and_comes_again(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.disk_full = True
    for text in ("one", "two"):
        telegram.say(text)
    async with listening(telegram, host):
        await telegram.wait_for(lambda: telegram.webhook.failures)
        assert telegram.pending == 2
        host.disk_full = False
        telegram.webhook.hurry()
        assert await host.texts(2) == ["one", "two"]
        await host.until(lambda: host.reports[-1] == "")


async def test_who_does_not_know_the_secret_is_refused(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    async with listening(telegram, host) as url:
        (secret,) = secrets(telegram)
        for wrong in ("", "x", secret[:-1], secret + "x", "\xe9"):
            assert await call(url, wrong) == 403
        assert await call(url, secret, method="GET") == 405
    assert host.published == 0


async def test_the_secret_is_the_same_for_all_workers_of_a_bot(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    """They accept each other's calls behind one address. It is derived from the bot's token without
    revealing it."""
    for _ in range(2):
        async with listening(telegram, host):
            pass
        telegram.webhook.set("", "")
    first, second = secrets(telegram)
    assert len(first) >= 32
    assert first == second
    assert telegram.token.partition(":")[2] not in first


@pytest.mark.parametrize("body", [b"no JSON", b"[" * 100_000, b'"a text"', b'{"update_id": 1}'])
async def test_what_is_malformed_is_not_asked_for_again(
    body: bytes, telegram: FakeTelegram, host: RecordingHost, tmp_path: Path
) -> None:
    async with listening(telegram, host) as url:
        assert await call(url, secrets(telegram)[0], body=body) == 200
    assert host.stored == []


async def test_a_webhook_that_somebody_removed_is_set_again(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    async with listening(telegram, host):
        await clock.until_asked(300.0)
        telegram.webhook.set("", "")
        telegram.say("hello")
        await clock.advance(300.0)
        assert await host.texts(1) == ["hello"]


async def test_a_start_without_network_registers_later(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.fail("setWebhook", 502)
    async with running(telegram, host, webhook_url=PUBLIC):
        await clock.until_asked(1.0)
        assert "cannot be reached" in host.reports[-1]
        await clock.advance(1.0)
        await telegram.wait_for(lambda: telegram.webhook.url == PUBLIC)
        await host.until(lambda: host.reports[-1] == "")


async def test_an_address_that_telegram_refuses_turns_the_channel_off(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.fail("setWebhook", 400, "Bad Request: bad webhook: HTTPS url must be provided")
    off = await run_until_off(telegram, host, webhook_url=PUBLIC)
    assert "https url must be provided" in str(off)
    assert "webhook_url" in off.hint


@pytest.mark.parametrize(
    "said",
    [
        "Bad Request: bad webhook: Failed to resolve host: Name or service not known",
        "Bad Request: bad webhook: Connection refused",
        "Bad Request: bad webhook: SSL error: certificate verify failed",
    ],
)
async def test_a_refusal_that_may_pass_is_said_and_asked_again(
    said: str, telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.fail("setWebhook", 400, said)
    async with running(telegram, host, webhook_url=PUBLIC):
        await clock.until_asked(1.0)
        assert said.rpartition(": ")[2].casefold() in host.reports[-1].casefold()
        await clock.advance(1.0)
        await telegram.wait_for(lambda: telegram.webhook.url == PUBLIC)
        await host.until(lambda: host.reports[-1] == "")


async def test_a_webhook_that_worked_is_set_again_whatever_telegram_says_meanwhile(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    async with listening(telegram, host):
        await clock.until_asked(300.0)
        telegram.webhook.set("", "")
        telegram.fail("setWebhook", 400, "Bad Request: bad webhook: HTTPS url must be provided")
        await clock.advance(300.0)
        await clock.until_asked(1.0)
        assert "(retrying)" in host.reports[-1]
        await clock.advance(1.0)
        await telegram.wait_for(lambda: telegram.webhook.url == PUBLIC)


async def test_a_refused_call_does_not_condemn_a_token_that_is_right(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.fail("setWebhook", 404)
    async with running(telegram, host, webhook_url=PUBLIC):
        await clock.until_asked(1.0)
        assert "but rejects the request" in host.reports[-1]
        await clock.advance(1.0)
        await telegram.wait_for(lambda: telegram.webhook.url == PUBLIC)


def test_http_is_for_a_server_of_ones_own(telegram: FakeTelegram) -> None:
    url = "http://127.0.0.1:8087/telegram"
    assert options_for(telegram, webhook_url=url).webhook_url == url
