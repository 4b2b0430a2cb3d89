"""The menu of slash commands in Telegram, as far as a person may use them. Best effort.

Each scope (everybody, and the private chat of each owner) is only told when what it should show is
not what it was told last. Who is owner no longer has the menu of everybody again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loguru import logger
from telegram import BotCommand, BotCommandScope, BotCommandScopeChat, BotCommandScopeDefault
from telegram.error import TelegramError

from nanobot.channel import ChannelHost, MenuEntry
from nanobot.disk import replace
from nanobot_telegram.client import TelegramClient

_FILE = "menu.json"
_MOST = 100
_SUMMARY = 256
_NAME = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
_EVERYBODY = "everybody"


def commands(entries: Sequence[MenuEntry], *, owner: bool) -> tuple[BotCommand, ...]:
    """The commands that the owner, or anybody else, may use, with names that Telegram takes."""
    shown = []
    for entry in entries:
        name = entry.name.replace("-", "_").lower()
        if (owner or not entry.owner_only) and _NAME.fullmatch(name):
            shown.append(BotCommand(name, entry.summary.strip()[:_SUMMARY] or name))
    return tuple(shown[:_MOST])


async def tell_menu(client: TelegramClient, host: ChannelHost, bot_id: int) -> None:
    """Show the commands to everybody and to the owners."""
    path = host.state_folder / _FILE
    told = _read(path)
    entries = host.menu()
    wanted: list[tuple[str, BotCommandScope, tuple[BotCommand, ...]]] = [
        (_EVERYBODY, BotCommandScopeDefault(), commands(entries, owner=False))
    ]
    for owner in host.owners:
        if owner.isdecimal():
            private = BotCommandScopeChat(int(owner))
            wanted.append((owner, private, commands(entries, owner=True)))
    for name, scope, shown in wanted:
        digest = _digest(bot_id, shown)
        if shown and told.get(name) != digest and await _tell(client, scope, shown):
            told[name] = digest
            _write(path, told)
    for name in told.keys() - {name for name, _, _ in wanted}:
        if not name.isdecimal() or await _withdraw(client, BotCommandScopeChat(int(name))):
            del told[name]
            _write(path, told)


async def _tell(
    client: TelegramClient, scope: BotCommandScope, shown: Sequence[BotCommand]
) -> bool:
    try:
        await client.bot.set_my_commands(shown, scope)
    except TelegramError as error:  # such as an owner who never wrote to the bot
        logger.debug("telegram: the menu of commands was not set: {}", error)
        return False
    return True


async def _withdraw(client: TelegramClient, scope: BotCommandScope) -> bool:
    try:
        await client.bot.delete_my_commands(scope)
    except TelegramError as error:
        logger.debug("telegram: a menu of commands was not withdrawn: {}", error)
        return False
    return True


def _digest(bot_id: int, shown: Sequence[BotCommand]) -> str:
    content = [bot_id, *((command.command, command.description) for command in shown)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _read(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        stored = json.loads(path.read_bytes())
        if isinstance(stored, dict):
            return {str(name): str(digest) for name, digest in stored.items()}
    return {}


def _write(path: Path, told: dict[str, str]) -> None:
    with suppress(OSError):  # it is only told once more then
        replace(path, json.dumps(told).encode(), durable=False)
