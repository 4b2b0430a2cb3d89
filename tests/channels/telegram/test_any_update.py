"""Any malformed update only affects itself: it is set aside and reported, and the rest is
processed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.bus.events import Quote
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.parsing import parse_json
from nanobot.testing import FakeClock
from nanobot.validation import build
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.ingest import UpdateIngest
from nanobot_telegram.reactions import Reactions
from nanobot_telegram.settings import TelegramSettings
from tests.bus.support import rows
from tests.channels.telegram.support import RecordingHost, running
from tests.channels.telegram.update_samples import (
    ANN,
    BOB,
    BOT,
    GROUP,
    ME,
    PRIVATE,
    SENT,
    Raw,
    entity,
    message,
)
from tests.doubles.telegram import FakeTelegram
from tests.gateway.core import Core
from tests.scratch import scratch

PHOTO: Raw = {"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 5}


def samples() -> list[Raw]:
    """Return updates of every kind with most of their fields."""
    full = message(
        GROUP,
        text="@nano_test_bot hello",
        entities=[entity("mention", 0, 14)],
        reply_to_message=message(GROUP, text="before", **{"from": BOT}),
        quote={"text": "before", "position": 0},
        media_group_id="album",
        message_thread_id=5,
        forward_origin={"type": "user", "date": SENT, "sender_user": BOB},
    )
    button = {
        "id": "1",
        "from": BOB,
        "message": message(PRIVATE, text="choose"),
        "chat_instance": "1",
        "data": "b1",
    }
    member = {"user": BOT, "status": "left"}
    change = {
        "chat": GROUP,
        "from": BOB,
        "date": SENT,
        "old_chat_member": member,
        "new_chat_member": member,
    }
    return [
        {"message": message(PRIVATE, photo=[PHOTO], caption="look", media_group_id="a")},
        {"message": message(PRIVATE, voice=PHOTO | {"duration": 3, "mime_type": "audio/ogg"})},
        {"message": message(PRIVATE, document=PHOTO | {"file_name": "a.txt"})},
        {"message": message(PRIVATE, location={"latitude": 1.5, "longitude": 2.5})},
        {"message": full},
        {"edited_message": {**full, "edit_date": SENT}},
        {"callback_query": button},
        {"my_chat_member": change},
    ]


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all values in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)  # type: ignore[arg-type]
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def nest(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


MALFORMED: tuple[object, ...] = (
    None, True, 0, -1, 5, 2**63, 10**400, 1.5, float("nan"), "", "x", "\ud800", "\x00", "5" * 5000,
    [], [[]], {}, {"id": {}}, ["x"], {"x": 5}, nest(600),
)  # fmt: skip


def mutate(document: Raw, rnd: Random) -> Raw:
    """Return the document with up to three malformed values."""
    copy: Raw = json.loads(json.dumps(document))
    chosen = rnd.sample(list(places(copy)), rnd.randint(1, 3))
    for *path, last in sorted(chosen, key=len, reverse=True):
        inner: object = copy
        for key in path:
            inner = inner[key]  # type: ignore[index]
        inner[last] = rnd.choice(MALFORMED)  # type: ignore[index]
    return copy


async def ingest_all(updates: list[Raw]) -> tuple[list[tuple[object, ...]], str | None]:
    """Return the stored messages of these updates, and the cursor."""
    with scratch() as home:
        clock = FakeClock()
        journal = SqliteJournal(home / "journal.db", clock)
        await journal.open()
        try:
            core = Core(journal, home, everyone=True, groups="all")
            options = build(TelegramSettings, {"token": "1:secret"})
            client = TelegramClient(options, clock)
            await client.aclose()  # sends fail
            chats = Chats(core.host.state_folder)
            batch = [parse_json(json.dumps(update).encode()) for update in updates]
            async with asyncio.TaskGroup() as tasks:
                unmarked = Reactions(client, chats, core.host.clock, enabled=False)
                ingest = UpdateIngest(client, core.host, chats, ME, tasks, unmarked)
                await ingest.ingest(batch, "9:9:now")
            await core.background.drain(5.0)
            cursor = await core.host.cursor()
        finally:
            await journal.close()
        return rows(home / "journal.db", "SELECT event_id, chat_id FROM inbox"), cursor


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_no_update_stops_the_others_or_the_cursor(seed: int) -> None:
    rnd = Random(seed)
    malformed = [{"update_id": n, **mutate(rnd.choice(samples()), rnd)} for n in range(1, 6)]
    good: Raw = {"update_id": 7, "message": message(PRIVATE, text="hello", message_id=4711)}
    stored, cursor = asyncio.run(ingest_all([*malformed, good]))
    assert ("4711", str(PRIVATE["id"])) in stored
    assert cursor == "9:9:now"


async def test_a_badly_typed_field_leaves_the_words_of_its_message(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.push({"message": message(PRIVATE, text="malformed", media_group_id=5, message_id=900)})
    telegram.say("hello")
    async with running(telegram, host):
        assert await host.texts(2) == ["malformed", "hello"]
        await telegram.wait_for(lambda: telegram.pending == 0)
    assert "could not read parts of the message" in host.stored[0].notes[0]
    assert "media_group_id" in (host.state_folder / "quarantine.jsonl").read_text()


@pytest.mark.parametrize("part", ["forward_origin", "via_bot", "from", "text"])
async def test_words_whose_author_cannot_be_read_are_nobodys(
    telegram: FakeTelegram, host: RecordingHost, part: str
) -> None:
    telegram.push(
        {"message": message(PRIVATE, **{"text": "malformed", "message_id": 900, part: [7]})}
    )
    telegram.say("hello")
    async with running(telegram, host):
        await telegram.wait_for(lambda: telegram.pending == 0)
    assert "malformed" not in [one.content for one in host.stored]


@pytest.mark.parametrize(
    "malformed", ["[" * 20_000 + "]" * 20_000, "9" * 5_000], ids=["nested", "a long number"]
)
async def test_a_value_that_no_parser_takes_costs_that_value(
    malformed: str, telegram: FakeTelegram, host: RecordingHost
) -> None:
    texts = ["one", "malformed", "two"]
    updates = [
        {"update_id": n, "message": message(PRIVATE, text=text, message_id=n, x="MALFORMED")}
        for n, text in enumerate(texts, 5_000)
    ]
    answer = json.dumps({"ok": True, "result": updates}).replace('"MALFORMED"', malformed)
    telegram.garble("getUpdates", answer.encode())
    async with running(telegram, host):
        assert await host.texts(3) == texts
        await host.until(lambda: ":5003:" in (host.stored_cursor or ""))


@pytest.mark.parametrize("malformed", ["[" * 20_000 + "]" * 20_000, "9" * 5_000])
async def test_who_wrote_what_no_parser_takes_is_answered(
    malformed: str, telegram: FakeTelegram, host: RecordingHost
) -> None:
    bad = {"update_id": 5_000, "message": message(PRIVATE, text="MALFORMED", message_id=5)}
    answer = json.dumps({"ok": True, "result": [bad]}).replace('"MALFORMED"', malformed)
    telegram.garble("getUpdates", answer.encode())
    async with running(telegram, host):
        await host.texts(1)
    assert host.stored[0].notes


async def test_a_live_photo_without_a_still_is_its_video(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    live = {"file_id": "v", "file_unique_id": "u", "duration": 3, "width": 9, "height": 9}
    telegram.push({"message": message(PRIVATE, live_photo=live)})
    async with running(telegram, host):
        await host.texts(1)
    assert [(file.ref, file.kind) for file in host.stored[0].media] == [("v", "video")]


async def test_a_reaction_in_private_is_a_note_and_begins_no_turn(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    mark = {"type": "emoji", "emoji": "👍"}
    change: Raw = {
        "chat": PRIVATE,
        "message_id": 3,
        "user": ANN,
        "date": SENT,
        "old_reaction": [],
        "new_reaction": [mark],
    }
    async with running(telegram, host):
        await telegram.wait_for(lambda: telegram.polls)
        telegram.push({"message_reaction": {**change, "chat": GROUP}})
        telegram.push({"message_reaction": {**change, "new_reaction": []}})
        telegram.push({"message_reaction": change})
        await host.texts(1)
        await telegram.wait_for(lambda: telegram.pending == 0)
    (said,) = host.stored
    assert said.notes == ("reaction to an earlier message: 👍",)
    assert (said.content, said.delivery.unanswered, said.chat_id) == ("", True, "7")


@pytest.mark.parametrize("chat", [PRIVATE, GROUP], ids=["private", "group"])
async def test_a_reaction_that_keeps_a_message_is_the_command_for_it(
    telegram: FakeTelegram, host: RecordingHost, chat: Raw
) -> None:
    writes = [{"type": "emoji", "emoji": "✍️"}]
    change: Raw = {"chat": chat, "message_id": 3, "user": ANN, "date": SENT}
    async with running(telegram, host):
        await telegram.wait_for(lambda: telegram.polls)
        telegram.push({"message_reaction": {**change, "old_reaction": [], "new_reaction": writes}})
        telegram.push({"message_reaction": {**change, "old_reaction": writes, "new_reaction": []}})
        await host.texts(2)
    assert [(said.content, said.notes, said.delivery.unanswered) for said in host.stored] == [
        ("/note", (), True),
        ("/note --undo", (), True),
    ]
    assert {said.reply_to for said in host.stored} == {Quote("3")}
    assert len({said.event_id for said in host.stored}) == 2
    assert all(addressed == (chat is GROUP) for _, _, addressed in host.asked)


async def test_an_ephemeral_message_is_declined_to_its_sender_alone(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    unseen = message(GROUP, text="/ask", message_id=0, ephemeral_message_id=4)
    async with running(telegram, host):
        telegram.group(int(str(GROUP["id"])))
        telegram.push({"message": unseen})
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
    (call,) = telegram.calls_of("sendMessage")
    assert (call.params["receiver_user_id"], call.chat_id) == (7, GROUP["id"])
    assert "only I can see" in call.text("text")
    assert (host.stored, telegram.violations) == ([], [])
