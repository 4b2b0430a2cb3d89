"""A server's description of a tool, as the model may see it. Pure.

What always holds: a card is bounded whatever the server sent, nothing in it is hidden from the
person who judges it, and equal cards mean that the model sees the same.

`state/mcp.json`: what servers listed, and what of it was accepted.

What always holds: a file that cannot be read in every detail is not used. It is kept under another
name, never changed and never written over; the servers then list their tools anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot.security.documents import StateDocument, UnfitDocument
from nanobot.security.names import visible
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


VERSION = 1


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    description: str
    parameters: str
    read_only: bool

    @classmethod
    def of(cls, card: Card) -> _Entry:
        return cls(
            name=card.name,
            description=card.description,
            parameters=card.schema,
            read_only=card.read_only,
        )

    def card(self) -> Card:
        if not isinstance(json.loads(self.parameters), dict):
            raise ValueError("parameters are not an object")  # noqa: TRY004 - what pydantic raises
        return Card(self.name, self.description, self.parameters, self.read_only)


class _Server(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    identity: str
    listed: list[_Entry]
    accepted: list[_Entry]

    @classmethod
    def of(cls, listing: Listing) -> _Server:
        return cls(
            identity=listing.identity,
            listed=[_Entry.of(card) for card in listing.listed],
            accepted=[_Entry.of(card) for card in listing.accepted.values()],
        )

    def listing(self) -> Listing:
        listed = tuple(entry.card() for entry in self.listed)
        return Listing(self.identity, listed, {one.name: one.card() for one in self.accepted})


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: int
    servers: dict[str, _Server]


class Ledger(StateDocument[Mapping[str, Listing]]):
    """The file at `path`: what servers listed and what was accepted, by server. One at a time, by
    the owner of the home."""

    def __init__(self, path: Path) -> None:
        advice = "What MCP servers offer has to be accepted again."
        super().__init__(path, _decoded, _encoded, {}, advice)


def _encoded(listings: Mapping[str, Listing]) -> bytes:
    servers = {name: _Server.of(listing) for name, listing in listings.items()}
    return _File(version=VERSION, servers=servers).model_dump_json(indent=1).encode() + b"\n"


def _decoded(content: bytes) -> Mapping[str, Listing]:
    try:
        file = _File.model_validate_json(content)
        if file.version != VERSION:
            raise UnfitDocument(f"it is of version {file.version}")
        return {name: server.listing() for name, server in file.servers.items()}
    except (ValidationError, ValueError) as error:
        raise UnfitDocument("it is not what this version writes") from error
