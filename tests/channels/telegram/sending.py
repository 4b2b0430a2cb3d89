"""The sending half of the adapter against a fake Telegram, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nanobot.bus.events import Button, Media, OutboundPart, Receipt
from nanobot.errors import SendRefused
from nanobot.testing import FakeClock
from nanobot.validation import SecretStr
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.outbound import Outbound
from nanobot_telegram.preview import Previews
from nanobot_telegram.settings import TelegramSettings
from tests.channels.telegram.support import RecordingHost
from tests.doubles.telegram import FakeTelegram

GROUP = -42
PERSON = 7


class Home(RecordingHost):
    """A host with its outbound files in its folder."""

    def media_path(self, media: Media) -> Path:
        path = self.state_folder / media.ref
        if not path.exists():
            raise SendRefused(f"{media.ref} is gone")
        return path

    def file(self, ref: str, content: bytes = b"content", **fields: str) -> Media:
        """Create a file with these fields."""
        (self.state_folder / ref).write_bytes(content)
        return Media(ref, name=ref, size=len(content), **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Rig:
    """The connected parts."""

    telegram: FakeTelegram
    clock: FakeClock
    chats: Chats
    previews: Previews
    outbound: Outbound
    home: Home
    showing: asyncio.Task[None]

    async def send(
        self,
        text: str = "",
        *files: Media,
        chat: int = PERSON,
        reply_to: int | str = "",
        thread: int | str = "",
        buttons: tuple[Button, ...] = (),
    ) -> Receipt:
        """Send one part."""
        place = (str(reply_to), str(thread))
        part = OutboundPart("key", "telegram", str(chat), text, files, *place, buttons)
        return await self.outbound.send(part)


async def until(condition: Callable[[], object]) -> None:
    """Let everything run until a condition that only the adapter knows."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0)


@asynccontextmanager
async def set_up_rig(folder: Path, *, previews: bool = True) -> AsyncIterator[Rig]:
    """Start everything. A second one in the same folder is the adapter after a restart."""
    async with FakeTelegram() as telegram, start_rig(folder, telegram, previews=previews) as rig:
        yield rig
        assert not telegram.violations


@asynccontextmanager
async def start_rig(
    folder: Path,
    telegram: FakeTelegram,
    *,
    previews: bool = True,
    rich: bool = True,
    clock: FakeClock | None = None,
) -> AsyncIterator[Rig]:
    """Start the adapter with an existing Telegram."""
    clock, chats = clock or FakeClock(), Chats(folder)
    options = TelegramSettings(token=SecretStr(telegram.token), base_url=telegram.base_url)
    client = TelegramClient(options, clock)
    shown = Previews(client, chats, clock, enabled=previews)
    home = Home(folder, clock)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(shown.run())
            await asyncio.sleep(0)
            outbound = Outbound(client, chats, home, shown, rich=rich)
            yield Rig(telegram, clock, chats, shown, outbound, home, running)
            running.cancel()
    finally:
        await client.aclose()
