"""MCP servers, their tools, the offered ones, and the document that stores them.

Invariant: every model's API accepts the name of a tool (`<server>__<tool>`). Descriptions are
limited, hide nothing from the person who reviews them, and equal descriptions mean that the model
sees the same."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from nanobot.bus.state import Document, InvalidDocument, StateStore
from nanobot.errors import ToolError
from nanobot.programs import find
from nanobot.security.sandbox import PATH
from nanobot.text import escape_invisible


class McpError(ToolError):
    """A server is unusable or did not do the request. The text is for the model."""

    for_operator = True


class McpRefused(McpError):
    """The server returned an error that the model can act on."""

    for_operator = False


class McpLost(McpError):
    """The connection ended during a call, so its effect is unknown."""


MOST_BYTES = 256_000_000
"""Of a program and its files."""


class McpServer(Struct, frozen=True):
    """A configured server: a program (`command`, `args`) or an address (`url`).

    A program sees `paths` (absolute, read-only), may write to `writable`, and gets only the
    variables in `env`. `network` gives it access through the gateway. `headers` are sent with each
    request to `url`. Only the tools in `tools` are offered, or all if it is empty.
    `trust_read_only` accepts the server's statement that a tool changes nothing."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    paths: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    network: bool = False
    sandbox: bool = True
    url: str = ""
    headers: Mapping[str, str] = {}
    tools: tuple[str, ...] = ()
    people: Literal["owner", "everyone"] = "owner"
    trust_read_only: bool = False
    timeout_seconds: float = 60.0

    def __repr__(self) -> str:
        """Omit `env` and `headers`, which hold secrets."""
        return f"McpServer({self.name!r}, {self.location!r})"

    @property
    def identity(self) -> str:
        """Digest of the program or address, independent of its name. Reveals no secret."""
        what = json.dumps([self.command, *self.args] if self.command else [self.url])
        return hashlib.sha256(what.encode("utf-8", "backslashreplace")).hexdigest()

    @property
    def location(self) -> str:
        return " ".join((self.command, *self.args)) if self.command else self.url

    def program(self, home: Path) -> str:
        """Return the file of `command` when run in `home`, or "" if there is none."""
        inherited = PATH if self.sandbox else os.environ.get("PATH", PATH)
        command = str((home / self.command).absolute()) if "/" in self.command else self.command
        return find(command, self.env.get("PATH", inherited))

    def program_digest(self, home: Path, agents: Sequence[Path]) -> str:
        """Return a digest of the program, to which a standing approval is bound, or "" if it can't
        be pinned. It runs in the folder `home`. Blocks.

        The digest changes with the program file and each file in the arguments. Files in the
        agent's folders (`agents`) can't be bound, because a module next to a script decides as much
        as the script."""
        if self.url:
            return self.identity
        below = tuple(f"{os.path.realpath(one)}/" for one in agents)
        try:
            state = [self.identity, *self._hash_files(home, below)]
        except (OSError, ValueError):
            return ""
        return hashlib.sha256(json.dumps(state).encode("utf-8", "backslashreplace")).hexdigest()

    def _hash_files(self, home: Path, agents: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield each file that decides what runs, with its digest. Raise `ValueError` if there is
        no program, it is too large, or the agent could change it."""
        program, given = self.program(home), find_existing(home, self.args)
        searched = find_existing(home, ":".join(self.env.values()).split(":"))
        used = (program, *given, *searched, *map(str, self.paths))
        if not program or any(f"{os.path.realpath(one)}/".startswith(agents) for one in used):
            raise ValueError("the program's files can't be identified")
        files = [one for one in map(Path, (program, *given)) if one.is_file()]
        if sum(one.stat().st_size for one in files) > MOST_BYTES:
            raise ValueError("the program is too large")
        for path in files:
            with path.open("rb") as file:
                yield os.path.realpath(path), hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def literal_address(self) -> str:
        """`host:port` if the URL has localhost or an IP address instead of a public name: by
        writing it the owner allowed access to it. Empty otherwise."""
        url = urlsplit(self.url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        if ":" in host:
            return f"[{host}]:{port}"
        numbers = host.replace(".", "").isdigit()
        return f"{host}:{port}" if numbers or host == "localhost" else ""


def find_existing(home: Path, words: Iterable[str]) -> list[str]:
    """Return the existing paths in these words, also after a `=`."""
    parts = (part for word in words for part in (word, word.partition("=")[2]) if part)
    paths = (str(home / part) for part in parts if "\0" not in part)
    return [path for path in paths if os.path.lexists(path)]


class ToolDescription(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool as the model sees it, cleaned and limited. `schema` is a JSON object in canonical
    form. `read_only` is the server's statement. A tool that `needs_tasks` can't be called, because
    nanobot doesn't support tasks."""

    name: str
    description: str
    schema: str = field(name="parameters")
    read_only: bool = False
    needs_tasks: bool = False

    def parameters(self) -> dict[str, Any]:
        """Return the schema as a new object. Raise `ValueError` if it is invalid."""
        parameters = json.loads(self.schema)
        if not isinstance(parameters, dict):
            raise ValueError("a schema must be an object")  # noqa: TRY004 - as `json.loads` raises
        return parameters


LONGEST = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def name_of_tool(server: str, tool: str) -> str:
    """Return the model's name for a tool of a server."""
    name = _UNFIT.sub("_", f"{server}__{tool}")
    if len(name) <= LONGEST:
        return name
    key = f"{server}\0{tool}".encode("utf-8", "backslashreplace")
    return f"{name[: LONGEST - 9]}_{hashlib.sha256(key).hexdigest()[:8]}"


class ToolListing(Struct, frozen=True, forbid_unknown_fields=True):
    """The last listing of a server and all accepted descriptions. `identity` is the server's.

    New or changed descriptions wait for approval, even in the first listing, because a description
    is in the prompt of every conversation."""

    identity: str
    listed: tuple[ToolDescription, ...] = ()
    accepted: tuple[ToolDescription, ...] = ()

    def update(self, tools: Iterable[ToolDescription]) -> ToolListing:
        return replace(self, listed=tuple(tools))

    def accept(self) -> ToolListing:
        tools = {tool.name: tool for tool in (*self.accepted, *self.listed)}
        return replace(self, accepted=tuple(tools.values()))

    @property
    def available(self) -> tuple[ToolDescription, ...]:
        """The callable tools: their descriptions equal the accepted ones."""
        return tuple(t for t in self.listed if t in self.accepted and not t.needs_tasks)

    @property
    def waiting(self) -> tuple[ToolDescription, ...]:
        """The new or changed tools."""
        return tuple(t for t in self.listed if t not in self.accepted and not t.needs_tasks)

    @property
    def digest(self) -> str:
        """Digest of the pending tools, or an empty text if there are none."""
        waiting = [astuple(tool) for tool in self.waiting]
        return hashlib.sha256(json.dumps(waiting).encode()).hexdigest()[:16] if waiting else ""


MOST_KEPT = 256
"""Maximum known tools of one server."""

MOST_TOOLS, MOST_TEXT = 64, 100_000
"""Maximum offered tools of one server, and characters of their descriptions, which are in each
prompt."""

MOST_DESCRIPTION = 1_500
MOST_SCHEMA = 8_000
"""Characters. A tool with a longer schema accepts any arguments, and its server validates them."""

_MOST_NAME = 128
_ANYTHING = '{"properties":{},"type":"object"}'
# Keys that APIs reject at the top of a schema, or that mean nothing to a model.
_NOT_AT_THE_TOP = frozenset({"$schema", "$id", "anyOf", "oneOf", "allOf", "not", "enum", "title"})


def build_description(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    *,
    read_only: bool,
    needs_tasks: bool = False,
) -> ToolDescription:
    """Return the description for the model."""
    text = escape_invisible(description).strip()
    if len(text) > MOST_DESCRIPTION:
        text = f"{text[: MOST_DESCRIPTION - 1]}…"
    return ToolDescription(name, text, normalize_schema(schema), read_only, needs_tasks)


def keep_usable(tools: Iterable[ToolDescription]) -> tuple[ToolDescription, ...]:
    """Return one tool of each name, sorted by name."""
    found: dict[str, ToolDescription] = {}
    for one in tools:
        if one.name.isprintable() and 0 < len(one.name) <= _MOST_NAME:
            found.setdefault(one.name, one)
    return tuple(found[name] for name in sorted(found)[:MOST_KEPT])


def fit_budget(
    tools: Iterable[ToolDescription], wanted: Iterable[str] = ()
) -> tuple[ToolDescription, ...]:
    """Return the tools with `wanted` names (all if empty) that fit the prompt's limits."""
    names, left = frozenset(wanted), MOST_TEXT
    chosen: list[ToolDescription] = []
    for one in tools:
        size = len(one.description) + len(one.schema)
        if (not names or one.name in names) and len(chosen) < MOST_TOOLS and size <= left:
            chosen.append(one)
            left -= size
    return tuple(chosen)


def normalize_schema(given: Mapping[str, Any]) -> str:
    top = {key: value for key, value in given.items() if key not in _NOT_AT_THE_TOP}
    top["type"] = "object"
    if not isinstance(top.get("properties"), dict):
        top["properties"] = {}
    try:
        text = json.dumps(
            escape_values(top), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
    except (RecursionError, ValueError):
        return _ANYTHING
    return text if len(text) <= MOST_SCHEMA else _ANYTHING


def escape_values(value: Any) -> Any:
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, dict):
        return {escape_invisible(str(key)): escape_values(inner) for key, inner in value.items()}
    return [escape_values(inner) for inner in value] if isinstance(value, list) else value


class _File(Struct, forbid_unknown_fields=True):
    servers: Mapping[str, ToolListing]
    version: Literal[1] = 1


class Ledger(Document[Mapping[str, ToolListing]]):
    """The document `mcp`: listings and accepted tools, by server."""

    def __init__(self, store: StateStore) -> None:
        advice = "Accept your MCP servers' tools again."
        super().__init__(store, "mcp", decode_ledger, encode_ledger, {}, advice)


def encode_ledger(listings: Mapping[str, ToolListing]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_File(listings)), indent=1) + b"\n"


def decode_ledger(content: bytes) -> Mapping[str, ToolListing]:
    try:
        servers = msgspec.json.decode(content, type=_File).servers
        for listing in servers.values():
            for tool in (*listing.listed, *listing.accepted):
                tool.parameters()
    except ValueError as error:
        raise InvalidDocument("it was written by another version of nanobot") from error
    return servers
