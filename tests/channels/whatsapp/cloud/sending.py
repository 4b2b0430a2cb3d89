"""The sending half of the transport against a fake Graph API, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nanobot.bus.events import Button, Media, MediaKind, OutboundPart, Receipt
from nanobot.channel.health import HealthReporter
from nanobot.errors import SendRefused
from nanobot.testing import FakeClock
from nanobot.validation import build
from nanobot_whatsapp.cloud.graph import Graph
from nanobot_whatsapp.cloud.outbound import Outbound
from nanobot_whatsapp.ingest import RecentMessages
from nanobot_whatsapp.people import People
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.telegram.support import RecordingHost
from tests.doubles.graph.server import FakeGraphAPI

ANN = "15550002222"
PUBLIC = "https://bot.example.org/whatsapp"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of outbound files."""

    folder: Path

    def media_path(self, media: Media) -> Path:
        path = self.folder / media.ref
        if not path.exists():
            raise SendRefused(f"{media.ref} is gone")
        return path

    def file(
        self, ref: str, kind: MediaKind = "document", mime: str = "", content: bytes = b"content"
    ) -> Media:
        """Create a file."""
        (self.folder / ref).write_bytes(content)
        return Media(ref, kind, mime, ref, len(content))


@dataclass(frozen=True, slots=True)
class Rig:
    """The connected parts."""

    meta: FakeGraphAPI
    graph: Graph
    outbound: Outbound
    people: People
    recent: RecentMessages
    host: RecordingHost
    home: Home

    async def send(
        self,
        text: str = "",
        *files: Media,
        chat: str = ANN,
        reply_to: str = "",
        buttons: tuple[Button, ...] = (),
        key: str = "key",
    ) -> Receipt:
        """Send one part."""
        part = OutboundPart(key, "whatsapp", chat, text, files, reply_to, "", buttons)
        return await self.outbound.send(part)


@asynccontextmanager
async def set_up_rig(folder: Path, **settings: str) -> AsyncIterator[Rig]:
    """Start everything, after a message of Ann."""
    clock = FakeClock(auto=True)
    host = RecordingHost(folder, clock)
    async with FakeGraphAPI(clock=clock) as meta:
        meta.say("hello", person=ANN)
        given = {**meta.settings(), "webhook_url": PUBLIC, **settings}
        options = build(WhatsAppSettings, given)
        graph = Graph(options, clock, HealthReporter("whatsapp", host))
        people, recent, home = People(folder), RecentMessages(), Home(folder)
        outbound = Outbound(graph, people, home.media_path, recent)
        try:
            yield Rig(meta, graph, outbound, people, recent, host, home)
        finally:
            await graph.close()
