"""The channel chooses a transport and passes everything on to it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt, TurnStarted
from nanobot.channel import ChannelHost, Limits
from nanobot_whatsapp import WhatsAppChannel
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.telegram.support import RecordingHost, WatchedClock

PART = OutboundPart("k", "whatsapp", "15557770000", "hello")
STARTED = TurnStarted("whatsapp", "15557770000", "t1")


class Notebook:
    """A transport that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    @property
    def limits(self) -> Limits:
        return Limits(text=7)

    async def run(self, host: ChannelHost) -> None:
        self.asked.append(host)

    async def send(self, part: OutboundPart) -> Receipt:
        self.asked.append(part)
        return Receipt("3EB0")

    async def reach(self) -> None:
        self.asked.append("reach")

    async def fetch(self, media: Media, limit: int) -> bytes:
        self.asked.append((media, limit))
        return b"bytes"

    async def show(self, event: Progress) -> None:
        self.asked.append(event)


@pytest.fixture
def host(tmp_path: Path) -> RecordingHost:
    """The core."""
    return RecordingHost(tmp_path, WatchedClock())


async def test_everything_is_passed_on(host: RecordingHost) -> None:
    notebook = Notebook()
    channel = WhatsAppChannel(WhatsAppSettings(), transport=notebook)
    await channel.run(host)
    assert (channel.name, channel.limits.text) == ("whatsapp", 7)
    assert await channel.send(PART) == Receipt("3EB0")
    await channel.reach()
    assert await channel.fetch(Media("ref"), 9) == b"bytes"
    await channel.show(STARTED)
    assert notebook.asked == [host, PART, "reach", (Media("ref"), 9), STARTED]


def test_it_is_found_by_its_entry_point() -> None:
    [point] = entry_points(group="nanobot.channels", name="whatsapp")
    assert point.load() is WhatsAppChannel


def test_only_the_transport_in_use_is_imported() -> None:
    code = (
        "import sys; from nanobot_whatsapp.channel import WhatsAppChannel\n"
        "from nanobot_whatsapp.settings import WhatsAppSettings\n"
        "WhatsAppChannel(WhatsAppSettings())\n"
        "print([name for name in sys.modules if name.startswith('nanobot_whatsapp.cloud')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"
