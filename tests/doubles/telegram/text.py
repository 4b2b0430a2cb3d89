"""The Bot API's rules for texts: lengths and entities, in UTF-16 code units.

The real server silently repairs or drops many wrong entities, and people then see wrong text. So
here each of them is an error. Entities may be adjacent or nested. Styles (bold and so on) combine
with everything except code. Quotations do not contain quotations. Links, code and similar entities
do not contain one another."""

from __future__ import annotations

from collections.abc import Sequence

from tests.doubles.telegram.values import Json

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
ENTITY_LIMIT = 100

_STYLES = {"bold", "italic", "underline", "strikethrough", "spoiler"}
_CODE = {"pre", "code"}
_QUOTES = {"blockquote", "expandable_blockquote"}
_FOUND = {
    "mention",
    "hashtag",
    "cashtag",
    "bot_command",
    "url",
    "email",
    "phone_number",
}
_OTHERS = {"text_link", "text_mention", "custom_emoji", "date_time"}
_KINDS = _STYLES | _CODE | _QUOTES | _FOUND | _OTHERS
_NEEDS = {"text_link": "url", "text_mention": "user", "custom_emoji": "custom_emoji_id"}


def units(text: str) -> int:
    """Return the length of `text` in UTF-16 code units."""
    return len(text) + sum(character > "\uffff" for character in text)


def text_problem(text: str, entities: Sequence[Json], limit: int, too_long: str) -> str:
    """Return the problem of a text and its entities, or ""."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "strings must be encoded in UTF-8"
    if units(text) > limit:
        return too_long
    return entities_problem(text, entities)


def entities_problem(text: str, entities: Sequence[Json]) -> str:
    """Return the problem of the entities of `text`, or ""."""
    if len(entities) > ENTITY_LIMIT:
        return f"there are {len(entities)} entities, more than {ENTITY_LIMIT}"
    edges = _edges(text)
    for entity in entities:
        if problem := _single(entity, edges):
            return f"entity {_describe(entity)} {problem}"
    return _nesting(entities)


def _edges(text: str) -> frozenset[int]:
    """Return the valid positions of an entity's ends: never between the halves of a surrogate
    pair."""
    edges, place = {0}, 0
    for character in text:
        place += 2 if character > "\uffff" else 1
        edges.add(place)
    return frozenset(edges)


def _single(entity: Json, edges: frozenset[int]) -> str:
    kind = str(entity["type"])
    start, end = _range(entity)
    if kind not in _KINDS:
        return "has an unknown type"
    if start < 0 or end > max(edges):
        return "is not within the text"
    if end <= start:
        return "is empty"
    if start not in edges or end not in edges:
        return "cuts a character in two"
    if (needed := _NEEDS.get(kind)) and not entity.get(needed):
        return f"has no {needed}"
    return ""


def _nesting(entities: Sequence[Json]) -> str:
    """Check each entity against the open ones at its beginning, the largest first."""
    ordered = sorted(entities, key=lambda one: (_range(one)[0], -_range(one)[1]))
    open_ones: list[Json] = []
    for entity in ordered:
        start, end = _range(entity)
        open_ones = [one for one in open_ones if _range(one)[1] > start]
        for outer in open_ones:
            if end > _range(outer)[1]:
                return f"entities {_describe(outer)} and {_describe(entity)} overlap"
            if not _may_nest(str(outer["type"]), str(entity["type"])):
                return f"entity {_describe(entity)} may not be within {_describe(outer)}"
        open_ones.append(entity)
    return ""


def _may_nest(outer: str, inner: str) -> bool:
    if outer in _QUOTES or inner in _QUOTES:
        return not (outer in _QUOTES and inner in _QUOTES) and outer not in _CODE
    if _CODE & {outer, inner}:
        return False
    return outer in _STYLES or inner in _STYLES


def _range(entity: Json) -> tuple[int, int]:
    offset, length = entity["offset"], entity["length"]
    assert isinstance(offset, int)
    assert isinstance(length, int)
    return offset, offset + length


def _describe(entity: Json) -> str:
    return f"{entity['type']} at {entity['offset']}+{entity['length']}"
