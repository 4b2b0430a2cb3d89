"""From raw updates to messages in the core's inbox: the one way in, for polling and webhook.

Each update is parsed alone: one that cannot be parsed is quarantined, and the others are handled.
A batch is published at once, together with the cursor that covers it. An error of the core is no
fault of an update: it is raised, nothing is confirmed, and Telegram delivers the batch again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from loguru import logger
from telegram import Update
from telegram.error import TelegramError

from nanobot.bus.events import InboundMessage
from nanobot.channel import ChannelHost
from nanobot.channel.documents import Quarantine
from nanobot.errors import SendRefused
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.content import Me
from nanobot_telegram.updates import (
    AlbumTracker,
    ParsedUpdate,
    Press,
    from_press,
    parse_update,
    unreadable,
)

_NOT_VALID = "This button is no longer valid."
_NOT_EPHEMERAL = (
    "I can't answer messages that only I can see. Send it as an ordinary message, or write to me"
    " in a private chat."
)


class UpdateIngest:
    """Ingests updates of the bot that `me` is. `tasks` own what goes on afterwards by itself."""

    def __init__(
        self,
        client: TelegramClient,
        host: ChannelHost,
        chats: Chats,
        me: Me,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._client, self._host, self._chats = client, host, chats
        self._me, self._tasks = me, tasks
        self._albums = AlbumTracker()
        self._quarantine = Quarantine("telegram", host)

    async def ingest(self, updates: Sequence[object], cursor: str | None = None) -> None:
        """Handle updates as they came from Telegram; returns when all are durable with `cursor`.

        Raises `StorageError`, and then none of them is.
        """
        messages: list[InboundMessage] = []
        presses: list[tuple[Press, bool]] = []
        for update in self._albums.complete([self._parse(update) for update in updates]):
            if update is None or not self._admitted(update):
                continue
            if update.ephemeral:
                self._tasks.create_task(self._decline(update.sender.id, update.chat.id))
            elif update.message is not None:
                messages.append(update.message)
            elif (press := update.press) is not None:
                value = await self._host.pressed(press.button_id, update.sender, update.chat)
                presses.append((press, value is not None))
                if value is not None:
                    messages.append(from_press(update, press, value, self._host.clock.now()))
        self._chats.flush()  # before Telegram forgets the updates that say so
        await self._host.publish(messages, cursor)
        for press, is_valid in presses:
            self._tasks.create_task(self._acknowledge(press, is_valid=is_valid))

    def quarantine(self, update: object, error: Exception) -> None:
        """Keep what is no update aside."""
        self._quarantine.keep(update, f"malformed, {type(error).__name__}")

    def _parse(self, update: object) -> ParsedUpdate | None:
        now = self._host.clock.now()
        assert now.tzinfo is not None
        try:
            if not isinstance(update, dict):
                raise TypeError("an update is an object")  # noqa: TRY301
            parsed = parse_update(
                Update.de_json(update, None), self._me, self._chats.canonical, now.tzinfo
            )
            if parsed is not None and parsed.moved is not None:
                # At once: what was said in the new group comes next, and is the old one's.
                self._chats.note_move(*parsed.moved)
        except Exception as error:  # noqa: BLE001 - the boundary: one update, whatever is in it
            self.quarantine(update, error)
            return unreadable(update, self._chats.canonical, now)
        return parsed

    def _admitted(self, update: ParsedUpdate) -> bool:
        """Whether it says something and its sender may; takes note of what it says of the chat."""
        chat = update.chat
        if update.gone is True:
            self._chats.set_unreachable(chat.id)
        elif update.gone is False:
            self._chats.set_reachable(chat.id)
        if update.press is None and update.message is None and not update.ephemeral:
            return False
        if self._host.admit(update.sender, chat, addressed=update.addressed) != "allowed":
            return False
        self._chats.set_reachable(chat.id)
        if chat.is_group:
            self._chats.admit_group(chat.id)
        return True

    async def _decline(self, person: str, chat_id: str) -> None:
        """Tell the sender alone that ephemeral messages are not answered: an answer of several
        parts would not stay between us. Best effort."""
        try:
            await self._client.bot.send_message(
                self._chats.current(chat_id),
                _NOT_EPHEMERAL,
                api_kwargs={"receiver_user_id": person},
            )
        except (TelegramError, SendRefused) as error:
            logger.warning("telegram: an ephemeral message was not answered: {}", error)

    async def _acknowledge(self, press: Press, *, is_valid: bool) -> None:
        """Stop the button's spinner, and take the buttons away once one of them was used; best
        effort."""
        bot = self._client.bot
        try:
            await bot.answer_callback_query(press.query_id, text=None if is_valid else _NOT_VALID)
            if is_valid:
                await bot.edit_message_reply_markup(press.place, press.message_id)
        except TelegramError as error:
            logger.debug("telegram: a pressed button was not acknowledged: {}", error)
