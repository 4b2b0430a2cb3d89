"""From raw updates to messages in the core's inbox: the one way in, for polling and webhook.

Each update is read alone: one that cannot be is put aside, and the others are handled. All of a
batch is published at once, together with the cursor that covers it. An error of the core is no
fault of an update: it is raised, nothing is confirmed, and Telegram delivers the batch again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loguru import logger
from telegram import Update
from telegram.error import TelegramError

from nanobot.bus.events import InboundMessage
from nanobot.channel import ChannelHost
from nanobot.channel.quarantine import Quarantine
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.inbound import (
    Albums,
    Me,
    Press,
    Understood,
    from_press,
    understand,
    unreadable,
)

_NOT_VALID = "This button is no longer valid."
_NOT_EPHEMERAL = (
    "I can't answer messages that only I can see. Send it as an ordinary message, or write to me"
    " in a private chat."
)

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Starts something that goes on by itself, and owns it."""

PutAside = Callable[[object, Exception], None]
"""Keeps what is no update, and why it is none."""


class Take(Protocol):
    """Stores updates together with a cursor; raises `StorageError`, and then none of them is."""

    async def __call__(self, updates: Sequence[object], cursor: str | None = None) -> None:
        """Returns when they are durable."""
        ...


@dataclass(frozen=True, slots=True)
class _Taken:
    """What comes of one update. `toast` is shown to whoever pressed a button."""

    message: InboundMessage | None = None
    press: Press | None = None
    toast: str = ""


class Updates:
    """Takes updates of the bot that `me` is."""

    def __init__(
        self, client: TelegramClient, host: ChannelHost, chats: Chats, me: Me, start: Start
    ) -> None:
        self._client, self._host, self._chats = client, host, chats
        self._me, self._start = me, start
        self._albums = Albums()
        self._quarantine = Quarantine(host.state_folder, host.clock, _warn)

    async def take(self, updates: Sequence[object], cursor: str | None = None) -> None:
        """Handle updates as they came from Telegram; returns when all are durable with `cursor`.

        Raises `StorageError`, and then none of them is.
        """
        read = [self._read(update) for update in updates]
        whole = self._albums.complete(read)
        taken = [await self._taken(understood) for understood in whole if understood is not None]
        messages = [item.message for item in taken if item.message is not None]
        self._chats.keep()  # before the updates that say so are gone
        await self._host.publish(messages, cursor)
        for item in taken:
            if item.press is not None:
                self._start(self._acknowledge(item.press, item.message, item.toast))

    def put_aside(self, update: object, error: Exception) -> None:
        """Keep what is no update."""
        self._quarantine.keep(update, f"malformed, {type(error).__name__}")

    def _read(self, update: object) -> Understood | None:
        zone = self._host.clock.now().tzinfo
        assert zone is not None
        try:
            parsed = Update.de_json(_document(update), None)
            understood = understand(parsed, self._me, self._chats.canonical, zone)
            if understood is not None and understood.moved is not None:
                # At once: what was said in the new group comes next, and is the old one's.
                self._chats.told_of_move(*understood.moved)
        except Exception as error:  # noqa: BLE001 - the boundary: one update, whatever is in it
            self.put_aside(update, error)
            return unreadable(update, self._chats.canonical, self._host.clock.now())
        return understood

    async def _taken(self, understood: Understood) -> _Taken:
        if understood.gone is True:
            self._chats.gone(understood.chat.id)
        elif understood.gone is False:
            self._chats.back(understood.chat.id)
        press, message = understood.press, understood.message
        if press is None and message is None and not understood.ephemeral:
            return _Taken()
        sender, chat = understood.sender, understood.chat
        if self._host.admit(sender, chat, addressed=understood.addressed) != "allowed":
            return _Taken()
        self._chats.back(chat.id)
        if chat.is_group:
            self._chats.admitted(chat.id)
        if understood.ephemeral:
            self._start(self._decline(sender.id, chat.id))
            return _Taken()
        if press is None:
            return _Taken(message)
        value = await self._host.pressed(press.button_id, sender, chat)
        if value is None:
            return _Taken(press=press, toast=_NOT_VALID)
        return _Taken(from_press(understood, value, self._host.clock.now()), press)

    async def _decline(self, person: str, chat_id: str) -> None:
        """Say, to them alone, that a message which nobody else sees is not answered: an answer of
        several parts would not stay between us. Best effort."""
        try:
            await self._client.bot.send_message(
                self._chats.current(chat_id),
                _NOT_EPHEMERAL,
                api_kwargs={"receiver_user_id": person},
            )
        except TelegramError as error:
            logger.warning("telegram: an ephemeral message was not answered: {}", error)

    async def _acknowledge(self, press: Press, said: InboundMessage | None, toast: str) -> None:
        """Stop the button's spinner, and take the buttons away where one of them `said`
        something; best effort."""
        bot = self._client.bot
        try:
            await bot.answer_callback_query(press.query_id, text=toast or None)
            if said is not None:
                await bot.edit_message_reply_markup(press.place, press.message_id)
        except TelegramError as error:
            logger.debug("telegram: a pressed button was not acknowledged: {}", error)


def _document(update: object) -> dict[str, object]:
    """The update, with half characters replaced (JSON can hold them, files and SQLite cannot)."""
    if not isinstance(update, dict):
        raise TypeError("an update is an object")
    text = json.dumps(update, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        mended: dict[str, object] = json.loads(whole)
        return mended
    return update


def _warn(words: str) -> None:
    logger.warning("telegram: {}", words)
