"""Messages outside of any turn reach the right chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.agent.media import MediaStore
from nanobot.agent.notifier import KnownChats, MessageSplitter, Notifier
from nanobot.bus.events import Address, OutboundMessage
from nanobot.bus.journal import OutboxPart
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel import Limits
from nanobot.memory.scopes import Scopes
from nanobot.security.access import Access
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import TurnContext
from tests.doubles.fence import closed_fence
from tests.session.support import NOON, talk

CLOCK = FakeClock()
Sent = Callable[[], list[OutboxPart]]


@asynccontextmanager
async def notifier(folder: Path, *keys: str) -> AsyncIterator[tuple[Notifier, Sent]]:
    """Yield a notifier whose owner talked in these conversations, in the last one first, and its
    sent messages."""
    journal = SqliteJournal(folder / "journal.db", CLOCK)
    await journal.open()
    bus, sessions = MessageBus(journal), SessionManager(folder / "sessions", CLOCK)
    for number, key in enumerate(reversed(keys)):
        await talk(sessions, key, at=NOON + timedelta(minutes=number))
    known = KnownChats(
        sessions,
        Scopes(lambda _, __: True),
        Access(journal.state, {}, {}, CLOCK),
        ("telegram",),
        ("cli",),
    )
    splitter = MessageSplitter({}, MediaStore(folder / "media"))
    try:
        yield Notifier(bus, splitter, known, CLOCK, Background()), bus.unread_parts
    finally:
        await sessions.close()
        await journal.close()


@pytest.mark.parametrize("chat", ["direct", "taxes:spain", "taxes:2026"])
async def test_a_warning_goes_to_a_terminal_where_the_owner_was_last(
    tmp_path: Path, chat: str
) -> None:
    async with notifier(tmp_path, "cron:ab12", f"cli:{chat}", "telegram:7") as (one, sent):
        await one.warn("Nearly spent.")
        assert [
            (part.channel, part.chat_id, part.content) for part in (one.part for one in sent())
        ] == [("cli", chat, "Nearly spent.")]


async def test_news_and_questions_go_where_the_owner_gets_them_without_looking(
    tmp_path: Path,
) -> None:
    async with notifier(tmp_path, "cli:direct", "telegram:7:3") as (one, sent):
        assert await one.notify("owner", "Learned.")
        group = TurnContext("telegram", "-1", "telegram:-1", "t1", scope="groups/telegram_-1")
        assert await one.ask(group, "CODE", "May I?", ()) == Address("telegram", "7", "3")
        assert [
            (part.channel, part.chat_id, part.thread_id) for part in (one.part for one in sent())
        ] == [("telegram", "7", "3")] * 2


async def test_that_a_channel_is_closed_is_said_on_another_one_and_once(tmp_path: Path) -> None:
    async with notifier(tmp_path, "telegram:7", "cli:direct") as (one, sent):
        await one.warn("It is off.", "off-telegram-1", "telegram")
        await one.warn("It is off.", "off-telegram-1", "telegram")
        assert [(part.channel, part.content) for part in (one.part for one in sent())] == [
            ("cli", "It is off.")
        ]
    alone = tmp_path / "alone"
    alone.mkdir()
    async with notifier(alone, "telegram:7") as (one, sent):
        await one.warn("It is off.", "off-telegram-2", "telegram")
        assert not sent()


async def test_a_text_that_becomes_a_file_waits_beside_the_event_loop(tmp_path: Path) -> None:
    channel = FakeChannel(limits=Limits(text=100, parts=2))
    split = MessageSplitter({"fake": channel}, MediaStore(tmp_path))
    long = OutboundMessage("fake", "7", "word " * 100)
    with closed_fence() as fence:
        splitting = asyncio.create_task(split(long))
        await fence.until_waited()
        fence.opened.set()
        assert [media.name for part in await splitting for media in part.media] == ["answer.md"]
