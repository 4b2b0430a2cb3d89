"""`state/mcp.json`: what servers listed, and what of it was accepted.

What always holds: a file that cannot be read in every detail is not used. It is kept under another
name, never changed and never written over; the servers then list their tools anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from loguru import logger
from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot.errors import NanobotError, StorageError, ToolError
from nanobot.security.paths import Root
from nanobot.tools.mcp.listings import Listing
from nanobot.tools.mcp.values import Card

VERSION = 1
_LIMIT = 50_000_000


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


class Ledger:
    """The file at `path`; it need not exist. Blocks. One at a time, by the owner of the home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = Root(path.parent, name="home").place(path.name)
        self._stuck = False
        self.trouble = ""
        """What was wrong with it when it was read; empty where nothing was."""

    def load(self) -> dict[str, Listing]:
        """What it holds, by server; nothing where there is no file or none that can be used."""
        try:
            content = self._place.read_bytes(_LIMIT)
            return {} if content is None else _decoded(content)
        except NanobotError as error:
            self._set_aside(f"it cannot be read ({error})")
        except (ValidationError, ValueError, RecursionError):
            self._set_aside("it is not what this version writes")
        return {}

    def save(self, listings: Mapping[str, Listing]) -> None:
        """Put them in place, durably and as a whole. Raises `StorageError`."""
        if self._stuck and os.path.lexists(self._path):
            raise StorageError(
                self._path, "what stands there is not ours", hint="Move it away and start again."
            )
        servers = {name: _Server.of(listing) for name, listing in listings.items()}
        text = _File(version=VERSION, servers=servers).model_dump_json(indent=1)
        try:
            self._place.root.create()
            self._place.write_bytes(text.encode() + b"\n")
        except ToolError as error:  # somebody put something else there
            raise StorageError(self._path, str(error)) from error

    def _set_aside(self, reason: str) -> None:
        names = (self._path.with_name(f"{self._path.name}.broken-{n}") for n in count(1))
        aside = next(name for name in names if not os.path.lexists(name))
        try:
            kept = f"It is kept as {self._path.rename(aside).name}"
        except OSError as error:
            self._stuck, kept = True, f"It could not be moved away ({error.strerror})"
        self.trouble = (
            f"{self._path} is not used: {reason}. {kept}; what MCP servers offer has to be "
            "accepted again."
        )
        logger.error("{}", self.trouble)


def _decoded(content: bytes) -> dict[str, Listing]:
    file = _File.model_validate_json(content)
    if file.version != VERSION:
        raise ValueError(file.version)
    return {name: server.listing() for name, server in file.servers.items()}
