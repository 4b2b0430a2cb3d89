"""Calls of the webhook are parsed with any contents, each item independently."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.bus.events import Quote
from nanobot_whatsapp.cloud.payload import BrokenItem, DeliveryFailure, IdChange, Remark, read
from nanobot_whatsapp.ingest import UNREADABLE, IncomingMessage
from tests.channels.whatsapp.cloud.samples import (
    ANN,
    ANN_ID,
    GROUP,
    NOW,
    OUR_ID,
    OURS,
    Json,
    call,
    find_incoming,
    items,
    make_call,
    message,
    read_message,
)

SAMPLES = Path("../shared/data/whatsapp-cloud")
PARENT = "US.ENT.11815799212886844830"
TEXT = {"body": "hi"}
KINDS = [
    *("text", "image", "audio", "document", "location", "contacts", "order", "button", "edit"),
    *("interactive", "system", "sticker", "unsupported", "reaction", "x"),
]
KEYS = [
    *("id", "type", "from", "text", "body", "context", "wa_id", "code", "interactive", "edit"),
    *("message", "system", "contacts", "name", "phones", "button_reply"),
]


def test_a_message_has_its_sender_its_time_and_its_id() -> None:
    one = read_message("text", TEXT)
    assert (one.id, one.person.ids, one.person.name) == ("wamid.one", (ANN, ANN_ID), "Ann")
    assert (one.at, one.group, one.addressed) == (NOW, "", True)


@pytest.mark.parametrize(
    ("sender", "contacts", "ids"),
    [
        ({"from": ANN}, [], (ANN,)),
        ({"from": f"+{ANN}"}, [{"wa_id": ANN}], (ANN,)),
        ({"from": int(ANN)}, None, (ANN, ANN_ID)),
        ({"from": None, "from_user_id": ANN_ID}, [{"user_id": ANN_ID}], (ANN_ID,)),
        (
            {"from": None, "from_user_id": ANN_ID, "from_parent_user_id": PARENT},
            [],
            (ANN_ID, PARENT),
        ),
        ({"from_user_id": ANN_ID}, [], (ANN, ANN_ID)),
        ({"from": None}, [{"user_id": ANN_ID, "parent_user_id": PARENT}], (ANN_ID, PARENT)),
        ({"from": ANN}, [{"wa_id": "15550009999", "user_id": "US.9"}], (ANN,)),
        (
            {"from": ANN},
            [{"wa_id": "15550009999"}, {"wa_id": ANN, "user_id": ANN_ID}],
            (ANN, ANN_ID),
        ),
    ],
)
def test_who_wrote_is_known_by_all_ids_that_are_theirs(
    sender: Json, contacts: object, ids: tuple[str, ...]
) -> None:
    beside = {} if contacts is None else {"contacts": contacts}
    (one,) = find_incoming(call(message("text", TEXT, **sender), **beside))
    assert one.person.ids == ids


@pytest.mark.parametrize(
    ("stamp", "late"),
    [
        ("1777636795", -5.0),
        (1777636795, -5.0),
        ("1777636795000", -5.0),
        ("soon", 0.0),
        (None, 0.0),
        ("-1", 0.0),
        ("9" * 400, 0.0),
        ("1e300", 0.0),
        ("1977636795", 0.0),
    ],
)
def test_a_time_that_cannot_be_is_now(stamp: object, late: float) -> None:
    assert read_message("text", TEXT, timestamp=stamp).at - NOW == timedelta(seconds=late)


@pytest.mark.parametrize(
    ("context", "quote", "forwarded"),
    [
        ({"from": OURS, "id": "wamid.q"}, Quote("wamid.q", "you"), False),
        ({"from": OUR_ID, "id": "wamid.q"}, Quote("wamid.q", "you"), False),
        ({"from": ANN, "id": "wamid.q"}, Quote("wamid.q"), False),
        ({"id": "wamid.q", "from": None}, Quote("wamid.q"), False),
        ({"forwarded": True}, None, True),
        ({"frequently_forwarded": True}, None, True),
        ({"id": 1.5, "forwarded": "yes"}, None, False),
        ("nothing", None, False),
    ],
)
def test_what_is_quoted_or_passed_on(context: object, quote: Quote | None, forwarded: bool) -> None:
    one = read_message("text", TEXT, context=context)
    assert (one.quote, one.forwarded) == (quote, forwarded)


def test_an_edit_names_what_it_corrects() -> None:
    inner = {"context": {"id": "M0"}, "type": "image", "image": {"id": "7", "caption": "better"}}
    edit = {"original_message_id": "wamid.first", "message": inner}
    one = read_message("edit", edit)
    assert (one.id, one.edits, one.text, one.quote) == ("wamid.one", "wamid.first", "better", None)
    assert one.media is not None
    assert one.at == NOW


@pytest.mark.parametrize(("emoji", "command"), [("⭐", "/note"), ("", "/note --undo")])
def test_a_reaction_that_keeps_a_message_is_the_command_for_it(emoji: str, command: str) -> None:
    one = read_message("reaction", {"message_id": "wamid.q", "emoji": emoji})
    assert (one.text, one.quote, one.unanswered) == (command, Quote("wamid.q"), True)
    assert one.notes == ()


def test_a_reaction_is_a_note_that_asks_for_nothing() -> None:
    one = read_message("reaction", {"message_id": "wamid.q", "emoji": "👍"})
    assert (one.notes, one.unanswered) == (("reaction to an earlier message: 👍",), True)
    assert one.text == ""


def test_a_deletion_names_what_was_taken_back() -> None:
    one = read_message("revoke", {"original_message_id": "wamid.first"})
    assert (one.id, one.deletes, one.text, one.notes) == ("wamid.one", "wamid.first", "", ())


@pytest.mark.parametrize(
    "silent",
    [
        message("reaction", {"message_id": "wamid.q", "emoji": "👍"}, group_id=GROUP),
        message("request_welcome"),
        message("unsupported", {"type": "poll_update"}),
        message("system", {"type": "customer_identity_changed", "body": "changed"}),
        message("text", TEXT, **{"from": OURS}),
        message("text", {"body": f"@{OURS} hello"}, group_id=GROUP),
    ],
)
def test_what_says_nothing_is_only_remarked(silent: Json) -> None:
    (item,) = items(call(silent))
    assert isinstance(item, Remark)


def test_a_new_number_and_new_ids_are_told() -> None:
    system = {
        "type": "user_changed_number",
        "wa_id": "15550003333",
        "previous_user_id": ANN_ID,
        "user_id": "US.2",
    }
    found = items(call(message("system", system)))
    assert [item for item in found if isinstance(item, IdChange)] == [
        IdChange(ANN, "15550003333"),
        IdChange(ANN_ID, "US.2"),
    ]
    old = {"type": "customer_changed_number", "new_wa_id": "15550003333", "customer": ANN}
    found = items(call(message("system", old, **{"from": None})))
    assert found[0] == IdChange(ANN, "15550003333")


def test_the_fate_of_what_we_sent_is_told() -> None:
    error = {"code": 131047, "title": "Re-engagement", "error_data": {"details": "too late"}}
    failed = {"id": "wamid.s", "status": "failed", "recipient_id": ANN, "errors": [error]}
    read_by = {"id": "wamid.s", "status": "read", "recipient_user_id": ANN_ID, "timestamp": "x"}
    found = items(call(statuses=[failed, 7, {}, read_by]))
    assert found[0] == DeliveryFailure("wamid.s", 131047, "too late")
    assert isinstance(found[1], BrokenItem)
    assert isinstance(found[2], BrokenItem)
    assert found[3] == Remark("our message was read")


def test_errors_of_meta_are_grave_and_other_notifications_are_not() -> None:
    error = {"code": 131000, "title": "Something went wrong"}
    (grave,) = items(call(errors=[error]))
    assert grave == Remark("Meta reports Something went wrong (131000)", level="WARNING")
    echo = {"field": "smb_message_echoes", "value": {"message_echoes": [message("text", TEXT)]}}
    other = {"display_phone_number": "15550008888", "phone_number_id": "100000000000009"}
    for quiet in (make_call(echo), call(message("text", TEXT), metadata=other)):
        (item,) = items(quiet)
        assert isinstance(item, Remark)
        assert item.level == "DEBUG"


def test_a_bad_item_takes_no_other_along() -> None:
    good = [message("text", {"body": str(n)}, id=f"wamid.{n}") for n in range(3)]
    nobody = message("text", TEXT, **{"from": "<WHATSAPP_USER_PHONE_NUMBER>"})
    document = call(good[0], None, message("text", TEXT, id=""), good[1], nobody, good[2])
    entries = [7, {"changes": "none"}, {"changes": [None]}, *document["entry"]]  # type: ignore[misc]
    found = read({"entry": entries}, OUR_ID, NOW)
    told = [item for item in found if isinstance(item, IncomingMessage)]
    assert [one.text or one.notes for one in told] == ["0", (UNREADABLE,), "1", "2"]
    assert sum(isinstance(item, BrokenItem) for item in found) == 5


@pytest.mark.parametrize("document", [None, 7, "text", [], {}, {"entry": {}}])
def test_what_is_no_call_is_broken(document: object) -> None:
    (item,) = items(document)
    assert isinstance(item, BrokenItem)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "text", "image", OURS, ANN, ANN_ID, OUR_ID, "wamid.x", "a\n[b]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS), anything, anything, anything)
def test_no_message_is_fatal_and_what_is_heard_is_whole(
    kind: str, content: object, beside: object, sender: object
) -> None:
    fields: Json = {"context": beside, "referral": beside, "errors": [beside], "from": sender}
    malformed = message(kind, content, **fields)
    good = message("text", TEXT, id="wamid.good")
    found = items(call(malformed, beside, good, contacts=[beside, sender], statuses=[content]))
    for item in found:
        if isinstance(item, IncomingMessage):
            one = item
            assert one.text or one.media or one.notes
            assert one.person.ids
            assert one.at.tzinfo is not None
            assert all("\n" not in note and "[" not in note for note in one.notes)
    assert any(isinstance(item, IncomingMessage) and item.id == "wamid.good" for item in found)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(anything)
def test_no_document_is_fatal(document: object) -> None:
    items(document)
    items({"entry": [document, {"changes": [document, {"field": "messages", "value": document}]}]})


@pytest.mark.skipif(not SAMPLES.exists(), reason="the sample calls are not at hand")
def test_calls_that_others_recorded_are_understood() -> None:
    heard_of: dict[str, list[str]] = {}
    for path in sorted(SAMPLES.glob("*.json")):
        recorded = path.read_text("utf-8").replace("<WHATSAPP_USER_PHONE_NUMBER>", ANN)
        for name, document in json.loads(recorded).items():
            number = document["entry"][0]["changes"][0]["value"]["metadata"]["phone_number_id"]
            found = read(document, number, NOW)
            assert found
            assert not any(isinstance(item, BrokenItem) for item in found)
            said_here = [item for item in found if isinstance(item, IncomingMessage)]
            heard_of[f"{path.stem}/{name}"] = [type(item).__name__ for item in found]
            for item in said_here:
                assert item.text or item.notes or item.deletes
                assert item.person.ids[0].isdigit()
    assert heard_of["callback_button/quick_reply"] == ["IncomingMessage"]
    assert heard_of["callback_selection/description"] == ["IncomingMessage"]
    assert heard_of["edited_message/image"] == ["IncomingMessage"]
    assert heard_of["deleted_message/revoke"] == ["IncomingMessage"]
    assert heard_of["system/phone_number_change"] == ["IdChange", "Remark"]
    assert heard_of["message_status/failed"] == ["DeliveryFailure"]
    assert heard_of["outgoing_message/text"] == ["Remark"]
    assert heard_of["user_marketing_preferences/resume"] == ["Remark"]
