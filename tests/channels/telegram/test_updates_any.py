"""Anything from the Bot API is parsed or ignored, and no content can imitate a mark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest
import telegram
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.bus.events import InboundMessage
from nanobot_telegram.updates import ParsedUpdate, from_press, parse_update
from tests.channels.telegram.schema import Schema
from tests.channels.telegram.update_samples import (
    BOB,
    BOT,
    FORUM,
    GROUP,
    ME,
    PRIVATE,
    SENT,
    Raw,
    entity,
    message,
    read,
)

SCHEMA = Path("../shared/data/telegram-bot-api-10.2.json")
KINDS = ("message", "edited_message", "callback_query", "my_chat_member")

texts = st.text(st.sampled_from("a@/[] \n_\U0001f642\ud83dnano_test_bot\u202e"), max_size=30)
marks = st.builds(
    lambda kind, offset, length: entity(kind, offset, length, url="https://a.example", user=BOT),
    st.sampled_from(("mention", "text_mention", "text_link", "bot_command", "bold", "unheard")),
    st.integers(-2, 40),
    st.integers(-2, 40),
)


def check_invariants(understood: ParsedUpdate | None) -> None:
    """Check the invariants of every parsed update."""
    if understood is None:
        return
    said = understood.message
    if understood.press is not None:
        said = from_press(understood, understood.press, "value", telegram.constants.ZERO_DATE)
    if said is None:
        assert understood.moved or understood.gone is not None
        return
    assert (said.channel, said.chat_id) == ("telegram", understood.chat.id)
    assert said.sender_id == understood.sender.id
    assert said.content or said.media or said.notes
    assert said.event_id
    assert said.timestamp.tzinfo is not None
    assert understood.addressed or said.is_group
    names_are_harmless(said)


def names_are_harmless(said: InboundMessage) -> None:
    files = [item.name for item in said.media]
    quoted = said.reply_to.sender if said.reply_to else ""
    for name in (said.sender_name, said.forwarded_from, quoted, *files):
        assert not re.search(r"[\[\]\n\u2028\ud800-\udfff]", name)


@given(
    texts,
    texts,
    st.lists(marks, max_size=4),
    st.sampled_from((PRIVATE, GROUP, FORUM)),
    st.sampled_from(KINDS[:2]),
)
def test_any_words_and_names_are_understood(
    text: str, name: str, entities: list[Raw], chat: Raw, kind: str
) -> None:
    earlier = message(chat, **{"text": text, "from": BOB | {"first_name": name}})
    fields: Raw = {
        "text": text,
        "entities": entities,
        "from": BOB | {"first_name": name},
        "chat": chat | {"title": name},
        "reply_to_message": earlier,
        "edit_date": SENT,
    }
    check_invariants(read(message(**fields), kind))
    origin = {"type": "hidden_user", "date": SENT, "sender_user_name": name}
    understood = read(message(**fields, forward_origin=origin), kind)
    check_invariants(understood)
    assert not (understood and understood.message) or understood.message.forwarded_from


@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema of the Bot API is not at hand")
@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")  # the library's own
def test_any_update_of_the_schema_is_understood_or_none() -> None:
    schema = Schema(SCHEMA)
    kinds = ["Message", "CallbackQuery", "ChatMemberUpdated"]
    seen = set()

    @settings(max_examples=200)
    @given(st.integers(0, 2**32), st.sampled_from(KINDS))
    def holds(seed: int, kind: str) -> None:
        rnd = Random(seed)
        name = kinds[max(0, KINDS.index(kind) - 1)]
        raw = schema.make(name, rnd, 4)
        update = telegram.Update.de_json(json.loads(json.dumps({"update_id": 1, kind: raw})))
        understood = parse_update(update, ME)
        seen.add(understood is None)
        check_invariants(understood)

    holds()
    assert seen == {True, False}
