"""What is said outside of any turn reaches the chat that it is for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from nanobot.agent.notifier import Courier
from nanobot.bus.events import Address, Progress
from nanobot.bus.journal import OutboxPart
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.session.catalogue import SessionInfo
from nanobot.testing import FakeClock

CLOCK = FakeClock()


class Nowhere:
    """Shows nothing."""

    def show(self, event: Progress) -> None:
        pass


@asynccontextmanager
async def courier(folder: Path, *keys: str) -> AsyncIterator[tuple[Courier, list[OutboxPart]]]:
    """One whose owner talked in these conversations, in the last one first, and what it sent."""
    journal = SqliteJournal(folder / "journal.db", CLOCK)
    await journal.open()
    sent: list[OutboxPart] = []
    bus, names = MessageBus(journal), count()
    bus.connect(lambda _: None, sent.extend)
    now = CLOCK.now()
    sessions = [SessionInfo(key, now, now, 0, "", folder / "s.jsonl") for key in keys]
    try:
        yield (
            Courier(
                bus,
                Nowhere(),
                lambda message: (message,),
                lambda: sessions,
                lambda _: "owner",
                ("telegram",),
                lambda: str(next(names)),
                terminals=("cli",),
            ),
            sent,
        )
    finally:
        await journal.close()


@pytest.mark.parametrize("chat", ["direct", "taxes:spain", "taxes:2026"])
async def test_a_warning_goes_to_a_terminal_where_the_owner_was_last(
    tmp_path: Path, chat: str
) -> None:
    async with courier(tmp_path, "cron:ab12", f"cli:{chat}", "telegram:7") as (one, sent):
        await one.warn("Nearly spent.")
        assert [
            (part.channel, part.chat_id, part.content) for part in (one.part for one in sent)
        ] == [("cli", chat, "Nearly spent.")]


async def test_news_and_questions_go_where_the_owner_gets_them_without_looking(
    tmp_path: Path,
) -> None:
    async with courier(tmp_path, "cli:direct", "telegram:7:3") as (one, sent):
        assert await one.tell("owner", "Learned.")
        assert await one.ask(None, "May I?", ()) == Address("telegram", "7", "3")
        assert [
            (part.channel, part.chat_id, part.thread_id) for part in (one.part for one in sent)
        ] == [("telegram", "7", "3")] * 2


async def test_that_a_channel_is_closed_is_said_on_another_one_and_once(tmp_path: Path) -> None:
    async with courier(tmp_path, "telegram:7", "cli:direct") as (one, sent):
        await one.warn_elsewhere("telegram", "It is off.", "off-telegram-1")
        await one.warn_elsewhere("telegram", "It is off.", "off-telegram-1")
        assert [(part.channel, part.content) for part in (one.part for one in sent)] == [
            ("cli", "It is off.")
        ]
    async with courier(tmp_path, "telegram:7") as (one, sent):
        await one.warn_elsewhere("telegram", "It is off.", "off-telegram-2")
        assert not sent
