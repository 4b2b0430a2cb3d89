"""Buttons under messages: what the platform gets, and who may press what."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.bus.events import Button, OutboundMessage
from nanobot.bus.journal import KEEP_DAYS, Outgoing
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.testing import FakeClock
from tests.bus.support import opened

QUESTION = OutboundMessage(
    "fake", "1", "Undo?", buttons=(Button("Yes", "/undo"), Button("Mine", "mine", only="anna"))
)


async def sent(journal: SqliteJournal, message: OutboundMessage = QUESTION) -> tuple[Button, ...]:
    """The buttons as the platform gets them."""
    (part,) = await journal.send("turn", Outgoing("reply", (message,)))
    return part.part.buttons


async def test_an_id_says_nothing_and_gives_the_value_back(journal: SqliteJournal) -> None:
    yes, mine = await sent(journal)
    assert yes.id != mine.id
    assert "undo" not in yes.id
    assert len(yes.id) <= 64
    assert await journal.pressed(yes.id, "fake", "1", ("anyone",)) == "/undo"


@pytest.mark.parametrize(("chat", "sender"), [("2", "anna"), ("1", "ben")])
async def test_a_button_is_for_its_chat_and_its_person_only(
    journal: SqliteJournal, chat: str, sender: str
) -> None:
    _, mine = await sent(journal)
    assert await journal.pressed(mine.id, "fake", "1", ("other", "anna")) == "mine"
    assert await journal.pressed(mine.id, "fake", chat, (sender,)) is None


async def test_an_id_that_somebody_made_up_presses_nothing(journal: SqliteJournal) -> None:
    await sent(journal)
    assert await journal.pressed("/undo", "fake", "1", ("anna",)) is None


async def test_the_ids_are_the_same_when_a_part_is_sent_again_after_a_crash(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        before = await sent(journal)
    async with opened(path, clock) as journal:
        (part,) = (await journal.leftovers()).parts
        assert part.part.buttons == before
        assert await journal.pressed(before[0].id, "fake", "1", ()) == "/undo"


async def test_a_message_stored_twice_keeps_its_first_buttons(journal: SqliteJournal) -> None:
    before = await sent(journal)
    assert await journal.send("turn", Outgoing("reply", (QUESTION,))) == ()
    assert await journal.pressed(before[0].id, "fake", "1", ()) == "/undo"


async def test_old_buttons_press_nothing_any_more(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        yes, _ = await sent(journal, replace(QUESTION, chat_id="1"))
    clock.jump(timedelta(days=KEEP_DAYS + 1).total_seconds())
    async with opened(path, clock) as journal:
        assert await journal.pressed(yes.id, "fake", "1", ()) is None
