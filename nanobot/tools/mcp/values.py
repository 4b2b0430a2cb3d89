"""What an MCP server and a tool of one are, and how a connection to a server looks from inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from nanobot.errors import ToolError
from nanobot.tooling import ToolResult


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

    name: str
    description: str
    schema: str
    read_only: bool = False

    def parameters(self) -> dict[str, Any]:
        """The schema as a new object."""
        parameters: dict[str, Any] = json.loads(self.schema)
        return parameters


Arguments = Mapping[str, Any]


class Session(Protocol):
    """An open connection to a server."""

    async def cards(self) -> tuple[Card, ...]:
        """Its tools as they are now. Raises `McpError`."""
        ...

    async def call(self, tool: str, arguments: Arguments) -> ToolResult:
        """Call one. Raises `McpError`, `McpLost` where the connection ended."""
        ...


@dataclass(frozen=True, slots=True)
class Signals:
    """What a connection tells by itself: `lost`, with the reason, when the server is gone;
    `changed` when its tools may not be the same any more."""

    lost: Callable[[str], None]
    changed: Callable[[], None]


Connect = Callable[[McpServer, Signals], AbstractAsyncContextManager[Session]]
"""Opens a connection for as long as the context lasts, and ends the program with it. Entering
raises `NanobotError`; so may leaving."""
