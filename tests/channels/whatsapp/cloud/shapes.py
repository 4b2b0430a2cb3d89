"""Calls of the Cloud API, one of each documented or reported shape.

These are read, with their text and notes. For the rest see `quiet`."""

from __future__ import annotations

import json

from tests.channels.whatsapp.cloud.samples import (
    ANN,
    ANN_ID,
    OURS,
    Json,
    message,
)

IncomingMessage = tuple[Json, str, tuple[str, ...]]
"""A message, its text, and its notes."""

ASKED = {"from": OURS, "id": "wamid.asked"}
PARENT = "US.ENT.11815799212886844830"
FILE = {"id": "900000000000009", "sha256": "bm90aGluZw=="}
CARD = {
    "name": {"formatted_name": "Bo Doe", "first_name": "Bo", "last_name": "Doe"},
    "phones": [{"phone": "+1 555-000-3333", "wa_id": "15550003333", "type": "CELL"}],
}
WARES = [{"product_retailer_id": "TEA", "quantity": 2, "item_price": 7.99, "currency": "EUR"}]
PLACE = {"latitude": 52.52, "longitude": 13.4}
ADVERT = {
    "source_url": "https://fb.example/ad",
    "source_id": "1",
    "source_type": "ad",
    "headline": "Tea",
    "body": "Warm",
    "media_type": "image",
    "image_url": "https://fb.example/ad.jpg",
    "ctwa_clid": "x",
}
UNREADABLE = "a message of a kind that nanobot cannot read: "


def error(code: int, title: str, details: str = "") -> Json:
    """Return an error in Meta's form."""
    told = {"error_data": {"details": details}} if details else {}
    return {"code": code, "title": title, "message": title, **told}


def text(body: str = "hi", /, **fields: object) -> Json:
    """Return a text message."""
    return message("text", {"body": body}, **fields)


def make_choice(kind: str, **reply: object) -> Json:
    return message("interactive", {"type": kind, kind: reply}, context=ASKED)


def _form(answers: object, name: str = "flow") -> Json:
    return make_choice("nfm_reply", name=name, body="Sent", response_json=answers)


def make_unsupported(**fields: object) -> Json:
    """Return a message that the Cloud API cannot represent."""
    reason = error(131051, "Message type unknown", "Not supported.")
    return message("unsupported", **{"errors": [reason], **fields})


WORDS: dict[str, IncomingMessage] = {
    "text": (text(), "hi", ()),
    "many lines": (text("a\n\nb"), "a\n\nb", ()),
    "right to left": (text("שלום 👋🏽"), "שלום 👋🏽", ()),
    "as long as can be": (text("x" * 4096), "x" * 4096, ()),
    "an answer": (text(context=ASKED), "hi", ()),
    "an answer to who hides": (text(context={"id": "wamid.asked"}), "hi", ()),
    "no context": (text(context=None), "hi", ()),
    "passed on": (text(context={"forwarded": True}), "hi", ()),
    "passed on often": (text(context={"frequently_forwarded": True}), "hi", ()),
    "about a ware": (
        text(
            context={
                **ASKED,
                "referred_product": {"catalog_id": "1", "product_retailer_id": "TEA"},
            }
        ),
        "hi",
        (),
    ),
    "from an advert": (text(referral=ADVERT), "hi", ()),
    "from a post, greeted": (
        text(referral={"source_type": "post", "welcome_message": {"text": "Hello!"}}),
        "hi",
        (),
    ),
    "with the sender's key": (
        text(identity={"acknowledged": True, "created_timestamp": "1", "hash": "x"}),
        "hi",
        (),
    ),
    "with all ids": (text(from_user_id=ANN_ID, from_parent_user_id=PARENT), "hi", ()),
    "with an id that nobody explains": (text(from_logical_id="7"), "hi", ()),
    "without a number": ({**text(from_user_id=ANN_ID), "from": None}, "hi", ()),
    "with numbers for strings": ({**text(timestamp=1777636800), "from": int(ANN)}, "hi", ()),
    "without a kind": ({**text(), "type": None}, "hi", ()),
}

FILES: dict[str, IncomingMessage] = {
    "picture": (message("image", {**FILE, "mime_type": "image/jpeg"}), "", ()),
    "picture with words": (
        message("image", {**FILE, "mime_type": "image/jpeg", "caption": "look"}),
        "look",
        (),
    ),
    "picture with an address": (
        message("image", {**FILE, "mime_type": "image/png", "url": "https://x.example/1"}),
        "",
        (),
    ),
    "picture from an advert": (
        message("image", {**FILE, "mime_type": "image/png"}, referral=ADVERT),
        "",
        (),
    ),
    "film": (message("video", {**FILE, "mime_type": "video/mp4", "caption": "ha"}), "ha", ()),
    "music": (message("audio", {**FILE, "mime_type": "audio/mpeg", "voice": False}), "", ()),
    "voice": (
        message("audio", {**FILE, "mime_type": "audio/ogg; codecs=opus", "voice": True}),
        "",
        (),
    ),
    "sound": (message("audio", {**FILE, "mime_type": "audio/amr"}), "", ()),
    "sticker": (
        message("sticker", {**FILE, "mime_type": "image/webp", "animated": True}),
        "",
        ("sticker",),
    ),
    "document": (
        message("document", {**FILE, "mime_type": "application/pdf", "filename": "a.pdf"}),
        "",
        (),
    ),
    "document without a name": (
        message("document", {**FILE, "mime_type": "text/calendar", "caption": "see"}),
        "see",
        (),
    ),
    "document of no kind": (message("document", FILE), "", ()),
    "file with a number for its id": (message("image", {"id": 900000000000009}), "", ()),
    "file that Meta could not load": (
        message("image", None, errors=[error(131052, "Media download error", "Not loaded.")]),
        "",
        (f"{UNREADABLE}image, Not loaded.",),
    ),
}

