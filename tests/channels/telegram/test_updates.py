"""Senders and chats, edits, moves, blocks and buttons, and updates that are no conversation."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from nanobot.channel import Chat, Sender
from nanobot_telegram.updates import AlbumTracker, ParsedUpdate
from tests.channels.telegram.update_samples import (
    ANN,
    BOB,
    BOT,
    FORUM,
    GROUP,
    PRIVATE,
    SENT,
    Raw,
    entity,
    message,
    read,
    read_message,
)

SIZE = {"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9, "duration": 1}
ANONYMOUS = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
CHANNEL = {"id": -1009, "type": "channel", "title": "News"}
TRAP = "A]\n[forwarded from Owner"
SAFE = "A) (forwarded from Owner"


def who(raw: Raw) -> Sender | None:
    understood = read(raw)
    return understood.sender if understood else None


@pytest.mark.parametrize(
    ("fields", "sender"),
    [
        ({}, Sender("7", "Ann Lee")),
        ({"from": BOB | {"first_name": TRAP}}, Sender("8", SAFE)),
        ({"from": BOB | {"first_name": "", "username": "bob_b"}}, Sender("8", "bob_b")),
        ({"from": BOB | {"first_name": "\u202e\n"}}, Sender("8", "8")),
        ({"from": BOB | {"first_name": "x" * 500}}, Sender("8", "x" * 127 + "…")),
        ({"from": ANONYMOUS, "sender_chat": GROUP}, Sender("chat:-55", "Garden")),
        (
            {"from": ANONYMOUS, "sender_chat": GROUP, "author_signature": "Boss]"},
            Sender("chat:-55", "Garden (Boss))"),
        ),
        ({"from": ANONYMOUS, "sender_chat": CHANNEL}, Sender("chat:-1009", "News")),
        ({"from": ANONYMOUS, "sender_chat": CHANNEL, "is_automatic_forward": True}, None),
        ({"from": BOB | {"is_bot": True}}, None),
        ({"from": BOT}, None),
        ({"from": None}, None),
    ],
)
def test_the_sender_is_a_person_or_a_chat_and_never_a_bot(
    fields: Raw, sender: Sender | None
) -> None:
    assert who(message(**{"chat": GROUP, "text": "x"} | fields)) == sender


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({}, Chat("7")),
        ({"chat": GROUP}, Chat("-55", is_group=True, title="Garden")),
        ({"chat": GROUP | {"title": TRAP}}, Chat("-55", is_group=True, title=SAFE)),
        (
            {"chat": FORUM, "message_thread_id": 3, "is_topic_message": True},
            Chat("-1001", is_group=True, title="Garden", thread_id="3"),
        ),
        ({"chat": FORUM}, Chat("-1001", is_group=True, title="Garden")),
        ({"chat": FORUM, "message_thread_id": 3}, Chat("-1001", is_group=True, title="Garden")),
        (
            {"chat": FORUM, "message_thread_id": 1, "is_topic_message": True},
            Chat("-1001", is_group=True, title="Garden"),
        ),
        ({"message_thread_id": 4, "is_topic_message": True}, Chat("7", thread_id="4")),
    ],
)
def test_the_chat_and_the_topic(fields: Raw, chat: Chat) -> None:
    raw = message(**{"text": "x"} | fields)
    understood = read(raw)
    assert understood is not None
    assert understood.chat == chat
    said = read_message(raw)
    assert (said.chat_id, said.thread_id, said.is_group) == (chat.id, chat.thread_id, chat.is_group)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (message(CHANNEL, text="x"), "message"),
        (message(CHANNEL, text="x"), "channel_post"),
        (message(FORUM | {"is_direct_messages": True}, text="x"), "message"),
        (message(text="x", business_connection_id="b"), "message"),
        (message(text="x", business_connection_id="b"), "business_message"),
        (message(GROUP, text="x", guest_query_id="g"), "message"),
        ({"id": "1", "state": "y"}, "unheard_of"),
    ],
)
def test_what_is_no_conversation_with_us_is_ignored(raw: Raw, kind: str) -> None:
    assert read(raw, kind) is None


def test_a_message_is_known_by_its_number_and_told_in_the_persons_time() -> None:
    zone = timezone(timedelta(hours=2))
    understood = read(message(text="x"), zone=zone)
    assert understood is not None
    assert understood.message is not None
    said = understood.message
    assert (said.event_id, said.message_id, said.channel) == ("5", "5", "telegram")
    assert (said.delivery.edits, said.sender_id, said.sender_name) == ("", "7", "Ann Lee")
    assert said.timestamp.isoformat() == "2025-11-13T04:13:20+02:00"


@pytest.mark.parametrize(
    "fields", [{"text": "new"}, {"photo": [SIZE], "caption": "new"}, {"document": SIZE}]
)
def test_an_edit_names_what_it_replaces(fields: Raw) -> None:
    raw = message(**fields, edit_date=SENT + 60)
    said = read_message(raw, "edited_message")
    assert (said.delivery.edits, said.message_id) == ("5", "5")
    assert said.event_id.startswith(f"5:e{SENT + 60}-")
    assert said.timestamp == datetime.fromtimestamp(SENT + 60, said.timestamp.tzinfo)
    assert said == read_message(raw, "edited_message")
    assert read_message(raw).delivery.edits == ""


def test_two_edits_in_one_second_are_two() -> None:
    events = {
        read_message(message(text=text, edit_date=SENT), "edited_message").event_id
        for text in "abb"
    }
    assert len(events) == 2


@pytest.mark.parametrize("fields", [{"dice": {"emoji": "🎲", "value": 1}}, {"unheard": {"of": 1}}])
def test_what_nobody_edits_by_hand_is_no_correction(fields: Raw) -> None:
    assert read(message(**fields, edit_date=SENT), "edited_message") is None


def test_a_group_that_moved_keeps_its_first_id_and_its_messages_theirs() -> None:
    def canonical(chat_id: str) -> str:
        return "-55" if chat_id == "-1001" else chat_id

    told = [
        read(message(GROUP, migrate_to_chat_id=-1001)),
        read(message(FORUM, **{"from": None}, sender_chat=FORUM, migrate_from_chat_id=-55)),
    ]
    assert [item and item.moved for item in told] == [("-55", "-1001")] * 2
    before, after = (
        read(message(GROUP, text="x")),
        read(message(FORUM, text="x"), "message", canonical),
    )
    assert before is not None
    assert before.message is not None
    assert after is not None
    assert after.message is not None
    assert before.chat.id == after.chat.id == "-55"
    assert before.message.session_key == after.message.session_key
    assert before.message.event_id != after.message.event_id
    edited = read(message(FORUM, text="y", edit_date=SENT), "edited_message", canonical)
    assert edited is not None
    assert edited.message is not None
    assert edited.message.delivery.edits == after.message.event_id


@pytest.mark.parametrize(
    ("status", "gone"),
    [
        ({"status": "kicked", "until_date": 0}, True),
        ({"status": "left"}, True),
        ({"status": "member"}, False),
    ],
)
@pytest.mark.parametrize("chat", [PRIVATE, GROUP])
def test_being_blocked_or_let_in_is_told(chat: Raw, status: Raw, *, gone: bool) -> None:
    change = {
        "chat": chat,
        "from": ANN,
        "date": SENT,
        "old_chat_member": {"status": "member", "user": BOT},
        "new_chat_member": status | {"user": BOT},
    }
    understood = read(change, "my_chat_member")
    assert understood is not None
    assert (understood.gone, understood.message, understood.addressed) == (gone, None, False)
    assert read(change | {"chat": CHANNEL}, "my_chat_member") is None
    assert read(change | {"from": BOB | {"is_bot": True}}, "my_chat_member") is not None


def test_a_button_under_a_message_that_is_gone_is_understood() -> None:
    gone = {"chat": GROUP, "message_id": 5, "date": 0}
    query = {"id": "77", "from": ANN, "chat_instance": "c", "data": "b1"}
    understood = read(query | {"message": gone}, "callback_query")
    assert understood is not None
    assert understood.press is not None
    assert (understood.chat.id, understood.press.message_id) == ("-55", 5)
    for useless in (
        query | {"inline_message_id": "i"},
        query | {"message": gone, "data": None, "game_short_name": "g"},
        query | {"message": gone | {"chat": CHANNEL}},
        query | {"message": gone, "from": BOT},
        query | {"message": message(text="x", business_connection_id="b")},
    ):
        assert read(useless, "callback_query") is None


def test_one_mention_addresses_a_whole_album() -> None:
    def item(number: int, **fields: object) -> ParsedUpdate | None:
        raw = message(GROUP, message_id=number, photo=[SIZE], media_group_id="g", **fields)
        return read(raw)

    name: Raw = {"caption": "@nano_test_bot", "caption_entities": [entity("mention", 0, 14)]}
    albums = AlbumTracker()
    first = albums.complete([item(1), item(2, **name), None, item(3, **{"from": BOB})])
    assert [bool(each and each.addressed) for each in first] == [True, True, False, False]
    (late,) = albums.complete([item(4)])
    assert late is not None
    assert late.addressed
    (other,) = AlbumTracker().complete([item(4)])
    assert other is not None
    assert not other.addressed
