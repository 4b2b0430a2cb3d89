"""The checks of Telegram by `nanobot doctor`."""

from __future__ import annotations

from pathlib import Path

from nanobot.channel import CheckFinding, CheckRequest
from nanobot.clock import SystemClock
from nanobot.validation import build
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.setup import check
from tests.doubles.telegram import FakeTelegram


async def run_check(server: FakeTelegram, folder: Path, **options: str) -> list[CheckFinding]:
    given = {"token": server.token, "base_url": server.base_url} | options
    settings = build(TelegramSettings, given)
    return list(await check(CheckRequest(settings, folder, SystemClock(), 10.0)))


async def test_the_bot_is_named_and_no_update_confirmed(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as server:
        (known,) = await run_check(server, tmp_path)
        assert {call.method for call in server.calls} == {"getMe"}
    assert (known.state, known.text) == ("ok", f"Telegram recognizes the bot @{server.username}")


async def test_a_webhook_that_telegram_was_not_told_of_is_a_warning(tmp_path: Path) -> None:
    url = "https://example.org/telegram"
    async with FakeTelegram() as server:
        _, webhook = await run_check(server, tmp_path, webhook_url=url)
    assert (webhook.state, url in webhook.text) == ("warn", True)
