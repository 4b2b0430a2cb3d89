"""Delivers one part with exactly one successful call of the Bot API.

Telegram shows photos, voice notes, videos and music only in some formats and sizes. Other files are
sent as documents, which always works. No file is read into memory whole. A text with headings or
tables is sent as a rich message if the server supports these, otherwise with entities.

If another form avoids a refusal (a quoted message or topic was deleted, Telegram cannot read a
photo), that form is sent at once: the refused call sent nothing. Other failures become a
`SendError`, and the core decides when to retry. Once Telegram accepted a part it is delivered, and
later failures don't change that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace
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
from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken

from nanobot.bus.events import Button, Media, OutboundPart, Receipt
from nanobot.bus.split import utf16_length
from nanobot.channel import ChannelHost
from nanobot.channel.documents import file_facts
from nanobot.errors import SendRefused, StorageError
from nanobot.io import FENCE
from nanobot.text import valid_unicode
from nanobot_telegram.chats import Chats, number
from nanobot_telegram.client import (
    NO_LINK_PREVIEW,
    Flooded,
    ServerFault,
    TelegramClient,
    as_send_error,
)
from nanobot_telegram.markdown import CAPTION_LIMIT, ENTITY_LIMIT, TEXT_LIMIT, FormattedText, render
from nanobot_telegram.preview import Previews
from nanobot_telegram.rich import MAY_BE_RICH, Block, rich_blocks

Shape = Literal["photo", "animation", "voice", "audio", "video", "document"]
"""The form of a file, sent by the method `send_…` of the Bot API."""

_DOCUMENT: Shape = "document"

LARGEST_FILE = 50_000_000
"""The size limit of a bot's upload in bytes."""
_LARGEST_PHOTO = 10_000_000
_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_MUSIC = frozenset({"audio/mpeg", "audio/mp3", "audio/mp4", "audio/m4a", "audio/x-m4a"})
_VOICES = _MUSIC | {"audio/ogg", "audio/opus"}

_MOST_ATTEMPTS = 8  # one more than the number of other forms

# The Bot API distinguishes refusals only by their texts, which are read only here.
# Unknown refusals are final.
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


class Attempt(Struct, frozen=True):
    """One form of a part. `thread` and `reply_to` are ids or None. `plain`: without entities.
    `documents`: send every file as a document. `blocks`: send a rich message of these. `only`: the
    person in a group who sees it."""

    chat_id: int
    thread: int | None = None
    reply_to: int | None = None
    plain: bool = False
    documents: bool = False
    blocks: Sequence[Block] = ()
    only: int | None = None

    @property
    def reply(self) -> ReplyParameters | None:
        """The message to reply to."""
        if self.reply_to is None:
            return None
        return ReplyParameters(self.reply_to, allow_sending_without_reply=True)

    def after(self, refusal: str, *, has_files: bool) -> Attempt | None:
        """Return the form to try after a refusal with this text, or None. Each change is made once,
        so the attempts end."""
        if self.thread is not None and mentions_any(refusal, _NO_TOPIC):
            return replace(self, thread=None)
        if self.reply_to is not None and mentions_any(refusal, _NO_REPLY):
            return replace(self, reply_to=None)
        if self.blocks:
            return replace(self, blocks=())
        if mentions_any(refusal, _FINAL):
            return None
        is_too_long = mentions_any(refusal, _TOO_LONG)
        if not self.plain and (is_too_long or mentions_any(refusal, _NO_ENTITIES)):
            return replace(self, plain=True)  # the source may be shorter than the rendered text
        can_be_document = has_files and not self.documents and not is_too_long
        return replace(self, documents=True) if can_be_document else None


class _Upload(Struct, frozen=True):
    """A file on disk, its display name, and the form it is sent in."""

    path: Path
    name: str
    shape: Shape


