"""The message bus: durable before it returns, with back-pressure from its agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.bus.journal import InboxEntry, OutboxPart
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import StorageError
from tests.bus.support import end_turn, make_message, no_file_may_grow_beyond, reply, rows


class BusEnds:
    """Both ends of a bus: its inbox and its outbox."""

    def __init__(self, journal: SqliteJournal, capacity: int = 10) -> None:
        self._entries: list[InboxEntry] = []
        self._parts: list[OutboxPart] = []
        self.bus = MessageBus(journal, capacity=capacity)

    @property
    def entries(self) -> list[InboxEntry]:
        """Return all entries of the inbox so far."""
        self._entries += self.bus.unread_entries()
        return self._entries

    @property
    def parts(self) -> list[OutboxPart]:
        """Return all parts of the outbox so far."""
        self._parts += self.bus.unread_parts()
        return self._parts

    @property
    def event_ids(self) -> list[str]:
        return [entry.message.event_id for entry in self.entries]


async def publish(bus: MessageBus, *event_ids: str) -> tuple[str, ...]:
    return await bus.publish("fake", [make_message(event_id) for event_id in event_ids])


async def test_publish_returns_when_the_messages_are_stored(
    journal: SqliteJournal, path: Path
) -> None:
    ends = BusEnds(journal)
    assert await ends.bus.publish("fake", [make_message("m1"), make_message("m2")], "7") == (
        "m1",
        "m2",
    )
    assert rows(path, "SELECT event_id FROM inbox ORDER BY id") == [("m1",), ("m2",)]
    assert rows(path, "SELECT value FROM cursor") == [("7",)]
    assert ends.event_ids == ["m1", "m2"]


async def test_a_duplicate_is_neither_reported_nor_delivered(journal: SqliteJournal) -> None:
    ends = BusEnds(journal)
    await publish(ends.bus, "m1")
    assert await publish(ends.bus, "m1", "m2") == ("m2",)
    assert ends.event_ids == ["m1", "m2"]
    assert ends.bus.open == 2


async def test_publish_waits_while_too_much_is_open_and_goes_on_when_there_is_room(
    journal: SqliteJournal,
) -> None:
    ends = BusEnds(journal, capacity=2)
    await publish(ends.bus, "m1", "m2")
    waiting = asyncio.get_running_loop().create_task(publish(ends.bus, "m3"))
    await journal.cursor("fake")
    assert not waiting.done()
    assert ends.event_ids == ["m1", "m2"]
    await ends.bus.commit(end_turn("t1", ends.entries[0]))
    assert await asyncio.wait_for(waiting, 5) == ("m3",)
    assert ends.bus.open == 2


async def test_what_an_earlier_process_left_counts_as_open(journal: SqliteJournal) -> None:
    ends = BusEnds(journal, capacity=2)
    left = await journal.receive("fake", (make_message("m1"), make_message("m2")))
    ends.bus.count_open(left)
    waiting = asyncio.get_running_loop().create_task(publish(ends.bus, "m3"))
    await journal.cursor("fake")
    assert not waiting.done()
    await ends.bus.commit(end_turn("t1", *left))
    await asyncio.wait_for(waiting, 5)
    assert ends.bus.open == 1


async def test_a_message_that_cannot_be_stored_is_an_error_and_not_delivered(
    journal: SqliteJournal,
) -> None:
    ends = BusEnds(journal)
    with no_file_may_grow_beyond(200_000), pytest.raises(StorageError):
        await ends.bus.publish("fake", [make_message("m1", "x" * 1_000_000)])
    assert (ends.event_ids, ends.bus.open) == ([], 0)
    assert await publish(ends.bus, "m1") == ("m1",)


async def test_what_is_stored_is_delivered_although_its_channel_was_cancelled(
    journal: SqliteJournal,
) -> None:
    ends = BusEnds(journal)
    publishing = asyncio.get_running_loop().create_task(publish(ends.bus, "m1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)
    assert publishing.cancelled()
    assert await publish(ends.bus, "m1") == ()
    assert ends.event_ids == ["m1"]


async def test_what_a_turn_commits_is_sent_and_what_it_publishes_again_is_delivered(
    journal: SqliteJournal,
) -> None:
    ends = BusEnds(journal)
    await publish(ends.bus, "m1")
    completion = end_turn(
        "t1", *ends.entries, outgoing=(reply("hi"),), republish=(make_message("m1:again"),)
    )
    committed = await ends.bus.commit(completion)
    assert ends.parts == []
    ends.bus.forward(committed)
    assert [item.part.content for item in ends.parts] == ["hi"]
    assert ends.event_ids == ["m1", "m1:again"]
    assert ends.bus.open == 1


async def test_something_said_during_a_turn_is_stored_before_it_is_sent(
    journal: SqliteJournal, path: Path
) -> None:
    ends = BusEnds(journal)
    await ends.bus.send_outgoing("t1", reply("one moment", call="waiting"))
    assert rows(path, "SELECT state FROM outbox") == [("pending",)]
    assert [item.part.content for item in ends.parts] == ["one moment"]
