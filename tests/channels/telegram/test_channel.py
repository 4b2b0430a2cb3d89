"""The adapter as a whole, between Telegram and the core's side of the port."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import Button, Media, OutboundPart
from nanobot.channel import Channel, MenuEntry
from nanobot.errors import SendRefused
from nanobot_telegram import TelegramChannel
from nanobot_telegram.channel import menu_commands
from tests.channels.telegram.support import RecordingHost, WatchedClock, options_for, running
from tests.doubles.fence import closed_fence
from tests.doubles.telegram import FakeTelegram

ANN = 7


def part(content: str, chat_id: str = "7", *, buttons: tuple[Button, ...] = ()) -> OutboundPart:
    return OutboundPart("key", "telegram", chat_id, content, buttons=buttons)


def test_it_is_a_channel(telegram: FakeTelegram) -> None:
    channel: Channel = TelegramChannel(options_for(telegram))
    assert channel.name == "telegram"
    assert channel.limits.text == 4096
    assert channel.limits.fits is not None
    assert channel.limits.fits("hello", 5)
    assert not channel.limits.fits("hello", 4)


async def test_what_a_person_says_comes_in_and_a_part_goes_out(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    question = telegram.say("hello", user=ANN)
    async with running(telegram, host) as channel:
        assert await host.texts(1) == ["hello"]
        receipt = await channel.send(part("hello *yourself*"))
    (message,) = host.stored
    assert host.account.startswith("@")
    assert (message.channel, message.chat_id, message.sender_id) == ("telegram", "7", "7")
    assert message.event_id == str(question)
    (sent,) = telegram.messages(ANN)
    assert sent.text == "hello yourself"
    assert receipt.platform_id == str(sent.message_id)
    assert not telegram.violations


async def test_a_part_that_is_sent_before_the_start_waits_for_it(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.say("hello", user=ANN)
    channel = TelegramChannel(options_for(telegram))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        sending = group.create_task(channel.send(part("early")))
        life = group.create_task(channel.run(host))
        await sending
        life.cancel()
    assert telegram.texts(ANN) == ["early"]


async def test_strangers_are_not_stored_and_the_core_is_asked_once_for_each(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.strangers = {"666"}
    telegram.say("let me in", user=666)
    telegram.photo(user=666)
    telegram.say("hello", user=ANN)
    async with running(telegram, host):
        assert await host.texts(1) == ["hello"]
    assert [sender.id for sender, _, _ in host.asked] == ["666", "666", "7"]
    assert telegram.calls_of("getFile", "sendMessage") == []


async def test_a_pressed_button_is_its_value_stops_spinning_and_goes_with_the_others(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.say("hello", user=ANN)
    host.buttons = {"b1": "/approve 7"}
    async with running(telegram, host) as channel:
        await host.texts(1)
        labels = (Button("Yes", "/approve 7", id="b1"), Button("No", "/deny 7", id="b3"))
        sent = await channel.send(part("Shall I?", buttons=labels))
        old = await channel.send(part("And this?", buttons=(Button("Old", "", id="b2"),)))
        query = telegram.press(int(sent.platform_id), "Yes", user=ANN)
        assert await host.texts(2) == ["hello", "/approve 7"]
        assert host.stored[1].event_id == f"callback:{query}"
        await telegram.wait_for(lambda: not telegram.messages(ANN)[0].buttons)
        telegram.press(int(old.platform_id), "Old", user=ANN)
        await telegram.wait_for(lambda: len(telegram.toasts) == 2)
    assert telegram.messages(ANN)[1].labels == ("Old",)
    assert [toast.text for toast in telegram.toasts] == ["", "This button is no longer valid."]
    assert len(host.stored) == 2


async def test_a_group_that_moves_stays_the_same_conversation(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.group(-5)
    telegram.say("before", user=ANN, chat=-5)
    telegram.migrate(-5, -1005)
    telegram.say("after", user=ANN, chat=-1005)
    async with running(telegram, host) as channel:
        assert await host.texts(2) == ["before", "after"]
        await channel.send(part("here", "-5"))
    assert {message.chat_id for message in host.stored} == {"-5"}
    assert telegram.texts(-1005) == ["here"]


async def test_in_a_group_that_moved_nothing_is_mixed_up_with_messages_of_before(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.buttons = {"b1": "yes"}
    telegram.group(-5)
    telegram.say("before", user=ANN, chat=-5)
    telegram.migrate(-5, -1005)
    telegram.say("after", user=ANN, chat=-1005)
    async with running(telegram, host) as channel:
        await host.texts(2)
        for said in host.stored:
            await channel.send(replace(part("to that", "-5"), reply_to=said.message_id))
        told = await channel.send(
            replace(part("Shall I?", "-5"), buttons=(Button("Yes", "yes", "", "b1"),))
        )
        telegram.press(int(told.platform_id), "Yes", chat=-1005, user=ANN)
        await telegram.wait_for(lambda: telegram.calls_of("editMessageReplyMarkup"))
        assert await host.texts(3) == ["before", "after", "yes"]
        await channel.send(replace(part("I do", "-5"), reply_to=host.stored[-1].message_id))
    quoted = [sent.reply_to for sent in telegram.messages(-1005)]
    assert quoted[0] is None
    assert quoted[1:] == [
        int(host.stored[1].message_id.partition("/")[2]),
        None,
        int(told.platform_id),
    ]
    assert telegram.messages(-1005)[2].labels == ()


async def test_a_group_that_strangers_move_leaves_nothing_on_disk(
    telegram: FakeTelegram, host: RecordingHost, tmp_path: Path
) -> None:
    host.strangers = {"666"}
    telegram.group(-5)
    telegram.say("before", user=666, chat=-5)
    telegram.migrate(-5, -1005)
    telegram.say("after", user=666, chat=-1005)
    telegram.say("hello", user=ANN)
    async with running(telegram, host):
        assert await host.texts(1) == ["hello"]
    assert [chat.id for _, chat, _ in host.asked] == ["-5", "-5", "7"]
    assert not (tmp_path / "chats.json").exists()


async def test_nothing_is_sent_to_who_blocked_the_bot_until_they_write_again(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.say("hello", user=ANN)
    telegram.block(ANN)
    async with running(telegram, host) as channel:
        await host.texts(1)
        await telegram.wait_for(lambda: telegram.confirmed)
        with pytest.raises(SendRefused):
            await channel.send(part("anyone?"))
        assert telegram.calls_of("sendMessage") == []
        telegram.unblock(ANN)
        telegram.say("back", user=ANN)
        await host.texts(2)
        await channel.send(part("welcome"))
    assert telegram.texts(ANN) == ["welcome"]


async def test_a_file_is_fetched_when_the_core_wants_it(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.document(b"some notes", user=ANN)
    async with running(telegram, host) as channel:
        await host.texts(1)
        assert telegram.calls_of("getFile") == []
        (media,) = host.stored[0].media
        assert await channel.fetch(media, 100) == b"some notes"
        with pytest.raises(SendRefused):
            await channel.fetch(Media(media.ref, size=101), 100)
    assert len(telegram.calls_of("getFile")) == 1


MENU = [
    MenuEntry("help", "What there is"),
    MenuEntry("dream-log", "What was learned", owner_only=True),
]


async def test_the_menu_shows_each_what_they_may_use_and_is_told_once(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.entries, host.owner_ids = MENU, ["7"]
    telegram.person(ANN)
    async with running(telegram, host):
        await telegram.wait_for(lambda: len(telegram.commands) == 2)
    assert telegram.commands == {
        "default": {"help": "What there is"},
        "chat:7": {"help": "What there is", "dream_log": "What was learned"},
    }
    host.owner_ids = ["7", "8"]
    telegram.person(8)
    async with running(telegram, host):
        await telegram.wait_for(lambda: len(telegram.commands) == 3)
    assert len(telegram.calls_of("setMyCommands")) == 3


async def test_what_is_known_of_menus_and_chats_is_kept_beside_the_event_loop(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.entries, host.owner_ids = MENU, ["7"]
    telegram.person(ANN)
    telegram.say("hello", user=ANN)
    with closed_fence() as fence:
        async with running(telegram, host):
            await fence.until_waited()
            fence.opened.set()
            await host.texts(1)
            await telegram.wait_for(lambda: len(telegram.commands) == 2)


async def test_who_is_owner_no_longer_loses_the_menu_of_owners(
    telegram: FakeTelegram, host: RecordingHost, tmp_path: Path
) -> None:
    host.entries, host.owner_ids = MENU, ["7"]
    telegram.person(ANN)
    async with running(telegram, host):
        await telegram.wait_for(lambda: len(telegram.commands) == 2)
    assert (tmp_path / "menu.json").stat().st_mode & 0o777 == 0o600
    host.owner_ids = []
    async with running(telegram, host):
        await telegram.wait_for(lambda: "chat:7" not in telegram.commands)
    assert telegram.commands["default"] == {"help": "What there is"}


def test_commands_get_names_that_telegram_takes() -> None:
    entries = [*MENU, MenuEntry("Überflüssig", "no"), MenuEntry("x" * 33, "no")]
    assert [one.command for one in menu_commands(entries, owner=True)] == ["help", "dream_log"]
    assert [one.command for one in menu_commands(entries, owner=False)] == ["help"]


def contents(folder: Path) -> dict[str, str]:
    """Return all files in a folder."""
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


async def test_the_token_is_in_no_file_and_no_log_line(
    telegram: FakeTelegram,
    host: RecordingHost,
    clock: WatchedClock,
    tmp_path: Path,
    log: list[str],
) -> None:
    host.entries = MENU
    secret = telegram.token.partition(":")[2]
    telegram.push_raw("malformed")
    telegram.say("hello", user=ANN)
    for fault in (telegram.cut, telegram.garble):
        fault("getUpdates")
    async with running(telegram, host) as channel:
        for pause in (1.0, 2.0):
            await clock.until_asked(pause)
            await clock.advance(pause)
        await host.texts(1)
        telegram.cut("sendMessage")
        with pytest.raises(Exception, match="Telegram"):
            await channel.send(part("hello"))
    files = contents(tmp_path)
    assert {"menu.json", "quarantine.jsonl"} <= files.keys()
    assert all(secret not in content for content in files.values())
    assert log
    assert secret not in "".join(log) + json.dumps(host.reports)