class Outbound:
    """Sender of parts. `previews` are finished before each send. `rich`: send rich messages, until
    the server turns out not to support them."""

    def __init__(
        self,
        client: TelegramClient,
        chats: Chats,
        host: ChannelHost,
        previews: Previews,
        *,
        rich: bool = True,
    ) -> None:
        self._client, self._chats, self._host, self._previews = client, chats, host, previews
        self._rich, self._failed_rich = rich, ""

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part. Raises a `SendError`. Only a text or a single file can have buttons, an
        album can't."""
        if self._chats.is_unreachable(part.chat_id):
            raise unreachable_chat("Telegram rejected an earlier message")
        uploads: Sequence[_Upload] = ()
        if part.media:
            uploads = make_compatible(
                [describe_upload(one, self._host.media_path(one)) for one in part.media]
            )
        if not uploads and not part.content.strip():
            raise SendRefused("there is nothing to send")
        await self._previews.finish(part.chat_id)
        message_id = await self._deliver(part, uploads, self._first_attempt(part))
        return Receipt(str(message_id or ""))  # a message for one person has no id for others

    def _first_attempt(self, part: OutboundPart) -> Attempt:
        chat_id = self._chats.current(part.chat_id)
        # In a group that moved, messages have other ids too.
        place, _, answered = part.reply_to.rpartition("/")
        is_there = (place or part.chat_id) == str(chat_id)
        reply_to = number(answered) if is_there else None
        only = number(part.only) if not part.media and chat_id < 0 else None
        may_be_rich = self._rich and not part.media and only is None
        may_be_rich = may_be_rich and part.key != self._failed_rich
        may_be_rich = may_be_rich and MAY_BE_RICH.search(part.content) is not None
        blocks = rich_blocks(part.content) if may_be_rich else ()
        thread = number(part.thread_id)
        return Attempt(chat_id, thread, reply_to, blocks=blocks, only=only)

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """Edit a sent message: remove its buttons, and add a line if there is room. Raises the
        library's errors."""
        place, message_id = self._chats.current(part.chat_id), number(receipt.platform_id)
        text = render_part(replace(part, content=f"{part.content}\n\n{outcome}"), plain=False)
        if not part.media and utf16_length(text.text) <= TEXT_LIMIT:
            fields = {
                "chat_id": place,
                "message_id": message_id,
                "text": text.text,
                "entities": text.entities or None,
                "link_preview_options": NO_LINK_PREVIEW,
            }
            with suppress(BadRequest):
                await self._client.call("editMessageText", fields)
                return
        try:
            await self._client.bot.edit_message_reply_markup(place, message_id)
        except BadRequest as error:
            if "not modified" not in str(error):  # it has no buttons any more
                raise

    async def _deliver(
        self, part: OutboundPart, uploads: Sequence[_Upload], attempt: Attempt
    ) -> int:
        for _ in range(_MOST_ATTEMPTS):
            try:
                return await self._call(part, uploads, attempt)
            except ChatMigrated as error:
                await FENCE.wait_aside()
                attempt = self._at_new_id(part, attempt, error.new_chat_id)
            except BadRequest as error:
                attempt = self._in_another_form(part, attempt, error)
            except Forbidden as error:
                self._chats.set_unreachable(part.chat_id)
                raise unreachable_chat(error.message) from None
            except Flooded as error:
                self._previews.pause(part.chat_id, error.seconds)
                raise as_send_error(error) from None
            except Exception as error:  # noqa: BLE001 - the boundary: the core decides
                # The library may fail in any way, for example on an answer that it can't parse:
                # translate that into its effect on the part.
                raise as_send_error(error) from None
        raise SendRefused("Telegram rejects this in every format")

    async def _call(self, part: OutboundPart, uploads: Sequence[_Upload], to: Attempt) -> int:
        """Make one call. Return the id of the (first) message. Raises the library's errors."""
        if to.only is not None:
            try:
                return await self._send_text(part, to)
            except (BadRequest, Forbidden) as error:
                logger.info("telegram: {} is shown to all members: {}", part.key, error.message)
                to = replace(to, only=None)
        if to.blocks:
            try:
                return await self._send_rich(part, to)
            except InvalidToken as error:  # also the answer of a server without this method
                logger.info("telegram: the server does not support rich messages: {}", error)
                self._rich = False
            except ServerFault:  # the form may be the cause: retry in another
                self._failed_rich = part.key
                raise
        if not uploads:
            return await self._send_text(part, to)
        bot, text = self._client.bot, render_part(part, plain=to.plain)
        place: dict[str, Any] = {"message_thread_id": to.thread, "reply_parameters": to.reply}
        with ExitStack() as stack:
            files = [open_upload(upload, stack, attach=len(uploads) > 1) for upload in uploads]
            shapes = [_DOCUMENT if to.documents else upload.shape for upload in uploads]
            words = {"caption": text.text or None, "caption_entities": text.entities or None}
            if len(files) > 1:
                items = [
                    _ALBUM_ITEMS.get(shape, InputMediaDocument)(file, **({} if at else words))
                    for at, (shape, file) in enumerate(zip(shapes, files, strict=True))
                ]
                return (await bot.send_media_group(to.chat_id, items, **place))[0].message_id
            send: Callable[..., Awaitable[Message]] = getattr(bot, f"send_{shapes[0]}")
            keyboard = build_keyboard(part.buttons)
            message = await send(to.chat_id, files[0], reply_markup=keyboard, **words, **place)
            return message.message_id

    async def _send_text(self, part: OutboundPart, to: Attempt) -> int:
        text = render_part(part, plain=to.plain)
        content = {
            "text": text.text,
            "entities": text.entities or None,
            "link_preview_options": NO_LINK_PREVIEW,
            "receiver_user_id": to.only,
        }
        return await self._send("sendMessage", part, to, content)

    async def _send_rich(self, part: OutboundPart, to: Attempt) -> int:
        """Send a rich message, which the library does not support. Raises `InvalidToken` also if
        the server has no such method."""
        content = {"rich_message": {"blocks": to.blocks}}
        return await self._send("sendRichMessage", part, to, content)

    async def _send(
        self, method: str, part: OutboundPart, to: Attempt, content: Mapping[str, object]
    ) -> int:
        place = {
            "chat_id": to.chat_id,
            "message_thread_id": to.thread,
            "reply_parameters": to.reply,
            "reply_markup": build_keyboard(part.buttons),
        }
        return await self._client.send(method, {**place, **content})

    def _at_new_id(self, part: OutboundPart, attempt: Attempt, new_id: int) -> Attempt:
        try:
            self._chats.move(part.chat_id, str(new_id))
        except StorageError as error:
            logger.warning("telegram: {}", error)  # after a restart, the old chat is tried again
        # Messages have other ids there.
        return replace(attempt, chat_id=new_id, reply_to=None)

    def _in_another_form(self, part: OutboundPart, attempt: Attempt, error: BadRequest) -> Attempt:
        if mentions_any(error.message, _NO_CHAT):
            self._chats.set_unreachable(part.chat_id)
            raise unreachable_chat(error.message)
        again = attempt.after(error.message, has_files=bool(part.media))
        if again is None:
            raise as_send_error(error) from None
        logger.info("telegram: {} is sent in another format: {}", part.key, error.message)
        return again


