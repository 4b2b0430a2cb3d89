"""The settings of tools: what is asked about, the shell, the web, helpers, and MCP servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast
from urllib.parse import urlsplit

from msgspec import Meta, field
from msgspec.structs import asdict

from nanobot.config.values import (
    AbsolutePath,
    ApiKey,
    Domain,
    Headers,
    HostRule,
    Name,
    ProxyUrl,
    Seconds,
    ServerUrl,
    Url,
    Variables,
    exposed_path_faults,
)
from nanobot.validation import Check, Checked, Fault, InvalidValue, SecretStr

if TYPE_CHECKING:
    from nanobot.tooling import Approval, RiskKind


_Approval = Literal["auto", "ask", "allow", "never"]


class ApprovalSettings(Checked, frozen=True):
    """What the owner is asked about, by what a call can do."""

    send: _Approval = "auto"
    """Messages to other chats. `auto` needs approval if the conversation contains untrusted
    content, `ask` each time, `allow` never, and `never` rejects the call."""
    fetch: _Approval = "auto"
    """Fetching an address that neither you typed nor a search returned."""
    exec: _Approval = "auto"
    """Commands with network access or without a sandbox."""
    persist: _Approval = "auto"
    """Writing files of skills. (For memory and instructions, see docs/memory.md.)"""
    schedule: _Approval = "auto"
    """Creating jobs, and removing jobs and reminders."""
    mcp: _Approval = "auto"
    """Calls of MCP tools."""

    def by_kind(self) -> Mapping[RiskKind, Approval]:
        """The settings as the gate takes them (`nanobot.tooling.OwnersPolicy`)."""
        return cast("Mapping[RiskKind, Approval]", asdict(self))


class ExecSettings(Checked, frozen=True):
    """Commands in a shell."""

    enabled: bool = True
    """Whether the agent has a shell."""
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = "auto"
    """The sandbox for commands. `auto` uses bubblewrap, or else Landlock, if it passes a test on
    this machine. Otherwise there is no shell. `none` gives commands all your permissions."""
    memory_megabytes: Annotated[int, Meta(ge=64)] = 2_048
    """Megabytes of memory, for each process and for all commands together."""
    network: bool = True
    """Whether commands can request network access, to public addresses and subject to
    `tools.approval.exec`."""
    allow_git: bool = False
    """Whether commands can see and create git repositories in the workspace. Files in a repository
    can run programs when you use git there."""
    environment: Variables = field(default_factory=dict)
    """Additional environment variables for commands. The model can read them."""
    paths: tuple[AbsolutePath, ...] = ()
    """Folders outside the workspace that commands can read, as absolute paths."""

    def faults(self, home: Path) -> Iterator[Fault]:
        yield from exposed_path_faults("paths", self.paths, home)
        if self.enabled and self.sandbox == "none":
            hint = "`nanobot doctor` says which sandbox this machine can have."
            yield Fault(("sandbox",), "lets commands do all that you may do", hint, True)


class SearchSettings(Checked, frozen=True):
    """Web search."""

    provider: Literal["duckduckgo", "brave", "tavily", "searxng"] = "duckduckgo"
    """The search engine. `duckduckgo` needs no key, `brave` and `tavily` need one, and `searxng` is
    your own server."""
    api_key: ApiKey = SecretStr("")
    """The search engine's key."""
    base_url: Url = ""
    """The address of your SearXNG."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.provider in ("brave", "tavily") and not self.api_key.get_secret_value():
            hint = f"Write `api_key: ${{{self.provider.upper()}_API_KEY}}` and set that variable."
            yield Fault(("api_key",), f"is required by {self.provider}", hint)
        if self.provider == "searxng" and not self.base_url:
            example = "Write it like https://search.example.org."
            yield Fault(("base_url",), "is required by searxng", example)


class WebSettings(Checked, frozen=True):
    """Reading the web."""

    enabled: bool = True
    """Whether the agent can fetch pages and search."""
    proxy: ProxyUrl = SecretStr("")
    """An http proxy for tools, such as `http://127.0.0.1:3128`. Proxy variables of the environment
    are ignored."""
    allow_hosts: tuple[HostRule, ...] = ()
    """Exceptions to "public addresses only": names, addresses, or networks such as
    `192.168.1.0/24`, optionally with a port such as `127.0.0.1:8000`."""
    domains: tuple[Domain, ...] = ()
    """If set, pages and commands can reach only these domains, names below them, and `allow_hosts`.
    `web_search` and MCP servers are not affected."""
    search: SearchSettings = SearchSettings()
    """Web search."""

    @property
    def reachable(self) -> tuple[str, ...]:
        """`allow_hosts`, and the owner's own search server where there is one."""
        url = urlsplit(self.search.base_url)
        if self.search.provider != "searxng" or not url.hostname:
            return self.allow_hosts
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        return (*self.allow_hosts, f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}")


