"""Messages of the bot stand in a chat as they were sent, with a library for the Bot API."""

from __future__ import annotations

import pytest
from telegram import (
    Bot,
    BotCommand,
    BotCommandScopeChat,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    InputMediaPhoto,
    LinkPreviewOptions,
    MessageEntity,
)
from telegram.error import BadRequest

from tests.doubles.telegram.media import MEGABYTE, PNG, check_upload
from tests.doubles.telegram.server import FakeTelegram
from tests.doubles.telegram.values import Refusal, Upload
from tests.testing.telegram_support import Api, newest

GROUP = -100
SUPERGROUP = -1001234567890


async def test_the_library_knows_its_bot(telegram: FakeTelegram, bot: Bot) -> None:
    assert (bot.id, bot.username) == (telegram.bot_id, telegram.username)


async def test_a_message_stands_in_its_chat_as_it_was_sent(
    telegram: FakeTelegram, bot: Bot
) -> None:
    question = telegram.say("Well?")
    sent = await bot.send_message(
        7,
        "Bold words",
        entities=[MessageEntity("bold", 0, 4)],
        reply_to_message_id=question,
        disable_notification=True,
        link_preview_options=LinkPreviewOptions(is_disabled=True),
        reply_markup=InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y1")]]),
    )
    seen = await telegram.answer_to(question)
    assert (seen.message_id, seen.text, seen.reply_to) == (sent.message_id, "Bold words", question)
    assert (seen.silent, seen.previews, seen.labels) == (True, False, ("Yes",))
    assert seen.entities == ({"type": "bold", "offset": 0, "length": 4},)
    assert sent.reply_to_message is not None
    assert sent.reply_to_message.text == "Well?"
    assert telegram.violations == []


async def test_pressing_a_button_is_a_query_that_is_answered_once(
    telegram: FakeTelegram, bot: Bot
) -> None:
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Go", callback_data="opaque")]])
    sent = await bot.send_message(7, "Now?", reply_markup=keyboard)
    query = telegram.press(sent.message_id, "Go")
    pressed = (await newest(bot)).callback_query
    assert pressed is not None
    assert (pressed.id, pressed.data, pressed.from_user.id) == (query, "opaque", 7)
    await bot.answer_callback_query(query, "Done")
    assert [(toast.query_id, toast.text) for toast in telegram.toasts] == [(query, "Done")]
    with pytest.raises(BadRequest, match=r"(?i)query ID is invalid"):
        await bot.answer_callback_query(query)
    with pytest.raises(LookupError, match="no button 'Stop'"):
        telegram.press(sent.message_id, "Stop")


async def test_edits_and_deletions_of_the_bot_change_what_stands(
    telegram: FakeTelegram, bot: Bot
) -> None:
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Go", callback_data="1")]])
    one = await bot.send_message(7, "one", reply_markup=keyboard)
    two = await bot.send_message(7, "two")
    await bot.edit_message_text("uno", 7, one.message_id, reply_markup=keyboard)
    with pytest.raises(BadRequest, match=r"(?i)message is not modified"):
        await bot.edit_message_text("uno", 7, one.message_id, reply_markup=keyboard)
    await bot.edit_message_reply_markup(7, one.message_id)
    await bot.delete_message(7, two.message_id)
    [left] = telegram.messages()
    assert (left.text, left.labels, left.edited) == ("uno", (), True)
    for gone in (bot.edit_message_text("x", 7, two.message_id), bot.delete_message(7, 4711)):
        with pytest.raises(BadRequest, match=r"(?i)not found"):
            await gone


async def test_files_go_up_and_come_down_unchanged(telegram: FakeTelegram, bot: Bot) -> None:
    sent = await bot.send_document(7, b"Some text", filename="a b.txt", caption="Here")
    [seen] = telegram.messages()
    assert seen.file is not None
    assert (seen.kind, seen.text, seen.file.name) == ("document", "Here", "a b.txt")
    assert seen.file.content == b"Some text"
    assert sent.document is not None
    file = await bot.get_file(sent.document.file_id)
    assert await file.download_as_bytearray() == b"Some text"
    await bot.send_document(7, sent.document.file_id)
    again = telegram.messages()[-1]
    assert again.file == seen.file