_AlbumItem = InputMediaAudio | InputMediaDocument | InputMediaPhoto | InputMediaVideo
_ALBUM_ITEMS: Mapping[Shape, Callable[..., _AlbumItem]] = {
    "photo": InputMediaPhoto,
    "video": InputMediaVideo,
    "audio": InputMediaAudio,
}


def render_part(part: OutboundPart, *, plain: bool) -> FormattedText:
    """Return the text of a part. `plain`: without entities, and as the source if that is short
    enough, because it shows the addresses of links."""
    markdown = valid_unicode(part.content)
    if plain and utf16_length(markdown) <= (CAPTION_LIMIT if part.media else TEXT_LIMIT):
        return FormattedText(markdown)
    rendered = render(markdown)
    return FormattedText(rendered.text, () if plain else rendered.entities[:ENTITY_LIMIT])


def make_compatible(uploads: Sequence[_Upload]) -> Sequence[_Upload]:
    """Make all files documents, unless their forms can share an album: photos with videos, or one
    kind."""
    shapes = {upload.shape for upload in uploads}
    if len(uploads) == 1 or shapes <= {"photo", "video"} or shapes == {"audio"}:
        return uploads
    return [replace(upload, shape=_DOCUMENT) for upload in uploads]


def open_upload(upload: _Upload, stack: ExitStack, *, attach: bool) -> InputFile:
    try:
        file = stack.enter_context(upload.path.open("rb"))
    except OSError as error:
        raise SendRefused(f"the file {upload.name} no longer exists") from error
    return InputFile(file, upload.name, attach=attach, read_file_handle=False)


def describe_upload(media: Media, path: Path) -> _Upload:
    name, mime, size = file_facts(media, path, LARGEST_FILE, "Telegram")
    return _Upload(path, name, choose_shape(media, mime, size))


def choose_shape(media: Media, mime: str, size: int) -> Shape:
    match media.kind:
        case "image" if mime == "image/gif":
            return "animation"
        case "image" if size <= _LARGEST_PHOTO and (mime in _PHOTOS or not mime):
            return "photo"
        case "voice" if mime in _VOICES or not mime:
            return "voice"
        case "audio" | "voice" if mime in _MUSIC:
            return "audio"
        case "video" if mime in {"video/mp4", ""}:
            return "video"
    return "document"


def build_keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """Return the buttons, one per line: labels are words of people, and phones are narrow."""
    rows = [
        [InlineKeyboardButton(valid_unicode(button.label), callback_data=button.id)]
        for button in buttons
    ]
    return InlineKeyboardMarkup(rows) if rows else None


def mentions_any(refusal: str, texts: Sequence[str]) -> bool:
    return any(text in refusal.casefold() for text in texts)


def unreachable_chat(reason: str) -> SendRefused:
    return SendRefused(
        f"the bot can't send messages to this Telegram chat ({reason})",
        hint="To use the chat again, someone there must unblock or add the bot and write to it.",
    )
