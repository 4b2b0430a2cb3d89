"""People and their chats: what they do reaches the bot, and what became of them it finds out."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from telegram import (
    Bot,
    MessageOriginHiddenUser,
)
from telegram.error import BadRequest, ChatMigrated, Forbidden

from nanobot.testing import FakeClock
from tests.doubles.telegram.media import PNG
from tests.doubles.telegram.server import FakeTelegram
from tests.testing.telegram_support import Api, heard, library, newest

GROUP = -100
SUPERGROUP = -1001234567890


async def test_people_are_read_by_the_library_with_all_that_they_send(
    telegram: FakeTelegram, bot: Bot
) -> None:
    telegram.say("@nanobot_test_bot /help 😀 https://example.org")
    message = await heard(bot)
    found = {str(entity.type): message.parse_entity(entity) for entity in message.entities}
    assert found == {
        "mention": "@nanobot_test_bot",
        "bot_command": "/help",
        "url": "https://example.org",
    }
    telegram.photo(caption="look")
    message = await heard(bot)
    assert [size.width for size in message.photo] == sorted(size.width for size in message.photo)
    assert message.caption == "look"
    telegram.location(1.5, 2.5)
    assert (await heard(bot)).effective_attachment is not None
    telegram.forward("words", origin="Somebody")
    origin = (await heard(bot)).forward_origin
    assert isinstance(origin, MessageOriginHiddenUser)
    assert origin.sender_user_name == "Somebody"
    for send in (
        telegram.document,
        telegram.voice,
        telegram.audio,
        telegram.video,
        telegram.video_note,
        telegram.animation,
        telegram.sticker,
        telegram.contact,
    ):
        send()
        assert (await heard(bot)).effective_attachment is not None


async def test_an_album_is_one_update_for_each_item(telegram: FakeTelegram, bot: Bot) -> None:
    numbers = telegram.album([("photo", PNG), ("video", b"film")], caption="two")
    updates = [one.message for one in await bot.get_updates()]
    assert [one.message_id for one in updates if one] == numbers
    assert len({one.media_group_id for one in updates if one}) == 1
    assert [one.caption for one in updates if one] == ["two", None]


async def test_an_edit_of_a_person_carries_the_new_text(telegram: FakeTelegram, bot: Bot) -> None:
    number = telegram.say("/first")
    telegram.edit(number, "second")
    edited = (await newest(bot)).edited_message
    assert edited is not None
    assert (edited.message_id, edited.text, edited.entities) == (number, "second", ())
    assert edited.edit_date is not None


async def test_a_reply_of_a_person_shows_what_it_answers(telegram: FakeTelegram, bot: Bot) -> None:
    sent = await bot.send_message(7, "Tea or coffee?")
    telegram.reply(sent.message_id, "tea")
    quoted = (await heard(bot)).reply_to_message
    assert quoted is not None
    assert quoted.from_user is not None
    assert (quoted.text, quoted.from_user.id) == ("Tea or coffee?", telegram.bot_id)


async def test_a_missing_reply_target_is_an_error_or_left_out_as_asked(
    telegram: FakeTelegram, bot: Bot
) -> None:
    question = telegram.say("?")
    telegram.delete(question)
    with pytest.raises(BadRequest, match=r"(?i)message to be replied not found"):
        await bot.send_message(7, "x", reply_to_message_id=question)
    await bot.send_message(7, "x", reply_to_message_id=question, allow_sending_without_reply=True)
    assert [sent.reply_to for sent in telegram.messages()] == [None]


async def test_a_forum_has_topics_until_they_are_deleted(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.group(SUPERGROUP, "Forum", forum=True)
    thread = telegram.topic(SUPERGROUP)
    telegram.say("here", chat=SUPERGROUP, thread=thread)
    message = await heard(bot)
    assert (message.message_thread_id, message.is_topic_message) == (thread, True)
    assert message.reply_to_message is not None
    assert message.reply_to_message.forum_topic_created is not None
    await bot.send_message(SUPERGROUP, "there", message_thread_id=thread)
    assert [sent.thread for sent in telegram.messages(SUPERGROUP)] == [thread]
    telegram.delete_topic(SUPERGROUP, thread)
    with pytest.raises(BadRequest, match=r"(?i)message thread not found"):
        await bot.send_message(SUPERGROUP, "there", message_thread_id=thread)


async def test_each_supergroup_counts_its_messages_on_its_own(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.say("private")
    telegram.group(SUPERGROUP)
    assert telegram.say("public", chat=SUPERGROUP) == 1
    assert await api.say("also public", chat=SUPERGROUP) == 2


async def test_a_blocked_bot_is_told_and_may_not_write(telegram: FakeTelegram, bot: Bot) -> None:
    telegram.block(7)
    change = (await newest(bot)).my_chat_member
    assert change is not None
    assert change.new_chat_member.status == "kicked"
    with pytest.raises(Forbidden, match=r"(?i)blocked by the user"):
        await bot.send_message(7, "x")
    telegram.unblock(7)
    await bot.send_message(7, "y")
    assert telegram.texts() == ["y"]
    telegram.group(GROUP)
    await bot.leave_chat(GROUP)
    with pytest.raises(Forbidden, match=r"(?i)not a member"):
        await bot.get_chat(GROUP)


async def test_a_group_that_became_a_supergroup_says_where_it_went(
    telegram: FakeTelegram, bot: Bot
) -> None:
    telegram.group(GROUP, "Friends")
    assert (await bot.get_chat(GROUP)).title == "Friends"
    telegram.migrate(GROUP, SUPERGROUP)
    moved = [one.message for one in await bot.get_updates()]
    assert [one.migrate_to_chat_id for one in moved if one] == [SUPERGROUP, None]
    with pytest.raises(ChatMigrated) as caught:
        await bot.send_message(GROUP, "x")
    assert caught.value.new_chat_id == SUPERGROUP
    await bot.send_message(SUPERGROUP, "x")
    assert telegram.texts(SUPERGROUP) == ["x"]


async def test_nobody_is_written_to_who_never_wrote(telegram: FakeTelegram, bot: Bot) -> None:
    with pytest.raises(BadRequest, match=r"(?i)chat not found"):
        await bot.send_message(8, "x")
    telegram.person(8, first_name="Kim")
    await bot.send_message(8, "x")
    assert telegram.texts(8) == ["x"]
    assert telegram.texts(None) == ["x"]


async def test_messages_are_dated_by_the_clock() -> None:
    clock = FakeClock(datetime(2026, 5, 1, 12, tzinfo=UTC))
    async with FakeTelegram(clock=clock) as telegram, library(telegram) as bot:
        telegram.say("now")
        assert (await heard(bot)).date == clock.now()
        await clock.advance(60)
        assert (await bot.send_message(7, "later")).date == clock.now()


async def test_waiting_ends_when_it_is_so(telegram: FakeTelegram, api: Api) -> None:
    async with asyncio.TaskGroup() as group:
        texts = group.create_task(telegram.received(2))
        await api.say("one")
        await api.say("two")
    assert texts.result() == ["one", "two"]


async def test_waiting_in_vain_says_what_happened(telegram: FakeTelegram, api: Api) -> None:
    await api.say("only this")
    with pytest.raises(TimeoutError, match="only this"):
        await telegram.wait_for(lambda: telegram.pending, patience=0)
