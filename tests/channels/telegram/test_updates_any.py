"""Whatever the Bot API may send is understood or None, and nothing in it passes for a mark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
import telegram
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.bus.events import InboundMessage
from nanobot_telegram.updates import ParsedUpdate, from_press, parse_update
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


def checked(understood: ParsedUpdate | None) -> None:
    """What holds for everything that is understood."""
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
    checked(read(message(**fields), kind))
    origin = {"type": "hidden_user", "date": SENT, "sender_user_name": name}
    understood = read(message(**fields, forward_origin=origin), kind)
    checked(understood)
    assert not (understood and understood.message) or understood.message.forwarded_from


class Schema:
    """Makes objects of the Bot API at random, as its schema says."""

    def __init__(self, path: Path) -> None:
        items = json.loads(path.read_text("utf-8"))["items"]
        self._types = {child["name"]: child for item in items for child in item["children"]}

    def make(self, name: str, rnd: Random, depth: int) -> object:
        """An object of a type, with optional fields down to `depth`."""
        if name.startswith("Array of "):
            inner = name.removeprefix("Array of ")
            return [self.make(inner, rnd, depth) for _ in range(rnd.randint(0, 2))]
        if name in _SIMPLE:
            return _SIMPLE[name](rnd)
        found = self._types[name]
        kinds = [line[3:] for line in found["description"].split("\n") if line.startswith(" - ")]
        if not found["annotations"] and kinds:
            return self.make(rnd.choice(kinds), rnd, depth)
        return self._object(found["annotations"], rnd, depth)

    def _object(self, fields: Sequence[Mapping[str, str]], rnd: Random, depth: int) -> Raw:
        optional = [field for field in fields if not field["required"]]
        chosen = rnd.sample(optional, rnd.randint(0, min(3, len(optional)))) if depth else []
        wanted = [field for field in fields if field["required"]] + chosen
        return {field["name"]: self._value(field, rnd, depth - bool(depth)) for field in wanted}

    def _value(self, field: Mapping[str, str], rnd: Random, depth: int) -> object:
        said = re.search(r"(?:always|must be) ['“\"]?(\w+)", field["description"])
        if field["type"] == "String" and field["name"] in {"type", "status", "source"}:
            options = re.findall(r"'(\w+)'", field["description"])
            return said[1] if said else rnd.choice(options or ["unheard"])
        if field["type"] == "Integer" and "id" in field["name"].split("_"):
            return rnd.choice((1, ME.id, -1001, rnd.randint(-(2**52), 2**52)))
        return self.make(field["type"], rnd, depth)


_SIMPLE: dict[str, Callable[[Random], object]] = {
    "String": lambda rnd: "".join(rnd.choices("a@[]/ \n\U0001f642", k=rnd.randint(0, 9))),
    "Integer": lambda rnd: rnd.choice((0, 1, 5, rnd.randint(1, 2**31 - 1))),
    "Float": lambda rnd: rnd.uniform(-90, 90),
    "Boolean": lambda rnd: rnd.random() < 0.5,
    "True": lambda _: True,
    "RichText": lambda rnd: rnd.choice(("a", ["a", {"type": "bold", "text": "b"}], [])),
    "InputFile": lambda _: "f",
}


@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema of the Bot API is not at hand")
@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")  # of its own making
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
        checked(understood)

    holds()
    assert seen == {True, False}
