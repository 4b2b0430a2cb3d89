"""Failures of an update are handled differently from failures of the core."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot.bus.events import InboundMessage
from nanobot.channel import Admission, Chat, Sender
from nanobot_telegram.channel import TelegramChannel
from tests.channels.telegram.support import (
    PATIENCE,
    RecordingHost,
    WatchedClock,
    options_for,
    running,
)
from tests.doubles.telegram import FakeTelegram


class BrokenHost(RecordingHost):
    """A core with a fault."""

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        if sender.id == "8":
            raise LookupError("a fault of the core")
        return super().admit(sender, chat, addressed=addressed)

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        raise LookupError("a fault of the core")


def press(telegram: FakeTelegram) -> None:
    person = {"id": 7, "is_bot": False, "first_name": "Ann"}
    message = {"message_id": 1, "date": 0, "chat": {"id": 7, "type": "private"}}
    query = {"id": "1", "from": person, "message": message, "chat_instance": "1", "data": "b1"}
    telegram.push({"callback_query": query})


@pytest.mark.parametrize("asked", ["admit", "resolve_button"])
async def test_a_fault_of_the_core_ends_the_run_and_the_batch_comes_again(
    asked: str, telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    telegram.say("hello")
    if asked == "admit":
        telegram.say("and me", user=8)
    else:
        press(telegram)
    broken, mended = BrokenHost(tmp_path, clock), RecordingHost(tmp_path, clock)
    mended.buttons = {"b1": "yes"}
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LookupError):
            await TelegramChannel(options_for(telegram)).run(broken)
    assert telegram.confirmed is None
    assert broken.published == 0
    async with running(telegram, mended):
        texts = await mended.texts(2)
    assert texts == ["hello", "and me" if asked == "admit" else "yes"]
    assert not (tmp_path / "quarantine.jsonl").exists()


class WatchfulHost(RecordingHost):
    """Checks that nothing is published before the moves of groups are on disk."""

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        if any(message.is_group for message in messages):
            assert (self.state_folder / "chats.json").exists()
        return await super().publish(messages, cursor)


async def test_a_move_is_on_disk_before_telegram_forgets_it(
    telegram: FakeTelegram, clock: WatchedClock, tmp_path: Path
) -> None:
    host = WatchfulHost(tmp_path, clock)
    telegram.group(-5)
    telegram.migrate(-5, -1005)
    telegram.say("after", chat=-1005)
    async with running(telegram, host):
        assert await host.texts(1) == ["after"]
    assert [message.chat_id for message in host.stored] == ["-5"]
