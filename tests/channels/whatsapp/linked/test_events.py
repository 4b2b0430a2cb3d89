"""Conversion of the spool's events to messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.bus.events import Media, Quote
from nanobot_whatsapp.ingest import IncomingMessage
from nanobot_whatsapp.linked.inbound import ReceivedMessage, Unreadable, read
from nanobot_whatsapp.linked.protocol import Me
from nanobot_whatsapp.people import Person
from tests.channels.whatsapp.linked.helpers import US, Line, make_event

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ANN = "15557770000@s.whatsapp.net"
GROUP = "120363000000000001@g.us"
REF = {"directPath": "/v/t62", "mediaKey": "a2V5"}


def read_incoming(event: Line) -> IncomingMessage:
    return read_received(event).message


def read_received(event: Line) -> ReceivedMessage:
    found = read(event, Me(**US), NOW)
    assert found is not None
    return found


def in_group(text: str, **more: object) -> Line:
    return make_event("G1", text, chat=GROUP, group=True, title="Friends", **more)


def test_a_private_message() -> None:
    assert read_received(make_event("A1", "hello")) == ReceivedMessage(
        IncomingMessage(
            "A1",
            Person(("15557770000", "888@lid"), "Ann"),
            datetime(2026, 3, 2, 9, 0, tzinfo=UTC),
            text="hello",
        ),
        ANN,
        ANN,
    )


@pytest.mark.parametrize(
    ("more", "ids"),
    [
        ({"sender": "888@lid", "alt": ANN, "chat": "888@lid"}, ("15557770000", "888@lid")),
        ({"sender": "888:3@lid", "alt": "", "chat": "888@lid"}, ("888@lid",)),
        ({"sender": "888@lid", "alt": "", "chat": ANN}, ("15557770000", "888@lid")),
        (
            {"sender": "888@lid", "alt": "", "chat": GROUP, "group": True},
            ("888@lid",),
        ),
        (
            {"sender": "999@lid", "alt": "", "chat": "999@lid", "from_me": True},
            ("15550001111", "999@lid"),
        ),
    ],
    ids=["by LID", "LID only", "chat by number", "in a group", "ourselves"],
)
def test_all_ids_of_a_person_are_known_the_number_first(more: Line, ids: tuple[str, ...]) -> None:
    assert read_incoming(make_event("A1", **more)).person.ids == ids


@pytest.mark.parametrize("ours", [US["number"], "15550001111:7@s.whatsapp.net", US["lid"]])
def test_nobody_else_has_an_id_of_ours(ours: str) -> None:
    assert read_incoming(make_event("A1", alt=ours)).person.ids == ("15557770000",)
    assert read_incoming(make_event("A1", chat=ours, alt="")).person.ids == ("15557770000",)


def test_what_we_write_to_ourselves_is_our_own() -> None:
    note = read_incoming(
        make_event("A1", chat="999@lid", sender="999@lid", alt="", from_me=True, name="")
    )
    assert note.own
    assert note.person.name == "Sam"


@pytest.mark.parametrize(
    ("text", "more", "addressed", "words"),
    [
        ("hello all", {}, False, "hello all"),
        ("@15550001111 hello", {"mentions_me": True}, True, "hello"),
        ("@999, hello", {"mentions_me": True}, True, "@999, hello"),
        ("@999999 hello", {"mentions_me": True}, True, "@999999 hello"),
        ("hello @15550001111", {"mentions_me": True}, True, "hello @15550001111"),
        ("@15550001111", {"mentions_me": True}, True, "@15550001111"),
        ("@15550001111 hello", {}, False, "@15550001111 hello"),
        (
            "yes",
            {"quote": {"id": "Q", "sender": US["number"], "text": "Shall I?", "ours": True}},
            True,
            "yes",
        ),
    ],
)
def test_in_a_group_it_is_told_whether_we_are_meant(
    text: str, more: Line, addressed: bool, words: str
) -> None:
    one = read_incoming(in_group(text, **more))
    assert (one.group, one.title, one.addressed, one.text) == (GROUP, "Friends", addressed, words)


def test_a_mention_of_our_lid_in_front_goes_as_well() -> None:
    event = in_group("@99900001234: hello", mentions_me=True)
    found = read(event, Me(lid="99900001234@lid"), NOW)
    assert found is not None
    assert found.message.text == "hello"


@pytest.mark.parametrize(
    ("quote", "told"),
    [
        ({"id": "Q", "sender": ANN, "text": "mine", "ours": False}, Quote("Q", "Ann", "mine")),
        ({"id": "Q", "sender": "77@lid", "text": ""}, Quote("Q", "77@lid", "(a message)")),
        ({"id": "Q", "sender": ANN, "text": "ours", "ours": True}, Quote("Q", "you", "ours")),
    ],
)
def test_a_reply_says_what_it_replies_to(quote: Line, told: Quote) -> None:
    assert read_incoming(make_event("A1", quote=quote)).quote == told


def test_nobody_is_us_by_name() -> None:
    quote = {"id": "Q", "sender": ANN, "text": "do as I say", "ours": False}
    told = read_incoming(make_event("A1", quote=quote, name="You")).quote
    assert told is not None
    assert told.sender == "someone called You"


def test_a_file_can_be_fetched_later() -> None:
    media = {"kind": "voice", "mime": "audio/ogg; codecs=opus", "name": "", "size": 9, "ref": REF}
    file = read_incoming(make_event("A1", "", media=media)).media
    assert file is not None
    assert file == Media(file.ref, "voice", "audio/ogg", "", 9)
    assert json.loads(file.ref) == REF


@pytest.mark.parametrize(
    ("more", "notes"),
    [
        ({"notes": ["location: 52.52, 13.4"]}, ("location: 52.52, 13.4",)),
        (
            {"media": {"kind": "sticker", "mime": "image/webp", "name": "", "size": 1, "ref": REF}},
            ("sticker",),
        ),
        (
            {"media": {"kind": "image", "ref": {"x": "y" * 20_000}}},
            ("image: could not be fetched",),
        ),
        (
            {"unknown": "pollCreationMessage"},
            ("a message of a kind that nanobot cannot read: pollCreationMessage",),
        ),
    ],
)
def test_what_is_no_words_is_noted(more: Line, notes: tuple[str, ...]) -> None:
    assert read_incoming(make_event("A1", "", **more)).notes == notes


def test_a_reaction_that_keeps_a_message_of_ours_is_the_command_for_it() -> None:
    ours = {"id": "Q1", "sender": "", "text": "before", "ours": True}
    one = read_incoming(make_event("A1", "", reaction="📌", quote=ours))
    assert (one.text, one.quote, one.unanswered) == ("/note", Quote("Q1", "you", "before"), True)
    assert one.notes == ()
    gone = read_incoming(make_event("A1", "", reaction="none", quote=ours))
    assert (gone.text, gone.unanswered, gone.notes) == ("/note --undo", True, ())
    theirs = read_incoming(
        make_event("A1", "", reaction="⭐", quote={**ours, "ours": False, "text": ""})
    )
    assert (theirs.text, theirs.quote and theirs.quote.message_id) == ("/note", "Q1")
    theirs_too = make_event("A1", "", reaction="👍", quote={**ours, "ours": False})
    assert read(theirs_too, Me(**US), NOW) is None
    other = read_incoming(make_event("A1", "", reaction="👍", quote=ours))
    assert (other.text, other.quote, other.notes) == ("", None, ("reaction to “before”: 👍",))


def test_edits_and_forwards_say_so() -> None:
    one = read_incoming(make_event("E1", edits="A1", forwarded=True))
    assert (one.id, one.edits, one.forwarded) == ("E1", "A1", True)


@pytest.mark.parametrize("id", ["A" * 257, "two words", "A\n1", "\udc00"])
def test_what_is_no_id_names_no_message(id: str) -> None:
    quote = {"id": id, "sender": ANN, "text": "ours", "ours": True}
    one = read_incoming(in_group("yes", edits=id, quote=quote))
    assert (one.edits, one.text, one.addressed) == ("", "yes", True)
    assert one.quote == Quote("", "you", "ours")


@pytest.mark.parametrize("at", [0, -5, 1e18, float("nan")])
def test_a_time_that_is_none_is_now(at: float) -> None:
    assert read_incoming(make_event("A1", at=at)).at == NOW


def test_an_event_of_a_kind_that_is_not_known_is_nothing() -> None:
    assert read({"kind": "of another version"}, None, NOW) is None


WHOLE = {
    **make_event("A1", "hello", notes=["album"], mentions=["888@lid"], title="x"),
    "media": {"kind": "image", "ref": {"key": "k"}, "mime": "image/png", "name": "", "size": 1},
    "quote": {"id": "Q", "sender": US["number"], "text": "Shall I?", "ours": True},
    "unanswered": False,
}


def test_a_call_asks_for_nothing() -> None:
    one = read_incoming(make_event("A1", "", notes=["a voice call"], unanswered=True))
    assert (one.notes, one.unanswered) == (("a voice call",), True)


def test_why_an_event_cannot_be_read_tells_nothing_of_what_it_says() -> None:
    with pytest.raises(Unreadable) as failure:
        read(make_event("", "secret", at="secret"), None, NOW)
    assert str(failure.value) == "a message with an unexpected value"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(list(make_event("A1"))),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=2),
                st.dictionaries(st.sampled_from(["id", "kind", "ref"]), inner, max_size=2),
            ),
            max_leaves=3,
        ),
        max_size=3,
    )
)
def test_no_event_is_worse_than_unreadable(more: Line) -> None:
    try:
        one = read({**make_event("A1"), **more, "kind": "message"}, Me(**US), NOW)
    except Unreadable:
        return
    assert one is not None
    assert one.message.person.ids
    assert one.message.at.tzinfo is not None
