"""Telegram as a channel of nanobot: composes the adapter's parts, and sets the menu of slash
commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace
from telegram import BotCommand, BotCommandScope, BotCommandScopeChat, BotCommandScopeDefault
from telegram.error import TelegramError

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits, MenuEntry
from nanobot.channel.health import ConnectionSlot, HealthReporter
from nanobot.clock import first_error
from nanobot.errors import SendRefused
from nanobot.io import FENCE, replace_file
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient, as_send_error
from nanobot_telegram.content import Me
from nanobot_telegram.ingest import Polling, UpdateIngest
from nanobot_telegram.markdown import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_telegram.outbound import LARGEST_FILE, Outbound
from nanobot_telegram.preview import Previews
from nanobot_telegram.reactions import Reactions
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.webhook import Webhook

_ALBUM = 10
_COMMANDS = 100
_SUMMARY = 256
_NAME = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
_EVERYBODY = "everybody"


class _Live(Struct, frozen=True):
    """The parts that exist while the channel runs."""

    client: TelegramClient
    outbound: Outbound
    previews: Previews
    reactions: Reactions


class TelegramChannel:
    """Telegram as a `nanobot.channel.Channel`."""

    name = "telegram"
    limits = Limits(
        text=TEXT_LIMIT,
        caption=CAPTION_LIMIT,
        files=_ALBUM,
        file_bytes=LARGEST_FILE,
        together=(frozenset({"image", "video"}), frozenset({"document"}), frozenset({"audio"})),
        fits=fits,
        voice=True,
        tells_writing=True,
    )

    def __init__(self, options: TelegramSettings) -> None:
        self._options = options
        self.limits = replace(self.limits, drafts=options.previews)
        self._slot: ConnectionSlot[_Live] = ConnectionSlot()
        self.is_exclusive = not options.webhook_url
        """Telegram delivers updates to only one polling client."""
        self.paths = () if self.is_exclusive else (options.local_path,)

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. Raises `ChannelOff` if the token or address is rejected."""
        async with aclosing(TelegramClient(self._options, host.clock)) as client:
            try:
                await self._run(host, client)
            except BaseExceptionGroup as group:
                raise first_error(group) from None
            finally:
                await self._slot.clear()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`."""
        async with self._slot.use() as live:
            return await live.outbound.send(part)

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """Remove the buttons of a message; see `nanobot.channel`."""
        async with self._slot.use() as live:
            await live.outbound.close_choices(part, receipt, outcome)

    async def reach(self) -> None:
        """Make a harmless request; see `nanobot.channel`."""
        try:
            await (await self._slot.wait()).client.me()
        except TelegramError as error:
            raise as_send_error(error) from None

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Return an inbound file; see `nanobot.channel`."""
        if media.size > limit:
            raise SendRefused(f"the file is {media.size:,} bytes, but the limit is {limit:,}")
        return await (await self._slot.wait()).client.download(media.ref, limit)

    async def show_progress(self, event: Progress) -> None:
        """Show progress, if the channel runs."""
        if (live := self._slot.current) is not None:
            live.reactions.note_progress(event)
            await live.previews.show_progress(event)

    async def _run(self, host: ChannelHost, client: TelegramClient) -> None:
        chats = Chats(host.state_folder)
        previews = Previews(client, chats, host.clock, enabled=self._options.previews)
        reactions = Reactions(client, chats, host.clock, enabled=self._options.reactions)
        outbound = Outbound(client, chats, host, previews)
        self._slot.fill(_Live(client, outbound, previews, reactions))
        health = HealthReporter(self.name, host)
        async with asyncio.TaskGroup() as group:
            group.create_task(previews.run())
            group.create_task(reactions.run())
            identity = await client.identify(health)
            health.resolve("connection")
            host.report_connected(f"@{identity.username}")
            group.create_task(update_menus(client, host, identity.id))
            names = frozenset(entry.name for entry in host.menu())
            me = Me(identity.id, identity.username, names)
            ingest = UpdateIngest(client, host, chats, me, group, reactions)
            if self._options.webhook_url:
                await Webhook(client, host, ingest, self._options, health).run()
            else:
                await Polling(client, host, ingest, identity.id, health).run()


def menu_commands(entries: Sequence[MenuEntry], *, owner: bool) -> tuple[BotCommand, ...]:
    """Return the commands for the owner or for other people, with names that Telegram accepts."""
    shown = []
    for entry in entries:
        name = entry.name.replace("-", "_").lower()
        if (owner or not entry.owner_only) and _NAME.fullmatch(name):
            shown.append(BotCommand(name, entry.summary.strip()[:_SUMMARY] or name))
    return tuple(shown[:_COMMANDS])


async def update_menus(client: TelegramClient, host: ChannelHost, bot_id: int) -> None:
    """Set the menu of slash commands for everyone and for each owner. Best effort.

    A scope is set only if it differs from the last one set. A former owner gets the default menu
    again."""
    path = host.state_folder / "menu.json"
    current = read_digests(path)
    wanted = {_EVERYBODY: menu_commands(host.menu(), owner=False)}
    owners = filter(str.isdecimal, host.owners)
    wanted |= {owner: menu_commands(host.menu(), owner=True) for owner in owners}
    for name in {**wanted, **current}:
        shown = wanted.get(name, ())
        content = [bot_id, *((command.command, command.description) for command in shown)]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest() if shown else None
        if digest == current.get(name):
            continue
        try:
            await set_commands(client, name, shown)
        except TelegramError as error:  # such as an owner who never wrote to the bot
            logger.debug("telegram: the command menu was not set: {}", error)
            continue
        if digest is None:
            del current[name]
        else:
            current[name] = digest
        with suppress(OSError):  # at worst it is set again
            await FENCE.wait_aside()
            replace_file(path, json.dumps(current).encode(), durable=False)


async def set_commands(client: TelegramClient, name: str, shown: Sequence[BotCommand]) -> None:
    scope: BotCommandScope = BotCommandScopeDefault()
    if name != _EVERYBODY:
        scope = BotCommandScopeChat(int(name))
    if shown:
        await client.bot.set_my_commands(shown, scope)
    else:
        await client.bot.delete_my_commands(scope)


def read_digests(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        stored = json.loads(path.read_bytes())
        if isinstance(stored, dict):
            names = (name for name in stored if name == _EVERYBODY or name.isdecimal())
            return {name: str(stored[name]) for name in names}
    return {}
