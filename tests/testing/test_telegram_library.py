"""`FakeTelegram` speaks the Bot API: an independent library reads and writes there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, Message, MessageEntity
from telegram.error import BadRequest
from telegram.request import HTTPXRequest

from tests.doubles.telegram.server import FakeTelegram

_PLAIN = {"trust_env": False, "verify": False}
"""No proxies, and no certificates, which are unused and slow to load."""


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
async def bot(telegram: FakeTelegram) -> AsyncIterator[Bot]:
    async with Bot(
        telegram.token,
        base_url=f"{telegram.base_url}/bot",
        base_file_url=f"{telegram.base_url}/file/bot",
        request=HTTPXRequest(httpx_kwargs=_PLAIN),
        get_updates_request=HTTPXRequest(httpx_kwargs=_PLAIN),
    ) as client:
        yield client


async def read_newest(bot: Bot) -> Message:
    """Return the newest message."""
    [update] = await bot.get_updates(offset=-1)
    assert update.message is not None
    return update.message


async def test_what_people_send_is_read(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.say("/help 😀 https://example.org")
    message = await read_newest(bot)
    found = {str(entity.type): message.parse_entity(entity) for entity in message.entities}
    assert found == {"bot_command": "/help", "url": "https://example.org"}
    telegram.photo(caption="look")
    assert (await read_newest(bot)).caption == "look"
    for send in (telegram.document, telegram.voice, telegram.video, telegram.sticker):
        send()
        assert (await read_newest(bot)).effective_attachment is not None


async def test_what_the_bot_sends_stands_in_the_chat(telegram: FakeTelegram, bot: Bot) -> None:
    question = telegram.say("Well?")
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y1")]])
    sent = await bot.send_message(
        7,
        "Bold words",
        entities=[MessageEntity("bold", 0, 4)],
        reply_to_message_id=question,
        reply_markup=keyboard,
    )
    seen = await telegram.answer_to(question)
    assert (seen.text, seen.reply_to, seen.labels) == ("Bold words", question, ("Yes",))
    query = telegram.press(sent.message_id, "Yes")
    [update] = await bot.get_updates(offset=-1)
    assert update.callback_query is not None
    assert (update.callback_query.id, update.callback_query.data) == (query, "y1")
    await bot.edit_message_text("Plain words", 7, sent.message_id)
    document = (await bot.send_document(7, b"text", filename="a b.txt")).document
    assert document is not None
    assert await (await bot.get_file(document.file_id)).download_as_bytearray() == b"text"
    await bot.delete_message(7, sent.message_id)
    with pytest.raises(BadRequest, match=r"(?i)not found"):
        await bot.delete_message(7, sent.message_id)
    assert telegram.violations == []