async def test_each_kind_of_file_has_its_method(telegram: FakeTelegram, bot: Bot) -> None:
    await bot.send_photo(7, PNG)
    await bot.send_voice(7, b"OggS")
    await bot.send_audio(7, b"ID3", title="Song")
    await bot.send_video(7, b"film", width=10, height=10)
    await bot.send_animation(7, b"GIF89a")
    kinds = [sent.kind for sent in telegram.messages()]
    assert kinds == ["photo", "voice", "audio", "video", "animation"]
    assert telegram.violations == []


async def test_an_album_of_the_bot_appears_whole_or_not_at_all(
    telegram: FakeTelegram, bot: Bot
) -> None:
    await bot.send_media_group(7, [InputMediaPhoto(PNG, caption="one"), InputMediaPhoto(PNG)])
    first, second = telegram.messages()
    assert (first.text, second.text) == ("one", "")
    assert first.group_id == second.group_id != ""
    with pytest.raises(BadRequest, match=r"(?i)non-empty"):
        await bot.send_media_group(7, [InputMediaDocument(b"x"), InputMediaDocument(b"")])
    assert len(telegram.messages()) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "non-empty"),
        (b"no picture", "IMAGE_PROCESS_FAILED"),
        (PNG + bytes(10 * MEGABYTE), "too big for a photo"),
        (PNG[:16] + (9000).to_bytes(4, "big") * 2, "PHOTO_INVALID_DIMENSIONS"),
        (PNG[:16] + (21).to_bytes(4, "big") + (1).to_bytes(4, "big"), "PHOTO_INVALID_DIMENSIONS"),
    ],
    ids=["empty", "text", "large", "wide and high", "narrow"],
)
async def test_a_picture_that_cannot_be_a_photo_is_refused(
    telegram: FakeTelegram, bot: Bot, content: bytes, words: str
) -> None:
    with pytest.raises(BadRequest, match=f"(?i){words}"):
        await bot.send_photo(7, content)
    assert telegram.messages() == []


def test_a_file_of_more_than_50_megabytes_is_not_taken() -> None:
    check_upload("document", Upload("large.bin", "", bytes(50 * MEGABYTE)))
    with pytest.raises(Refusal) as caught:
        check_upload("document", Upload("large.bin", "", bytes(50 * MEGABYTE + 1)))
    assert (caught.value.code, caught.value.description) == (413, "Request Entity Too Large")


async def test_a_file_of_more_than_20_megabytes_is_not_given(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.document(b"small", size=21 * MEGABYTE)
    [update] = (await api("getUpdates")).result
    file_id = update["message"]["document"]["file_id"]
    assert (await api("getFile", file_id=file_id)).error == (400, "Bad Request: file is too big")


async def test_a_file_may_be_larger_than_the_server_says(telegram: FakeTelegram, api: Api) -> None:
    telegram.document(b"x" * 1000, size=10)
    document = (await api("getUpdates")).result[0]["message"]["document"]
    path = (await api("getFile", file_id=document["file_id"])).result["file_path"]
    async with api.client.get(f"{telegram.base_url}/file/bot{telegram.token}/{path}") as answer:
        assert (document["file_size"], len(await answer.read())) == (10, 1000)


async def test_drafts_and_actions_are_kept_in_order(telegram: FakeTelegram, bot: Bot) -> None:
    await bot.send_chat_action(7, "typing")
    await bot.send_message_draft(7, 5, "Thin")
    await bot.send_message_draft(7, 5, "Thinking")
    assert telegram.actions() == ["typing"]
    assert [(draft.draft_id, draft.text) for draft in telegram.drafts()] == [
        (5, "Thin"),
        (5, "Thinking"),
    ]
    telegram.group(GROUP)
    with pytest.raises(BadRequest, match=r"(?i)PEER_INVALID"):
        await bot.send_message_draft(GROUP, 5, "x")


async def test_the_menu_is_kept_for_each_scope(telegram: FakeTelegram, bot: Bot) -> None:
    await bot.set_my_commands([BotCommand("new", "Begin again")])
    await bot.set_my_commands([BotCommand("stop", "Stop")], scope=BotCommandScopeChat(7))
    assert telegram.commands == {"default": {"new": "Begin again"}, "chat:7": {"stop": "Stop"}}
    assert [one.command for one in await bot.get_my_commands()] == ["new"]
    await bot.delete_my_commands()
    assert set(telegram.commands) == {"chat:7"}
