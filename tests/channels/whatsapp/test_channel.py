"""The channel uses the transport in the settings."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from nanobot.channel import Reachable
from nanobot.validation import build
from nanobot_whatsapp import WhatsAppChannel
from nanobot_whatsapp.settings import WhatsAppSettings

CLOUD = {
    "transport": "cloud",
    "phone_number_id": "106540352242922",
    "access_token": "EAAG1234567890",
    "app_secret": "0123456789abcdef",
    "verify_token": "agreed-beforehand",
    "webhook_url": "https://bot.example.org/whatsapp",
}


@pytest.mark.parametrize(
    ("settings", "transport"), [({}, "LinkedTransport"), (CLOUD, "CloudTransport")]
)
async def test_the_settings_choose_the_transport(settings: dict[str, str], transport: str) -> None:
    channel = WhatsAppChannel(build(WhatsAppSettings, settings))
    assert (channel.name, type(channel).__name__) == ("whatsapp", transport)
    assert isinstance(channel, Reachable) != channel.limits.shown_once
    assert (channel.limits.text, channel.limits.caption, channel.limits.files) == (4096, 1024, 1)


def test_it_is_found_by_its_entry_point() -> None:
    [point] = entry_points(group="nanobot.channels", name="whatsapp")
    assert point.load() is WhatsAppChannel


def test_only_the_transport_in_use_is_imported() -> None:
    code = (
        "import sys; from nanobot_whatsapp import WhatsAppChannel\n"
        "from nanobot_whatsapp.settings import WhatsAppSettings\n"
        "WhatsAppChannel(WhatsAppSettings())\n"
        "print([name for name in sys.modules if name.startswith('nanobot_whatsapp.cloud')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"
