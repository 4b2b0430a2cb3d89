"""Delivers one part with exactly one call of the Bot API that succeeds.

A refusal that can be mended (a quoted message that is gone, a topic that was deleted, a photo that
Telegram cannot read) is mended and tried again at once: nothing was sent by the call refused.
Everything else becomes a `SendError`, and the core decides when to try again. Once Telegram took a
part it is delivered: nothing that is done afterwards changes that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from loguru import logger
from telegram.error import BadRequest, ChatMigrated, Forbidden

from nanobot.bus.events import Media, OutboundPart, Receipt
from nanobot.errors import SendRefused, StorageError
from nanobot_telegram.calls import number, send_album, send_file, send_text
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.failures import Flooded, as_send_error
from nanobot_telegram.files import Upload, as_documents, opened, together, upload_of
from nanobot_telegram.markdown import CAPTION_LIMIT, TEXT_LIMIT
from nanobot_telegram.preview import Previews
from nanobot_telegram.refusals import Attempt, is_chat_lost, mended
from nanobot_telegram.texts import Saying

_MOST_ATTEMPTS = 7
"""One more than there are ways to mend a part."""


class Files(Protocol):
    """Where outbound files lie; the host of the adapter knows."""

    def path_of(self, media: Media) -> Path:
        """On disk; raises `SendRefused` where it is gone."""
        ...


class Outbound:
    """Sends parts. `previews` are cleared away around each send."""

    def __init__(
        self, client: TelegramClient, chats: Chats, files: Files, previews: Previews
    ) -> None:
        self._client, self._chats, self._files, self._previews = client, chats, files, previews

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part; raises one of the `SendError`s. Buttons go with a text or a single file:
        an album can have none."""
        attempt = self._first_attempt(part)
        uploads = together([upload_of(file, self._files.path_of(file)) for file in part.media])
        if not uploads and not part.content.strip():
            raise SendRefused("there is nothing to send")
        await self._previews.settle(part.chat_id)
        message_id = await self._deliver(part, uploads, attempt)
        self._clear_away(part)
        return Receipt(str(message_id))

    def _clear_away(self, part: OutboundPart) -> None:
        try:
            self._previews.finished(part.chat_id)
        except Exception as error:  # noqa: BLE001 - the boundary: raising would send it once more
            logger.warning("telegram: {}: previews are not cleared away: {!r}", part.key, error)

    def _first_attempt(self, part: OutboundPart) -> Attempt:
        if self._chats.is_unreachable(part.chat_id):
            raise _lost("it refused us before")
        chat_id = self._chats.current(part.chat_id)
        # Where the group has another id by now, messages have other ones as well.
        place, _, answered = part.reply_to.rpartition("/")
        is_there = (place or part.chat_id) == str(chat_id)
        return Attempt(chat_id, number(part.thread_id), number(answered) if is_there else None)

    async def _deliver(
        self, part: OutboundPart, uploads: Sequence[Upload], attempt: Attempt
    ) -> int:
        for _ in range(_MOST_ATTEMPTS):
            try:
                return await self._call(part, uploads, attempt)
            except ChatMigrated as error:
                attempt = self._at_new_id(part, attempt, error.new_chat_id)
            except BadRequest as error:
                attempt = self._mended(part, attempt, error)
            except Forbidden as error:
                self._chats.set_unreachable(part.chat_id)
                raise _lost(error.message) from None
            except Flooded as error:
                self._previews.hold(part.chat_id, error.seconds)
                raise as_send_error(error) from None
            except Exception as error:  # noqa: BLE001 - the boundary: the core decides
                # Whatever the library stumbles over (an answer that it does not understand, say),
                # the core hears what that means for the part.
                raise as_send_error(error) from None
        raise SendRefused("Telegram refuses this in every form")

    async def _call(self, part: OutboundPart, uploads: Sequence[Upload], attempt: Attempt) -> int:
        limit = CAPTION_LIMIT if uploads else TEXT_LIMIT
        saying = Saying.of(part.content, limit, plain=attempt.plain)
        bot, buttons = self._client.bot, part.buttons
        if not uploads:
            return await send_text(bot, attempt, saying, buttons)
        if attempt.documents:
            uploads = as_documents(uploads)
        with opened(uploads) as files:
            if len(files) == 1:
                return await send_file(bot, attempt, saying, uploads[0].shape, files[0], buttons)
            shapes = [upload.shape for upload in uploads]
            return await send_album(bot, attempt, saying, shapes, files)

    def _at_new_id(self, part: OutboundPart, attempt: Attempt, new_id: int) -> Attempt:
        try:
            self._chats.move(part.chat_id, str(new_id))
        except StorageError as error:
            logger.warning("telegram: {}", error)  # the next start asks the old chat once more
        # Messages have other ids there.
        return replace(attempt, chat_id=new_id, reply_to=None)

    def _mended(self, part: OutboundPart, attempt: Attempt, error: BadRequest) -> Attempt:
        if is_chat_lost(error.message):
            self._chats.set_unreachable(part.chat_id)
            raise _lost(error.message)
        again = mended(attempt, error.message, has_files=bool(part.media))
        if again is None:
            raise as_send_error(error) from None
        logger.info("telegram: {}: {}; sent in another form", part.key, error.message)
        return again


def _lost(reason: str) -> SendRefused:
    return SendRefused(
        f"this chat of Telegram takes nothing from the bot ({reason})",
        hint="It works again when someone there unblocks the bot or adds it, and writes to it.",
    )