THINGS: dict[str, IncomingMessage] = {
    "place": (message("location", PLACE), "", ("location: 52.52, 13.4",)),
    "place with a name": (
        message(
            "location", {**PLACE, "name": "HQ", "address": "1 Way", "url": "https://x.example"}
        ),
        "",
        ("location: 52.52, 13.4, HQ, 1 Way, https://x.example",),
    ),
    "place in strings": (
        message("location", {"latitude": "52.52", "longitude": "13.4"}),
        "",
        ("location: 52.52, 13.4",),
    ),
    "place without a kind": (
        {**message("location", PLACE), "type": None},
        "",
        ("location: 52.52, 13.4",),
    ),
    "card": (message("contacts", [CARD]), "", ("contact: Bo Doe, +1 555-000-3333",)),
    "cards": (message("contacts", [CARD, {"name": {"first_name": "Cy"}}]), "", ("contact: Cy",)),
    "card with all there is": (
        message(
            "contacts",
            [
                {
                    **CARD,
                    "org": {"company": "Acme", "department": "Tea", "title": "Cook"},
                    "emails": [{"email": "bo@example.org", "type": "WORK"}],
                    "addresses": [{"city": "Town", "type": "HOME"}],
                    "urls": [{"url": "https://bo.example", "type": "WORK"}],
                    "birthday": "1990-01-01",
                }
            ],
        ),
        "",
        ("contact: Bo Doe, Acme, +1 555-000-3333, bo@example.org",),
    ),
    "card that was asked for": (
        message(
            "contacts",
            [{"vcard": "BEGIN:VCARD", "origin": "contact_request", "phones": CARD["phones"]}],
        ),
        "",
        ("contact: +1 555-000-3333",),
    ),
    "order": (
        message("order", {"catalog_id": "1", "text": "", "product_items": WARES}),
        "",
        ("order: ", "TEA", "7.99"),
    ),
    "order with words": (
        message("order", {"catalog_id": "1", "text": "please", "product_items": WARES}),
        "please",
        ("order: ", "TEA", "7.99"),
    ),
}

PRESSED: dict[str, IncomingMessage] = {
    "button": (make_choice("button_reply", id="b-1", title="Yes"), "Yes", ()),
    "row": (make_choice("list_reply", id="b-2", title="Two"), "Two", ()),
    "row with more": (
        make_choice("list_reply", id="b-2", title="Two", description="the second"),
        "Two",
        ("described there as: the second",),
    ),
    "template's button": (
        message("button", {"payload": "p", "text": "No"}, context=ASKED),
        "No",
        (),
    ),
    "template's button alone": (message("button", {"text": "No"}), "No", ()),
    "form": (
        _form(json.dumps({"flow_token": "secret", "taste": "good", "stars": 4})),
        "",
        ("answers to a form: flow, ", '"taste": "good"', '"stars": 4'),
    ),
    "form that is no string": (_form({"taste": "good"}), "", ('"taste": "good"',)),
    "form that is no JSON": (_form("taste=good"), "", ("taste=good",)),
    "form with lists": (_form('{"days": ["mo", "tu"]}'), "", ('"days": ("mo", "tu")',)),
    "address by another name": (
        message(
            "interactive",
            {
                "type": "interactive",
                "action": "address_message",
                "nfm_reply": {"response_json": '{"city": "Town"}'},
            },
        ),
        "",
        ('"city": "Town"',),
    ),
    "something new": (make_choice("hologram_reply", id="1"), "", (f"{UNREADABLE}hologram reply",)),
    "nothing": (message("interactive", None), "", (f"{UNREADABLE}interactive",)),
}

UNREAD: dict[str, IncomingMessage] = {
    "unsupported": (make_unsupported(), "", (f"{UNREADABLE}unsupported, Not supported.",)),
    "poll": (make_unsupported(unsupported={"type": "poll_creation"}), "", ("poll creation, Not",)),
    "event": (make_unsupported(unsupported={"type": "event_creation"}), "", ("event creation",)),
    "edit of long ago": (make_unsupported(unsupported={"type": "edit"}), "", ("read: edit, Not",)),
    "unavailable": (
        make_unsupported(errors=[error(131060, "This message is currently unavailable.")]),
        "",
        ("This message is currently unavailable.",),
    ),
    "unknown, as it was told once": (
        message(
            "unknown", errors=[{"code": 131051, "details": "Not for you.", "title": "Unsupported"}]
        ),
        "",
        (f"{UNREADABLE}unknown, Not for you.",),
    ),
    "ephemeral": (message("ephemeral"), "", (f"{UNREADABLE}ephemeral",)),
    "kind of tomorrow": (message("hologram", {"id": "1"}), "", (f"{UNREADABLE}hologram",)),
    "no kind at all": ({**message("x"), "type": None}, "", (f"{UNREADABLE}unknown",)),
}

EDITS: dict[str, IncomingMessage] = {
    kind: (message("edit", {"original_message_id": "wamid.0", "message": inner}), "better", ())
    for kind, inner in {
        "edit": {"type": "text", "text": {"body": "better"}, "context": {"id": "M0"}},
        "edit without more": {"type": "text", "text": {"body": "better"}},
        "edit of a picture": {"type": "image", "image": {**FILE, "caption": "better"}},
        "edit of a film": {"type": "video", "video": {**FILE, "caption": "better"}},
    }.items()
}

HEARD: dict[str, IncomingMessage] = WORDS | FILES | THINGS | PRESSED | UNREAD | EDITS
