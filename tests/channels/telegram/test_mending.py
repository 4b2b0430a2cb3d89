"""A malformed part of a message costs itself alone: its text is taken in, and nobody else's words
become the sender's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
import telegram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot_telegram.mending import KINDS, WHO, mend
from nanobot_telegram.updates import ParsedUpdate, parse_update
from tests.channels.odd import ODD
from tests.channels.telegram.schema import Schema
from tests.channels.telegram.support import RecordingHost, running
from tests.channels.telegram.update_samples import (
    BOB,
    BOT,
    ME,
    PRIVATE,
    SENT,
    Raw,
    entity,
    message,
)
from tests.doubles.telegram import FakeTelegram

SCHEMA = Path("../shared/data/telegram-bot-api-10.2.json")
PHOTO: Raw = {"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 5}
FULL: Raw = message(
    PRIVATE,
    text="hello you",
    entities=[entity("bold", 0, 5)],
    photo=[PHOTO],
    reply_to_message=message(PRIVATE, text="before", **{"from": BOT}),
    quote={"text": "before", "position": 0},
    media_group_id="album",
    link_preview_options={"is_disabled": True},
    location={"latitude": 1.5, "longitude": 2.5},
    effect_id="1",
)
KEPT = frozenset({"message_id", "chat", "from", "text", "date"})
UNREADABLE = frozenset({"from", "chat", "message_id"})


def read(update: Mapping[str, object]) -> ParsedUpdate | None:
    return parse_update(telegram.Update.de_json(json.loads(json.dumps(update))), ME)


def mended(update: Raw) -> ParsedUpdate | None:
    """What is read of an update, whole or mended."""
    try:
        return read(update)
    except Exception:  # noqa: BLE001 - as the channel does
        found = mend(update, read, SENT)
        return found[0] if found else None


@pytest.mark.parametrize("part", sorted(FULL.keys() - KEPT))
def test_whatever_a_part_holds_the_text_stays(part: str) -> None:
    for odd in ODD:
        parsed = mended({"update_id": 1, "message": {**FULL, part: odd}})
        assert parsed is not None, (part, odd)
        assert parsed.message is not None
        assert parsed.message.content == "hello you", (part, odd)
        assert parsed.message.sender_id == str(PRIVATE["id"])


def test_of_a_list_only_the_malformed_items_go() -> None:
    link = entity("text_link", 0, 5, url="https://a.example")
    said = message(PRIVATE, text="hello you", entities=[{"type": "bold"}, link, 7])
    parsed = mended({"update_id": 1, "message": said})
    assert parsed is not None
    assert parsed.message is not None
    assert parsed.message.content == "hello you"
    assert parsed.message.notes[0] == "link: hello, https://a.example"


@pytest.mark.parametrize("field", ["forward_origin", "via_bot"])
def test_what_others_wrote_stays_theirs_however_malformed_it_is(field: str) -> None:
    origin = {"type": "user", "date": SENT, "sender_user": BOB}
    for odd in (*(one for one in ODD if one is not None), {**origin, "sender_user": {}}):
        for text in ({"entities": [7]}, {}):
            parsed = mended({"update_id": 1, "message": {**FULL, **text, field: odd}})
            if parsed is not None and parsed.message is not None:
                assert parsed.message.forwarded_from, (field, odd)


@pytest.mark.parametrize("field", sorted(UNREADABLE))
def test_a_message_of_nobody_is_not_mended(field: str) -> None:
    odd: object
    for odd in (None, "x", [], {}, {"id": "x"}):
        parsed = mended({"update_id": 1, "message": {**FULL, field: odd}})
        said = parsed.message if parsed else None
        assert said is None or said.sender_id == str(PRIVATE["id"])


async def test_the_rest_is_answered_and_a_note_names_what_was_lost(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    odd = message(PRIVATE, text="odd", media_group_id=5, entities=[7], message_id=900)
    telegram.push({"message": odd})
    async with running(telegram, host):
        assert await host.texts(1) == ["odd"]
        await telegram.wait_for(lambda: telegram.pending == 0)
    assert host.stored[0].notes == (
        "a part of the message that nanobot could not read: entities, media_group_id",
    )
    assert "media_group_id" in (host.state_folder / "quarantine.jsonl").read_text()


@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema of the Bot API is not at hand")
@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")  # of its own making
def test_any_field_of_the_schema_may_be_malformed() -> None:
    schema = Schema(SCHEMA)
    mended_at_all = []

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.integers(0, 2**32), st.sampled_from(KINDS))
    def holds(seed: int, kind: str) -> None:
        rnd = Random(seed)
        raw = schema.make("Message", rnd, 3)
        assert isinstance(raw, dict)
        whole: Raw = {**raw, **{key: FULL[key] for key in KEPT}}
        for key in ("caption", "migrate_to_chat_id", "migrate_from_chat_id", "sender_chat"):
            whole.pop(key, None)
        for key in ("business_connection_id", "guest_query_id", "is_topic_message"):
            whole.pop(key, None)
        optional = sorted(whole.keys() - KEPT - WHO)
        for part in rnd.sample(optional, min(3, len(optional))):
            update: Raw = {"update_id": 1, kind: {**whole, part: rnd.choice(ODD)}}
            try:
                read(update)
            except Exception:  # noqa: BLE001 - as the channel does
                parsed = mended(update)
                assert parsed is not None, part
                assert parsed.message is not None, part
                assert "hello you" in parsed.message.content
                mended_at_all.append(part)

    holds()
    assert len(set(mended_at_all)) > 5
