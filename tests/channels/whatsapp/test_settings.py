"""Valid settings, and error messages that do not repeat invalid values."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nanobot.validation import Invalid, build
from nanobot_whatsapp.settings import WhatsAppSettings

CLOUD = {
    "transport": "cloud",
    "phone_number_id": "106540352242922",
    "access_token": "EAAFakeFakeFake",
    "app_secret": "0123456789abcdef0123456789abcdef",
    "verify_token": "a-word-of-mine",
    "webhook_url": "https://bot.example.org/whatsapp",
}


def test_a_linked_device_needs_no_settings() -> None:
    assert WhatsAppSettings().transport == "linked"


@pytest.mark.parametrize("key", [key for key in CLOUD if key != "transport"])
def test_the_cloud_api_needs_each_of_its_keys(key: str) -> None:
    with pytest.raises(Invalid) as refused:
        build(WhatsAppSettings, {**CLOUD, key: ""})
    assert [fault.key for fault in refused.value.faults] == [(key,)]
    assert "is required with transport: cloud" in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook_url": "https://bot.example.org/whatsapp"},
        {"node": "  "},
        CLOUD | {"self_chat": True},
        CLOUD | {"webhook_url": "http://bot.example.org/whatsapp"},
        CLOUD | {"webhook_url": "https://bot.example.org"},
        CLOUD | {"phone_number_id": "+1 555 000 1111"},
        CLOUD | {"base_url": "ftp://graph.example.org"},
        CLOUD | {"base_url": "https://me@graph.example.org"},
        {"phone": "15550001111"},
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        build(WhatsAppSettings, wrong)


def test_a_secret_that_is_wrong_is_not_repeated() -> None:
    with pytest.raises(Invalid) as refused:
        build(WhatsAppSettings, CLOUD | {"app_secret": "my secret word"})
    assert "secret word" not in str(refused.value)
    assert "EAAFake" not in repr(build(WhatsAppSettings, CLOUD))


def test_strangers_are_answered_in_the_cloud_and_never_at_a_linked_number_unasked() -> None:
    assert build(WhatsAppSettings, CLOUD).answers_strangers
    assert not build(WhatsAppSettings, CLOUD | {"pairing": "never"}).answers_strangers
    assert not WhatsAppSettings().answers_strangers
    assert WhatsAppSettings(pairing="always").answers_strangers


def test_the_path_of_the_webhook_is_that_of_its_address() -> None:
    assert build(WhatsAppSettings, CLOUD).local_path == "/whatsapp"


def test_checking_the_settings_loads_no_transport() -> None:
    code = (
        "import sys, nanobot_whatsapp.settings\n"
        "print([name for name in sys.modules if name.startswith('nanobot_whatsapp.')\n"
        "       or name in ('aiohttp', 'httpx', 'markdown_it')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "['nanobot_whatsapp.settings']"
