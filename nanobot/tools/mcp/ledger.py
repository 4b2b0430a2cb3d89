"""A server's descriptions of its tools, as the model may see them, and where they are kept.

Invariant: a card is bounded whatever the server sent, nothing in it is hidden from the person who
judges it, and equal cards mean that the model sees the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nanobot.security.documents import StateDocument, UnfitDocument
from nanobot.text import visible
from nanobot.tools.mcp.values import Card, Listing

MOST_KEPT = 256
"""Tools of one server that are known at all."""

MOST_TOOLS, MOST_TEXT = 64, 100_000
"""Tools of one server that are offered, and the characters of their cards: prompts carry them."""

MOST_DESCRIPTION = 1_500
MOST_SCHEMA = 8_000
"""Characters. A tool whose schema is longer takes any arguments, and its server judges them."""

_MOST_NAME = 128
_ANYTHING = '{"properties":{},"type":"object"}'
# What APIs refuse at the top of a schema, or what says nothing to a model.
_NOT_AT_THE_TOP = frozenset({"$schema", "$id", "anyOf", "oneOf", "allOf", "not", "enum", "title"})


def card(name: str, description: str, schema: Mapping[str, Any], *, read_only: bool) -> Card:
    """The card of a tool that a server has described so."""
    text = visible(description).strip()
    if len(text) > MOST_DESCRIPTION:
        text = f"{text[: MOST_DESCRIPTION - 1]}…"
    return Card(name, text, _schema(schema), read_only)


def usable(cards: Iterable[Card]) -> tuple[Card, ...]:
    """One card of each name, in order of their names."""
    found: dict[str, Card] = {}
    for one in cards:
        if one.name.isprintable() and 0 < len(one.name) <= _MOST_NAME:
            found.setdefault(one.name, one)
    return tuple(found[name] for name in sorted(found)[:MOST_KEPT])


def bearable(cards: Iterable[Card], wanted: Iterable[str] = ()) -> tuple[Card, ...]:
    """Those of the `wanted` names (all where there are none), as many as a prompt can bear."""
    names, left = frozenset(wanted), MOST_TEXT
    chosen: list[Card] = []
    for one in cards:
        size = len(one.description) + len(one.schema)
        if (not names or one.name in names) and len(chosen) < MOST_TOOLS and size <= left:
            chosen.append(one)
            left -= size
    return tuple(chosen)


def _schema(given: Mapping[str, Any]) -> str:
    top = {key: value for key, value in given.items() if key not in _NOT_AT_THE_TOP}
    top["type"] = "object"
    if not isinstance(top.get("properties"), dict):
        top["properties"] = {}
    try:
        text = json.dumps(_clean(top), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (RecursionError, ValueError):
        return _ANYTHING
    return text if len(text) <= MOST_SCHEMA else _ANYTHING


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1] = 1
    servers: dict[str, Listing]


class Ledger(StateDocument[Mapping[str, Listing]]):
    """`state/mcp.json`: what servers listed and what was accepted, by server. One at a time, by the
    owner of the home. A file that cannot be read in every detail is not used (see
    `StateDocument`)."""

    def __init__(self, path: Path) -> None:
        advice = "What MCP servers offer has to be accepted again."
        super().__init__(path, _decoded, _encoded, {}, advice)


def _encoded(listings: Mapping[str, Listing]) -> bytes:
    file = _File(servers=dict(listings))
    return file.model_dump_json(indent=1, by_alias=True).encode() + b"\n"


def _decoded(content: bytes) -> Mapping[str, Listing]:
    try:
        servers = _File.model_validate_json(content).servers
        for listing in servers.values():
            for card in (*listing.listed, *listing.accepted):
                card.parameters()
    except ValueError as error:
        raise UnfitDocument("it is not what this version writes") from error
    return servers
