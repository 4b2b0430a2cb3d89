"""Delivers one part with exactly one call of the Bot API that succeeds.

A refusal that another form avoids (a quoted message that is gone, a topic that was deleted, a photo
that Telegram cannot read) is answered by sending that form at once: nothing was sent by the call
refused. Everything else becomes a `SendError`, and the core decides when to try again. Once
Telegram took a part it is delivered: nothing that is done afterwards changes that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loguru import logger
from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    Message,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, Forbidden

from nanobot.bus.events import Button, OutboundPart, Receipt
from nanobot.channel import ChannelHost
from nanobot.errors import SendRefused, StorageError
from nanobot.text import valid_unicode
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.failures import Flooded, as_send_error
from nanobot_telegram.markdown import CAPTION_LIMIT, TEXT_LIMIT
from nanobot_telegram.message import (
    NO_LINK_PREVIEW,
    MessageText,
    Shape,
    Upload,
    as_documents,
    number,
    opened,
    uploads_of,
)
from nanobot_telegram.preview import Previews

_MOST_ATTEMPTS = 7
"""One more than there are other forms of a part."""

# The Bot API tells its refusals apart only by their texts, so they are read here and nowhere else.
# What is not known is final.
_NO_REPLY = (
    "message to be replied not found",
    "message to reply not found",
    "replied message not found",
    "reply_message_id_invalid",
    "message_id_invalid",
)
_NO_TOPIC = ("thread not found", "topic_deleted", "topic_closed", "topic_id_invalid")
_NO_ENTITIES = ("entities", "entity_", "can't parse", "invalid url", "url_invalid")
_NO_CHAT = ("chat not found", "peer_id_invalid", "user_is_blocked", "user not found")
_FINAL = (
    "not enough rights to send text",
    "have no rights to send",
    "chat_write_forbidden",
    "too large",
)
_TOO_LONG = ("too long", "too_long")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One form of a part. `thread` and `reply_to` are ids or None; `plain`: without entities;
    `documents`: every file as a plain document."""

    chat_id: int
    thread: int | None = None
    reply_to: int | None = None
    plain: bool = False
    documents: bool = False

    def after(self, refusal: str, *, has_files: bool) -> Attempt | None:
        """The form to try after one was refused with this text; None where there is none. Each
        change is made once, so that trying ends."""
        if _says(refusal, _FINAL):
            return None
        if self.thread is not None and _says(refusal, _NO_TOPIC):
            return replace(self, thread=None)
        if self.reply_to is not None and _says(refusal, _NO_REPLY):
            return replace(self, reply_to=None)
        is_too_long = _says(refusal, _TOO_LONG)
        if not self.plain and (is_too_long or _says(refusal, _NO_ENTITIES)):
            return replace(self, plain=True)  # the source may be shorter than what is made of it
        if has_files and not self.documents and not is_too_long:
            return replace(self, documents=True)
        return None


