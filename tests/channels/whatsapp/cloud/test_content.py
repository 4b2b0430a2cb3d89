"""Every documented kind of message is converted to text, and any other is named."""

from __future__ import annotations

import pytest

from nanobot.bus.events import Media
from tests.channels.whatsapp.cloud.samples import Json, call, find_incoming, message, read_message

CARDS = [
    {
        "name": {"formatted_name": "Chandler B.", "first_name": "Chandler"},
        "org": {"company": "WENUS"},
        "phones": [{"phone": "+1 555 0100", "wa_id": "15550100"}],
        "emails": [{"email": "c@example.org"}],
    },
    {"name": {"first_name": "Monica", "last_name": "G."}, "phones": [{"wa_id": "15550101"}]},
    {"vcard": "BEGIN:VCARD", "phones": [{"phone": "15550102"}]},
]


@pytest.mark.parametrize(
    ("kind", "content", "text", "notes"),
    [
        ("text", {"body": "hi\nyou"}, "hi\nyou", ()),
        ("button", {"payload": "p", "text": "Yes"}, "Yes", ()),
        ("location", {"latitude": 52.52, "longitude": 13.4}, "", ("location: 52.52, 13.4",)),
        (
            "location",
            {"latitude": "1", "longitude": 2, "name": "A [place]", "address": "Road\n1"},
            "",
            ("location: 1, 2, A (place), Road 1",),
        ),
        (
            "contacts",
            CARDS,
            "",
            (
                "contact: Chandler B., WENUS, +1 555 0100, c@example.org",
                "contact: Monica G., 15550101",
                "contact: 15550102",
            ),
        ),
    ],
)
def test_words_and_what_comes_beside_them(
    kind: str, content: object, text: str, notes: tuple[str, ...]
) -> None:
    one = read_message(kind, content)
    assert (one.text, one.notes, one.media) == (text, notes, None)


@pytest.mark.parametrize(
    ("kind", "content", "media", "text"),
    [
        ("image", {"mime_type": "image/jpeg"}, Media("77", "image", "image/jpeg"), ""),
        ("image", {"caption": "look"}, Media("77", "image"), "look"),
        (
            "video",
            {"mime_type": "video/mp4", "caption": "c"},
            Media("77", "video", "video/mp4"),
            "c",
        ),
        (
            "audio",
            {"mime_type": "audio/ogg; codecs=opus", "voice": True},
            Media("77", "voice", "audio/ogg"),
            "",
        ),
        ("audio", {"mime_type": "audio/mpeg"}, Media("77", "audio", "audio/mpeg"), ""),
        ("voice", {"mime_type": "audio/ogg"}, Media("77", "voice", "audio/ogg"), ""),
        (
            "document",
            {"mime_type": "application/pdf", "filename": "a[1].pdf", "caption": "c"},
            Media("77", "document", "application/pdf", "a(1).pdf"),
            "c",
        ),
        (
            "document",
            {"mime_type": "image/png", "filename": "a.png"},
            Media("77", "image", "image/png", "a.png"),
            "",
        ),
        ("sticker", {"mime_type": "image/webp"}, Media("77", "image", "image/webp"), ""),
    ],
)
def test_files(kind: str, content: Json, media: Media, text: str) -> None:
    one = read_message(kind, {"id": "77", **content})
    assert (one.media, one.text) == (media, text)


@pytest.mark.parametrize(
    ("interactive", "text", "button"),
    [
        ({"type": "button_reply", "button_reply": {"id": "b-1", "title": "Yes"}}, "Yes", "b-1"),
        ({"type": "list_reply", "list_reply": {"id": "b-2", "title": "Two"}}, "Two", "b-2"),
    ],
)
def test_a_button_says_what_stands_on_it(interactive: Json, text: str, button: str) -> None:
    (one,) = find_incoming(call(message("interactive", interactive)))
    assert (one.text, one.button) == (text, button)


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (
            "unsupported",
            {"errors": [{"code": 131051, "error_data": {"details": "Not supported."}}]},
            "unsupported, Not supported.",
        ),
        ("unsupported", {"unsupported": {"type": "poll_creation"}}, "poll creation"),
        ("unknown", {"errors": [{"title": "Unknown"}]}, "unknown, Unknown"),
        ("hologram", {"hologram": {"id": "1"}}, "hologram"),
        ("ephemeral", {}, "ephemeral"),
        ("interactive", {}, "interactive"),
        ("interactive", {"interactive": {"type": "product"}}, "product"),
        ("order", {"order": {"product_items": []}}, "order"),
        ("image", {"image": {"id": "../7"}}, "image"),
        ("location", {"location": {"latitude": "north"}}, "location"),
        ("text", {"text": 7}, "text"),
        ("", {}, "unknown"),
    ],
)
def test_what_cannot_be_read_is_said_to_have_come(kind: str, fields: Json, named: str) -> None:
    one = read_message(kind, **fields)
    assert one.notes == (f"a message of a kind that nanobot cannot read: {named}",)
    assert one.text == ""
