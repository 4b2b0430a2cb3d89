"""Every kind of message: parsed, noted as one line in brackets, or ignored on purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import telegram

from tests.channels.telegram.update_kinds import (
    BERLIN,
    CLIP,
    FILE,
    FILES,
    GAME,
    IGNORED,
    NAMED,
    NOTES,
    POLL,
    SIZED,
    STICKER,
    WORDS,
)
from tests.channels.telegram.update_samples import (
    GROUP,
    PRIVATE,
    SENT,
    Raw,
    message,
    read,
    read_message,
)

SCHEMA = Path("../shared/data/telegram-bot-api-10.2.json")


def test_no_kind_that_the_library_knows_is_forgotten() -> None:
    fields = {name for name in telegram.Message.__slots__ if not name.startswith("_")}
    assert fields - {"from_user"} <= NAMED


@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema of the Bot API is not at hand")
def test_no_kind_of_the_schema_is_forgotten() -> None:
    items = json.loads(SCHEMA.read_text("utf-8"))["items"]
    types = (child for item in items for child in item["children"])
    fields = next(child["annotations"] for child in types if child["name"] == "Message")
    assert {field["name"] for field in fields if not field["required"]} == NAMED


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_understood_with_its_caption(kind: str) -> None:
    raw, media = FILES[kind]
    said = read_message(message(**{kind: raw}, caption="look"))
    assert (said.content, said.media) == ("look", (media,))


@pytest.mark.parametrize("kind", WORDS)
def test_words_are_the_content(kind: str) -> None:
    raw, content = WORDS[kind]
    said = read_message(message(**{kind: raw}))
    assert (said.content, said.notes) == (content, ())


@pytest.mark.parametrize("kind", NOTES)
def test_what_is_neither_words_nor_a_file_is_told_beside_them(kind: str) -> None:
    raw, note = NOTES[kind]
    said = read_message(message(**{kind: raw}))
    assert (said.content, said.notes) == ("", (note,))


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")  # the library's own
@pytest.mark.parametrize("kind", IGNORED)
def test_a_service_message_is_ignored(kind: str) -> None:
    assert read(message(GROUP, **{kind: IGNORED[kind]})) is None


def test_a_kind_of_the_future_is_noted_and_not_lost() -> None:
    smell = {"scent": "tea"}
    said = read_message(message(smell_o_gram=smell))
    assert (said.content, said.notes) == ("", ("unsupported message: smell o gram",))
    beside = read_message(message(text="hi", smell_o_gram=smell))
    assert (beside.content, beside.notes) == ("hi", ())
    empty = read_message(message(rich_message={"blocks": []}))
    assert empty.notes == ("unsupported message: rich message",)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"animation": CLIP, "document": FILE}, "video"),
        ({"live_photo": CLIP, "photo": [SIZED]}, "image"),
        ({"document": FILE | {"mime_type": "image/png"}}, "image"),
        ({"document": FILE | {"mime_type": "image/svg+xml"}}, "document"),
        ({"document": FILE}, "document"),
        ({"sticker": STICKER}, "image"),
    ],
)
def test_a_file_has_one_kind_even_where_telegram_names_two(fields: Raw, kind: str) -> None:
    assert [item.kind for item in read_message(message(**fields)).media] == [kind]


def test_a_place_with_a_name_is_told_once() -> None:
    venue = {"location": BERLIN, "title": "Café", "address": ""}
    assert read_message(message(venue=venue, location=BERLIN)).notes == (
        "venue: Café, 52.52, 13.4",
    )


@pytest.mark.parametrize("moving", [{"is_animated": True}, {"is_video": True}])
def test_a_moving_sticker_is_only_named(moving: Raw) -> None:
    said = read_message(message(sticker=STICKER | moving | {"emoji": None}))
    assert (said.notes, said.media) == (("sticker",), ())


def test_a_live_location_is_told_once_and_its_moves_are_ignored() -> None:
    moving = BERLIN | {"live_period": 900}
    assert read_message(message(location=moving)).notes == ("live location: 52.52, 13.4",)
    for location in (moving, BERLIN):
        raw = message(location=location, edit_date=SENT + 9)
        assert read(raw, "edited_message") is None


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        (
            {"contact": {"phone_number": "1", "first_name": "A]\n[forwarded from x"}},
            "contact: A) (forwarded from x, 1",
        ),
        ({"poll": POLL | {"question": "[a]\nb?"}}, "poll: (a) b? (yes / no)"),
        ({"game": GAME | {"title": "]["}}, "game: )("),
        (
            {"venue": {"location": BERLIN, "title": "]\u2028x", "address": "[y"}},
            "venue: ) x, (y, 52.52, 13.4",
        ),
    ],
)
def test_what_people_name_things_never_looks_like_a_mark(fields: Raw, note: str) -> None:
    assert read_message(message(**fields)).notes == (note,)


def test_the_words_of_a_rich_message_are_all_there() -> None:
    blocks = [
        {"type": "heading", "text": "Plan", "size": 1},
        {
            "type": "paragraph",
            "text": [
                {"type": "url", "text": "here", "url": "https://a.example/"},
                {"type": "custom_emoji", "alternative_text": "🙂"},
                {"type": "mathematical_expression", "expression": "x^2"},
            ],
        },
        {
            "type": "list",
            "items": [{"label": "1.", "blocks": [{"type": "paragraph", "text": "one"}]}],
        },
        {"type": "table", "cells": [[{"text": "a"}, {"text": {"type": "code", "text": "b"}}, {}]]},
        {"type": "details", "summary": "more", "blocks": [{"type": "pre", "text": "code"}]},
        {"type": "blockquote", "blocks": [{"type": "paragraph", "text": "said"}], "credit": "Bob"},
        {"type": "photo", "photo": [SIZED], "caption": {"text": "a tree", "credit": "Ann"}},
        {"type": "thinking", "text": "Thinking…"},
        {"type": "divider"},
        "not a block",
    ]
    said = read_message(message(rich_message={"blocks": blocks}))
    assert said.notes == ("link: here, https://a.example/",)
    assert said.content.split("\n") == [
        "Plan", "here🙂x^2", "1. one", "a | b | ", "more", "code",
        "said", "Bob", "[photo]", "a tree", "Ann",
    ]  # fmt: skip


def test_a_rich_message_nested_without_end_is_read_as_far_as_a_person_would() -> None:
    block: Raw = {"type": "paragraph", "text": "deep"}
    for _ in range(100):
        block = {"type": "details", "summary": "in", "blocks": [block]}
    content = read_message(message(rich_message={"blocks": [block]})).content
    assert set(content.split("\n")) == {"in"}


def test_an_album_is_its_items_with_one_id() -> None:
    album = [read_message(message(message_id=n, photo=[SIZED], media_group_id="g")) for n in (1, 2)]
    assert [item.delivery.group_id for item in album] == ["g", "g"]
    assert [item.event_id for item in album] == ["1", "2"]
    assert read(message(PRIVATE, photo=[])) is None
