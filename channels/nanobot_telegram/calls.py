"""The calls of the Bot API that send something to stay. Each gives the id of the (first) message.

Link previews are off: a reply that quotes ten pages is no page of pictures, and a page that a model
was talked into naming is not fetched on anybody's behalf.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    Message,
    MessageEntity,
    ReplyParameters,
)

from nanobot.bus.events import Button
from nanobot.channel.text import valid_unicode
from nanobot_telegram.files import Shape
from nanobot_telegram.refusals import Attempt
from nanobot_telegram.texts import NO_LINK_PREVIEW, Saying

_InputMedia = InputMediaAudio | InputMediaDocument | InputMediaPhoto | InputMediaVideo


def number(text: str) -> int | None:
    """The id of a message or topic; None for what is none, which then is left out."""
    return int(text) if text.isascii() and text.isdigit() else None


async def send_text(bot: Bot, to: Attempt, saying: Saying, buttons: Sequence[Button]) -> int:
    """A message of text. Raises the library's errors, as all of these do."""
    message = await bot.send_message(
        to.chat_id,
        saying.text,
        entities=saying.entities or None,
        reply_markup=_keyboard(buttons),
        message_thread_id=to.thread,
        reply_parameters=_reply(to),
        link_preview_options=NO_LINK_PREVIEW,
    )
    return message.message_id


async def send_file(
    bot: Bot,
    to: Attempt,
    saying: Saying,
    shape: Shape,
    file: InputFile,
    buttons: Sequence[Button],
) -> int:
    """One file, with a text under it that may be empty."""
    senders: dict[Shape, Callable[..., Awaitable[Message]]] = {
        "photo": bot.send_photo,
        "animation": bot.send_animation,
        "voice": bot.send_voice,
        "audio": bot.send_audio,
        "video": bot.send_video,
        "document": bot.send_document,
    }
    message = await senders[shape](
        to.chat_id,
        file,
        caption=saying.text or None,
        caption_entities=saying.entities or None,
        reply_markup=_keyboard(buttons),
        message_thread_id=to.thread,
        reply_parameters=_reply(to),
    )
    return message.message_id


async def send_album(
    bot: Bot, to: Attempt, saying: Saying, shapes: Sequence[Shape], files: Sequence[InputFile]
) -> int:
    """Several files as one message, with the text under the first."""
    silent = Saying("", ())
    items = [
        _item(shape, file, silent if at else saying)
        for at, (shape, file) in enumerate(zip(shapes, files, strict=True))
    ]
    messages = await bot.send_media_group(
        to.chat_id, items, message_thread_id=to.thread, reply_parameters=_reply(to)
    )
    return messages[0].message_id


def _item(shape: Shape, file: InputFile, saying: Saying) -> _InputMedia:
    text: str | None = saying.text or None
    entities: Sequence[MessageEntity] | None = saying.entities or None
    match shape:
        case "photo":
            return InputMediaPhoto(file, caption=text, caption_entities=entities)
        case "video":
            return InputMediaVideo(file, caption=text, caption_entities=entities)
        case "audio":
            return InputMediaAudio(file, caption=text, caption_entities=entities)
        case _:
            return InputMediaDocument(file, caption=text, caption_entities=entities)


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """One button to a line: labels are words of people, and phones are narrow."""
    if not buttons:
        return None
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(valid_unicode(button.label), callback_data=button.id)]
            for button in buttons
        ]
    )


def _reply(to: Attempt) -> ReplyParameters | None:
    if to.reply_to is None:
        return None
    return ReplyParameters(to.reply_to, allow_sending_without_reply=True)
