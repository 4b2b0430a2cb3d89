"""Incoming items become messages: access, content, and storage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from loguru import logger
from msgspec.structs import replace

from nanobot.bus.events import InboundMessage, Media, Quote
from nanobot.channel import Admission, Chat, MenuEntry, Sender
from nanobot.errors import StorageError
from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.ingest import OURS, IncomingMessage, Ingest
from nanobot_whatsapp.people import People, Person
from tests.channels.telegram.support import RecordingHost, WatchedClock
from tests.doubles.fence import closed_fence

NUMBER, LID = "15557770000", "888@lid"
GROUP = "120363040000000000@g.us"
ADA = Person((NUMBER, LID), "Ada")
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class StrictHost(RecordingHost):
    """Admits known people, and checks that they are on disk before anything is published."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        super().__init__(folder, clock)
        self.entries = [MenuEntry("status", "")]
        self.fault = ""

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        if sender.name == self.fault:
            raise LookupError("a fault of the core")
        return super().admit(sender, chat, addressed=addressed)

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        assert (self.state_folder / "people.json").exists()
        return await super().publish(messages, cursor)


@pytest.fixture
def host(tmp_path: Path) -> StrictHost:
    host = StrictHost(tmp_path, WatchedClock())
    host.fault = "nobody"
    return host


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The log lines that are not only for developers."""
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING")
    yield lines
    logger.remove(sink)


def ingest(
    host: StrictHost, *, self_chat: bool = False, pairing: bool = False, prefix: str = ""
) -> Ingest:
    people = People(host.state_folder)
    return Ingest(host, people, self_chat=self_chat, pairing=pairing, prefix=prefix)


def make_incoming(id: str = "3EB0A1", text: str = "hello", person: Person = ADA) -> IncomingMessage:
    return IncomingMessage(id, person, AT, text=text)


async def test_a_private_message_is_in_the_chat_of_its_sender(host: StrictHost) -> None:
    assert await ingest(host).store([make_incoming()]) == [make_incoming()]
    [message] = host.stored
    assert (message.channel, message.chat_id, message.sender_id) == ("whatsapp", NUMBER, NUMBER)
    assert (message.event_id, message.message_id) == ("3EB0A1", "3EB0A1")
    assert (message.content, message.sender_name, message.is_group) == ("hello", "Ada", False)
    assert message.timestamp == AT
    assert host.published == 1


async def test_who_wrote_is_kept_beside_the_event_loop(host: StrictHost) -> None:
    with closed_fence() as fence:
        storing = asyncio.create_task(ingest(host).store([make_incoming()]))
        await fence.until_waited()
        assert host.stored == []
        fence.opened.set()
        assert await storing == [make_incoming()]


async def test_what_comes_with_the_words_is_passed_on(host: StrictHost) -> None:
    file = Media("ref", "image", "image/jpeg", "a [b].jpg", 7)
    said = replace(
        make_incoming(),
        media=file,
        quote=Quote("3EB0", OURS, "before"),
        forwarded=True,
        notes=("location: 52.52, 13.4", "poll: [owner]\nsays"),
    )
    await ingest(host).store([said])
    [message] = host.stored
    assert message.media == (replace(file, name="a (b).jpg"),)
    assert message.reply_to == Quote("3EB0", OURS, "before")
    assert message.forwarded_from == "someone"
    assert message.notes == ("location: 52.52, 13.4", "poll: (owner) says")


async def test_a_group_is_a_chat_of_its_own_with_people_in_it(host: StrictHost) -> None:
    said = replace(make_incoming(), group=GROUP, title="Our\nfriends", addressed=False)
    await ingest(host).store([said])
    [(sender, chat, addressed)] = host.asked
    assert chat == Chat(GROUP, is_group=True, title="Our friends")
    assert (sender.id, addressed) == (NUMBER, False)
    assert host.stored[0].is_group
    assert host.stored[0].chat_id == GROUP


@pytest.mark.parametrize(
    ("text", "addressed"),
    [("/status", True), ("/status now", True), ("/statuses", False), ("/etc/passwd", False)],
)
async def test_a_command_in_a_group_is_for_the_agent(
    host: StrictHost, text: str, addressed: bool
) -> None:
    said = replace(make_incoming(text=text), group=GROUP, addressed=False)
    forwarded = replace(said, id="3EB0A2", forwarded=True)
    await ingest(host).store([said, forwarded])
    assert [asked[2] for asked in host.asked] == [addressed, False]


@pytest.mark.parametrize("pairing", [False, True])
async def test_a_stranger_is_only_told_how_to_be_let_in_where_that_is_wanted(
    host: StrictHost, pairing: bool
) -> None:
    host.strangers = {NUMBER}
    assert await ingest(host, pairing=pairing).store([make_incoming()]) == []
    assert [asked[2] for asked in host.asked] == [pairing]
    assert host.published == 0
    assert not (host.state_folder / "people.json").exists()


@pytest.mark.parametrize("listed", [f"+{NUMBER}", f"{NUMBER}@s.whatsapp.net", LID])
async def test_the_owner_is_known_by_whichever_id_makes_them_the_owner(
    host: StrictHost, listed: str
) -> None:
    host.owner_ids = ["15550009999", listed]
    await ingest(host).store([make_incoming()])
    [message] = host.stored
    assert (message.chat_id, message.sender_id) == (NUMBER, listed)
    assert NUMBER in host.asked[0][0].also


async def test_what_one_writes_to_oneself_is_heard_where_that_is_wanted(host: StrictHost) -> None:
    said = replace(make_incoming(), own=True)
    assert await ingest(host).store([said]) == []
    assert host.asked == []
    assert await ingest(host, self_chat=True).store([said]) == [said]
    assert host.asked[0][2]


async def test_an_edit_is_an_event_of_its_own_that_names_the_first(host: StrictHost) -> None:
    edit = replace(make_incoming("3EB0A2", "hello!"), edits="3EB0A1")
    await ingest(host).store([make_incoming(), edit])
    first, second = host.stored
    assert (second.event_id, second.delivery.edits) == ("3EB0A1:edit:3EB0A2", first.event_id)
    assert second.message_id == first.message_id


async def test_what_an_agent_wrote_to_its_owner_is_not_answered_by_another(
    host: StrictHost,
) -> None:
    ours, note = (
        replace(make_incoming(text="🤖 hello"), own=True),
        replace(make_incoming("3EB0A2"), own=True),
    )
    way_in = ingest(host, self_chat=True, prefix="🤖 ")
    assert await way_in.store([ours, note, make_incoming("3EB0A3", "🤖 hi")]) == [
        note,
        make_incoming("3EB0A3", "🤖 hi"),
    ]
    assert await ingest(host, self_chat=True).store([ours]) == [ours]


async def test_nobodys_message_in_a_group_is_taken_for_somebody_elses(host: StrictHost) -> None:
    bob = Person(("15557770001",), "Bob")
    first = replace(make_incoming(text="mine first", person=bob), group=GROUP)
    said = replace(make_incoming(), group=GROUP)
    edit = replace(make_incoming("3EB0A2", "hello!"), group=GROUP, edits="3EB0A1")
    forged = replace(make_incoming("3EB0A2", "no", bob), group=GROUP, edits="3EB0A1")
    for one in (first, said, edit, forged, first, said, edit, forged):
        await ingest(host).store([one])
    of_bob, of_ada, edited, not_edited = host.stored
    assert [message.content for message in host.stored] == ["mine first", "hello", "hello!", "no"]
    assert (edited.delivery.edits, not_edited.delivery.edits) == (of_ada.event_id, of_bob.event_id)
    assert len({message.event_id for message in host.stored}) == 4
    assert {message.message_id for message in host.stored} == {"3EB0A1"}


async def test_in_a_group_the_owner_may_be_written_down_another_way_and_keeps_their_events(
    host: StrictHost,
) -> None:
    said = replace(make_incoming(), group=GROUP)
    await ingest(host).store([said])
    host.owner_ids = [LID]
    await ingest(host).store([said])
    assert len(host.stored) == 1


@pytest.mark.parametrize(
    "bad",
    [
        replace(make_incoming(), person=Person(())),
        replace(make_incoming(), id="two words"),
        replace(make_incoming(), id=""),
        replace(make_incoming(), group="status@broadcast"),
        replace(make_incoming(), text=" \n"),
    ],
    ids=str,
)
async def test_what_says_nothing_or_cannot_be_placed_is_left_out_alone(
    host: StrictHost, bad: IncomingMessage
) -> None:
    good = make_incoming("3EB0A9")
    assert await ingest(host).store([bad, good]) == [good]
    assert [message.event_id for message in host.stored] == ["3EB0A9"]


async def test_half_characters_do_not_reach_the_disk(host: StrictHost) -> None:
    person = replace(ADA, name="A\udc00da")
    said = replace(make_incoming(text="\ud83d\ude00 \ud83d"), person=person, notes=("\udfff",))
    await ingest(host).store([said])
    assert host.stored[0].content == "\U0001f600 \ufffd"
    repr(host.stored[0]).encode()


async def test_a_fault_of_the_core_is_raised_and_nothing_is_stored(host: StrictHost) -> None:
    host.fault = "Bob"
    with pytest.raises(LookupError):
        await ingest(host).store(
            [make_incoming(), make_incoming("3EB0A2", person=Person(("15557770001",), "Bob"))]
        )
    assert host.published == 0


async def test_a_full_disk_stores_nothing_and_the_next_try_all_of_it(host: StrictHost) -> None:
    host.disk_full = True
    way_in = ingest(host)
    with pytest.raises(StorageError):
        await way_in.store([make_incoming()])
    host.disk_full = False
    assert await way_in.store([make_incoming()]) == [make_incoming()]
    assert len(host.stored) == 1
