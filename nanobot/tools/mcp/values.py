"""What an MCP server and a tool of one are, what is offered of them, and under which name. Pure.

Invariant: the name of a tool (`<server>__<tool>`) is one that every model's API takes, no two tools
share one, and a tool keeps its name whatever else is offered unless another one has a better right
to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field

from nanobot.errors import ToolError


class McpError(ToolError):
    """A server cannot be used, or did not do what it was asked. The text is for the model."""


class McpLost(McpError):
    """The connection ended in the middle of something: whether it was done is not known."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """One of the owner's servers: a program (`command`, `args`) or an address (`url`).

    A program sees `paths` (absolute, read-only), may write to `writable`, and gets `env` and
    nothing else of the environment; `network` lets it out through the gateway. `headers` go with
    each request to `url`. `tools` names the only ones that are offered, all where it is empty.
    `trust_read_only` believes the server where it says that a tool changes nothing.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    paths: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    network: bool = False
    sandbox: bool = True
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: tuple[str, ...] = ()
    people: Literal["owner", "everyone"] = "owner"
    trust_read_only: bool = False
    timeout_seconds: float = 60.0

    @property
    def identity(self) -> str:
        """Tells one program or address from another, whatever they are called. No secret can be
        read from it."""
        what = json.dumps([self.command, *self.args] if self.command else [self.url])
        return hashlib.sha256(what.encode("utf-8", "backslashreplace")).hexdigest()

    @property
    def shown(self) -> str:
        """The command or the address, for the owner."""
        return " ".join((self.command, *self.args)) if self.command else self.url

    @property
    def named_address(self) -> str:
        """`host:port` where the URL names this machine or an address and no public name: that is
        the owner's word that just this may be reached. Empty otherwise."""
        url = urlsplit(self.url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        if ":" in host:
            return f"[{host}]:{port}"
        numbers = host.replace(".", "").isdigit()
        return f"{host}:{port}" if numbers or host == "localhost" else ""


@dataclass(frozen=True, slots=True)
class Card:
    """A tool as the model gets to see it: cleaned and bounded. `schema` is a JSON object, written
    so that equal ones are equal texts. `read_only` is what the server says about it."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    name: str
    description: str
    schema: Annotated[str, Field(alias="parameters")]
    read_only: bool = False

    def parameters(self) -> dict[str, Any]:
        """The schema as a new object. Raises `ValueError` where it is none."""
        parameters = json.loads(self.schema)
        if not isinstance(parameters, dict):
            raise ValueError("a schema is an object")  # noqa: TRY004 - as `json.loads` raises
        return parameters


LONGEST = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def offered_names(tools: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """The name for each (server, tool).

    Those whose own names need no change come first, so that nobody takes theirs.
    """
    plain = {key: _plain(*key) for key in tools}
    order = sorted(plain, key=lambda key: (plain[key] != "__".join(key), key))
    taken: dict[str, tuple[str, str]] = {}
    for key in order:
        name = plain[key]
        taken.setdefault(name, key)
        if taken[name] != key:
            taken[_marked(name, key)] = key
    return {key: name for name, key in taken.items()}


def _plain(server: str, tool: str) -> str:
    name = _UNFIT.sub("_", f"{server}__{tool}")
    return name if len(name) <= LONGEST else _marked(name, (server, tool))


def _marked(name: str, key: tuple[str, str]) -> str:
    mark = hashlib.sha256("\0".join(key).encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{name[: LONGEST - len(mark) - 1]}_{mark}"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server listed last, and what was ever accepted of it. `identity` is the server's.

    Whatever is new or different waits, the first listing as well: a description speaks to the model
    in every conversation.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    identity: str
    listed: tuple[Card, ...] = ()
    accepted: tuple[Card, ...] = ()

    def seen(self, cards: Iterable[Card]) -> Listing:
        """After the server has listed its tools again."""
        return replace(self, listed=tuple(cards))

    def accept(self) -> Listing:
        """After the owner has accepted what waits."""
        cards = {card.name: card for card in (*self.accepted, *self.listed)}
        return replace(self, accepted=tuple(cards.values()))

    @property
    def offered(self) -> tuple[Card, ...]:
        """The tools that may be called: those that are as the owner accepted them."""
        return tuple(card for card in self.listed if card in self.accepted)

    @property
    def waiting(self) -> tuple[Card, ...]:
        """The tools that are new or not what they were."""
        return tuple(card for card in self.listed if card not in self.accepted)

    @property
    def digest(self) -> str:
        """Stands for exactly what waits; empty where nothing does."""
        waiting = [astuple(card) for card in self.waiting]
        return hashlib.sha256(json.dumps(waiting).encode()).hexdigest()[:16] if waiting else ""
