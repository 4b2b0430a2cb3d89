"""Criterion: the bot's token is in the configuration, and appears nowhere else.

The whole gateway over HTTP, the log at its lowest level and with the values of variables in its
tracebacks, which is more than in any real log of nanobot."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from loguru import logger
from msgspec.structs import asdict

from nanobot.cli.main import main
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot_telegram.channel import TelegramChannel
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.webhook import HEADER
from tests.channels.telegram.support import options_for
from tests.doubles.telegram import FakeTelegram
from tests.files import files_with
from tests.ports import free_port
from tests.support import talking

SECRET = "AAcanary_CANARYcanary-CANARYcanary0"
TOKEN = f"987654321:{SECRET}"


class HastyClock(FakeClock):
    """A clock with immediate pauses. Sleeps of more than a minute never end."""

    async def sleep(self, seconds: float) -> None:
        await (asyncio.sleep(0) if seconds <= 60 else super().sleep(seconds))


class _Forward(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(0)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The whole log, including libraries."""
    said: list[str] = []
    sink = logger.add(said.append, level=0, backtrace=True, diagnose=True)
    root, handler = logging.getLogger(), _Forward(said)
    before = root.level
    root.addHandler(handler)
    root.setLevel(0)
    yield said
    root.removeHandler(handler)
    root.setLevel(before)
    with suppress(ValueError):  # a command has set up the log again
        logger.remove(sink)


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    """A Telegram that reveals the token wherever it can."""
    async with FakeTelegram(TOKEN) as server:
        yield server


def leaks(home: Path, telegram: FakeTelegram, *texts: str) -> list[str]:
    """Return the places where the token appeared."""
    found = find_secret(home, SECRET)
    said = [*texts, *telegram.texts(None)]
    said += [str(call.params) for call in telegram.calls if call.method != "setWebhook"]
    return found + [text for text in said if SECRET in text]


def find_secret(home: Path, secret: str) -> list[str]:
    """Return the files with a secret, except the configuration."""
    return [str(path) for path in files_with(home, secret) if path.name != "config.yaml"]


def misbehave(telegram: FakeTelegram, method: str) -> list[Callable[[], None]]:
    """Cause every failure of a call."""
    told = f'{{"ok": false, "error_code": 400, "description": "bot{TOKEN}"}}'.encode()
    return [
        lambda: telegram.fail(method, 401, f"Unauthorized: bot{TOKEN}"),
        lambda: telegram.fail(method, 400, f"Bad Request: /bot{TOKEN}/x"),
        lambda: telegram.fail(method, 404),
        lambda: telegram.fail(method, 409),
        lambda: telegram.fail(method, 429, parameters={"retry_after": 1}),
        lambda: telegram.fail(method, 502, f"<h1>{TOKEN}</h1>"),
        lambda: telegram.cut(method),
        lambda: telegram.cut(method, after="effect"),
        lambda: telegram.garble(method),
        lambda: telegram.garble(method, told),
        lambda: telegram.garble(method, b"{}"),
    ]


METHODS = ("getUpdates", "sendMessage", "getFile", "file", "sendMessageDraft", "sendChatAction")


async def test_whatever_goes_wrong_the_token_stays_where_it_is(
    tmp_path: Path, telegram: FakeTelegram, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedModel(author=lambda _: says("fine"))
    ways = [misbehave(telegram, method) for method in METHODS]
    clock = HastyClock()
    telegram.garble("getWebhookInfo", b'{"ok": true, "result": "nobody"}')  # the channel crashes
    async with talking(tmp_path, telegram, model, clock=clock) as gateway:
        for wrong in zip(*ways, strict=True):
            for way in wrong:
                way()
            telegram.document(caption="look")
            await telegram.wait_for(lambda: telegram.confirmed == telegram.last_update + 1)
        telegram.heal()
        telegram.push_raw({"update_id": telegram.last_update + 1, "message": "none"})
        await telegram.stop()
        await telegram.start()
        await telegram.answer_to(telegram.say("/status"))
        lines.append(repr(gateway))
        await asyncio.to_thread(main, ["--home", str(tmp_path), "status"])
    for command in (["config", "check"], ["queue", "list"]):
        await asyncio.to_thread(main, ["--home", str(tmp_path), *command])
    printed = capsys.readouterr()
    assert "telegram" in printed.out
    assert any("crashed" in line for line in lines)
    assert any("is set aside" in line for line in lines)
    assert telegram.calls_of("file")
    assert leaks(tmp_path, telegram, *lines, printed.out, printed.err) == []


async def test_errors_and_objects_do_not_show_the_token(
    telegram: FakeTelegram, lines: list[str]
) -> None:
    options = options_for(telegram)
    client = TelegramClient(options, HastyClock())
    shown = [repr(one) for one in (client, client.bot, options)]
    shown += [str(options), str(asdict(options)), str(TelegramChannel(options))]
    for way in misbehave(telegram, "getMe"):
        way()
        shown.append(await _error(client.bot.get_me()))
    telegram.huge("getMe", 5_000_000)
    shown.append(await _error(client.bot.get_me()))
    await telegram.stop()
    shown.append(await _error(client.bot.get_me()))
    shown.append(await _error(client.download("file", 10)))
    shown.append(await _error(client.get_updates(1, 0)))
    await client.aclose()
    shown.append(await _error(client.bot.get_me()))
    assert [text for text in (*shown, *lines) if SECRET in text] == []


async def _error(call: Awaitable[object]) -> str:
    """Return the error of a call, with its causes."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
        await call
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__)


async def test_a_webhook_is_set_up_without_a_word_about_token_or_secret(
    tmp_path: Path, telegram: FakeTelegram, lines: list[str]
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/hook"
    settings = {"webhook_url": url}
    model = ScriptedModel(says("fine"))
    telegram.fail("setWebhook", 502, f"bot{TOKEN}")
    async with talking(
        tmp_path,
        telegram,
        model,
        clock=HastyClock(),
        settings=settings,
        NANOBOT_HTTP__PORT=str(port),
    ):
        await telegram.answer_to(telegram.say("hello"))
        async with aiohttp.ClientSession() as web:
            async with web.post(url, json={}, headers={HEADER: "wrong"}) as answer:
                assert answer.status == 403
                lines.append(await answer.text())
            secret = telegram.calls_of("setWebhook")[-1].text("secret_token")
            async with web.post(url, data=b"\xff", headers={HEADER: secret}) as answer:
                assert answer.status == 200
    assert leaks(tmp_path, telegram, *lines) == []
    assert [line for line in lines if secret in line] == []
    assert find_secret(tmp_path, secret) == []
