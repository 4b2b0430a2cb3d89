"""Valid settings, and error messages that do not repeat invalid values."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nanobot.validation import Invalid, build
from nanobot_telegram.settings import TelegramSettings

TOKEN = "123456789:AAFakeFakeFakeFakeFakeFakeFakeFake0"  # opens nothing


@pytest.mark.parametrize("token", ["AAFakeFakeSecret", "123456789", "12:AAFake Secret", ""])
def test_what_is_no_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(Invalid) as refused:
        build(TelegramSettings, {"token": token})
    assert "BotFather" in str(refused.value)
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    "written", ["http://127.0.0.1:8081", "http://127.0.0.1:8081/", "http://127.0.0.1:8081/bot"]
)
def test_an_address_of_the_api_is_forgiven_its_end(written: str) -> None:
    settings = build(TelegramSettings, {"token": TOKEN, "base_url": written})
    assert settings.base_url == "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://example.org"},
        {"base_url": "https://me@example.org"},
        {"proxy": "ftp://127.0.0.1:1080"},
        {"webhook_url": "http://example.org/telegram"},
        {"webhook_url": "https://example.org"},
        {"tokens": "x"},
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        build(TelegramSettings, {"token": TOKEN, **wrong})


def test_the_path_of_the_webhook_is_that_of_its_address() -> None:
    given = {"token": TOKEN, "webhook_url": "https://example.org/bots/telegram"}
    assert build(TelegramSettings, given).local_path == "/bots/telegram"


def test_checking_the_settings_loads_no_platform_library() -> None:
    code = (
        "import sys, nanobot_telegram.settings\n"
        "print([name for name in ('telegram', 'httpx', 'markdown_it') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"