class ToolSettings(Checked, frozen=True):
    """What the agent can do, and what it asks about."""

    approval: ApprovalSettings = ApprovalSettings()
    """What the owner is asked about."""
    exec: ExecSettings = ExecSettings()
    """Commands in a shell."""
    web: WebSettings = WebSettings()
    """Reading the web."""


_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}", re.ASCII)
_COMMAND_ONLY = ("args", "env", "paths", "writable", "network")
_URL_ONLY = ("headers",)
_BOTH = Fault(("url",), "does not go with `command`", "Keep one of `command` and `url`.")
_NEITHER = Fault(
    (),
    "needs a `command` or a `url`",
    "Write `command:` with a program, or `url:` with an address.",
)


class McpServerSettings(Checked, frozen=True):
    """One server: a program (`command`) or an address (`url`)."""

    command: str = ""
    """The server's program, such as `mcp-server-memory`. Alternative to `url`."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Variables = field(default_factory=dict)
    """Additional environment variables. Write keys as `${NAME}`."""
    paths: tuple[AbsolutePath, ...] = ()
    """Folders that the server can read, as absolute paths."""
    writable: tuple[AbsolutePath, ...] = ()
    """Folders that the server can change, as absolute paths."""
    network: bool = False
    """Whether the server can reach public addresses, through a proxy."""
    sandbox: bool = True
    """Whether the server runs in the sandbox. `false` gives it all your permissions."""
    url: ServerUrl = ""
    """The address of a server with streamable HTTP. Alternative to `command`."""
    headers: Headers = field(default_factory=dict)
    """HTTP headers, such as `Authorization`."""
    tools: tuple[Name, ...] = ()
    """The server's tools to use, by their own names. Empty: all."""
    people: Literal["owner", "everyone"] = "owner"
    """Who can use the tools: only you, or everyone with access."""
    trust_read_only: bool = False
    """Whether tools that the server declares as read-only run without approval."""
    timeout_seconds: Seconds = 60.0
    """Timeout of one call in seconds."""
    enabled: bool = True
    """Whether the server is used."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if bool(self.command) == bool(self.url):
            yield _BOTH if self.url else _NEITHER
        else:
            kind, useless = ("command", _URL_ONLY) if self.command else ("url", _COMMAND_ONLY)
            for key in useless:
                if getattr(self, key):
                    yield Fault((key,), f"has no effect beside `{kind}`", "Leave it out.")
        yield from exposed_path_faults("paths", self.paths, home)
        yield from exposed_path_faults("writable", self.writable, home)
        if self.enabled and self.command and not self.sandbox:
            hint = "List what it needs in `paths`, `writable` and `network` instead."
            yield Fault(("sandbox",), "lets this server do all that you may do", hint, True)


def _usable_names(servers: Mapping[str, McpServerSettings]) -> Mapping[str, McpServerSettings]:
    if not all(_NAME.fullmatch(name) for name in servers):
        hint = "Use up to 32 letters, digits, `-` and single `_`, such as `files`."
        raise InvalidValue("has a name that cannot be part of a tool's name", hint)
    return servers


class McpSettings(Checked, frozen=True):
    """Servers that bring tools of others."""

    servers: Annotated[Mapping[str, McpServerSettings], Check(_usable_names)] = field(
        default_factory=dict
    )
    """MCP servers by name. Their tools are called `<name>__<tool>`."""

    @property
    def used(self) -> Mapping[str, McpServerSettings]:
        return {name: server for name, server in self.servers.items() if server.enabled}