class Outbound:
    """Sends parts. `previews` are removed around each send."""

    def __init__(
        self, client: TelegramClient, chats: Chats, host: ChannelHost, previews: Previews
    ) -> None:
        self._client, self._chats, self._host, self._previews = client, chats, host, previews

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part; raises one of the `SendError`s. Buttons go with a text or a single file:
        an album can have none."""
        if self._chats.is_unreachable(part.chat_id):
            raise _lost("it refused us before")
        chat_id = self._chats.current(part.chat_id)
        # Where the group has another id by now, messages have other ones as well.
        place, _, answered = part.reply_to.rpartition("/")
        is_there = (place or part.chat_id) == str(chat_id)
        reply_to = number(answered) if is_there else None
        uploads = uploads_of([(media, self._host.path_of(media)) for media in part.media])
        if not uploads and not part.content.strip():
            raise SendRefused("there is nothing to send")
        await self._previews.settle(part.chat_id)
        attempt = Attempt(chat_id, number(part.thread_id), reply_to)
        message_id = await self._deliver(part, uploads, attempt)
        try:
            self._previews.note_reply(part.chat_id)
        except Exception as error:  # noqa: BLE001 - the boundary: raising would send it once more
            logger.warning("telegram: {}: previews are not removed: {!r}", part.key, error)
        return Receipt(str(message_id))

    async def _deliver(
        self, part: OutboundPart, uploads: Sequence[Upload], attempt: Attempt
    ) -> int:
        for _ in range(_MOST_ATTEMPTS):
            try:
                return await self._call(part, uploads, attempt)
            except ChatMigrated as error:
                attempt = self._at_new_id(part, attempt, error.new_chat_id)
            except BadRequest as error:
                attempt = self._in_another_form(part, attempt, error)
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

    async def _call(self, part: OutboundPart, uploads: Sequence[Upload], to: Attempt) -> int:
        """One call; the id of the (first) message. Raises the library's errors."""
        bot, limit = self._client.bot, CAPTION_LIMIT if uploads else TEXT_LIMIT
        text = MessageText.of(part.content, limit, plain=to.plain)
        reply = None
        if to.reply_to is not None:
            reply = ReplyParameters(to.reply_to, allow_sending_without_reply=True)
        place: dict[str, Any] = {"message_thread_id": to.thread, "reply_parameters": reply}
        if not uploads:
            message = await bot.send_message(
                to.chat_id,
                text.text,
                entities=text.entities or None,
                reply_markup=_keyboard(part.buttons),
                link_preview_options=NO_LINK_PREVIEW,
                **place,
            )
            return message.message_id
        if to.documents:
            uploads = as_documents(uploads)
        with opened(uploads) as files:
            if len(files) > 1:
                items = [
                    _album_item(upload.shape, file, MessageText() if at else text)
                    for at, (upload, file) in enumerate(zip(uploads, files, strict=True))
                ]
                return (await bot.send_media_group(to.chat_id, items, **place))[0].message_id
            send: Callable[..., Awaitable[Message]] = getattr(bot, f"send_{uploads[0].shape}")
            message = await send(
                to.chat_id,
                files[0],
                caption=text.text or None,
                caption_entities=text.entities or None,
                reply_markup=_keyboard(part.buttons),
                **place,
            )
            return message.message_id

    def _at_new_id(self, part: OutboundPart, attempt: Attempt, new_id: int) -> Attempt:
        try:
            self._chats.move(part.chat_id, str(new_id))
        except StorageError as error:
            logger.warning("telegram: {}", error)  # the next start asks the old chat once more
        # Messages have other ids there.
        return replace(attempt, chat_id=new_id, reply_to=None)

    def _in_another_form(self, part: OutboundPart, attempt: Attempt, error: BadRequest) -> Attempt:
        if _says(error.message, _NO_CHAT):
            self._chats.set_unreachable(part.chat_id)
            raise _lost(error.message)
        again = attempt.after(error.message, has_files=bool(part.media))
        if again is None:
            raise as_send_error(error) from None
        logger.info("telegram: {}: {}; sent in another form", part.key, error.message)
        return again


_AlbumItem = InputMediaAudio | InputMediaDocument | InputMediaPhoto | InputMediaVideo


def _album_item(shape: Shape, file: InputFile, text: MessageText) -> _AlbumItem:
    kinds: dict[Shape, Callable[..., _AlbumItem]] = {
        "photo": InputMediaPhoto,
        "video": InputMediaVideo,
        "audio": InputMediaAudio,
    }
    make = kinds.get(shape, InputMediaDocument)
    return make(file, caption=text.text or None, caption_entities=text.entities or None)


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """One button to a line: labels are words of people, and phones are narrow."""
    rows = [
        [InlineKeyboardButton(valid_unicode(button.label), callback_data=button.id)]
        for button in buttons
    ]
    return InlineKeyboardMarkup(rows) if rows else None


def _says(refusal: str, texts: Sequence[str]) -> bool:
    return any(text in refusal.casefold() for text in texts)


def _lost(reason: str) -> SendRefused:
    return SendRefused(
        f"this chat of Telegram takes nothing from the bot ({reason})",
        hint="It works again when someone there unblocks the bot or adds it, and writes to it.",
    )
