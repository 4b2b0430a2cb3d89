"""Settings of tools: approvals, the shell, the web, subagents, and MCP servers."""

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
    find_exposed_paths,
)
from nanobot.validation import Check, Checked, Fault, InvalidValue, SecretStr

if TYPE_CHECKING:
    from nanobot.tooling import Approval, RiskKind


_Approval = Literal["auto", "ask", "allow", "never"]


class ApprovalSettings(Checked, frozen=True):
    """Approvals by the kind of call."""

    send: _Approval = "auto"
    """Messages to other chats. `auto` requires approval if the conversation contains untrusted
    content, and `ask` always does. `allow` requires none, and `never` rejects the call."""
    fetch: _Approval = "auto"
    """Fetching URLs that you didn't type and that no search returned."""
    exec: _Approval = "auto"
    """Commands with network access or without a sandbox."""
    persist: _Approval = "auto"
    """Writing to skills. (For memory and instructions, see docs/memory.md.)"""
    schedule: _Approval = "auto"
    """Creating jobs, and removing jobs and reminders."""
    mcp: _Approval = "auto"
    """Calls to MCP tools."""

    def by_kind(self) -> Mapping[RiskKind, Approval]:
        """Return the settings for the gate (`nanobot.tooling.OwnersPolicy`)."""
        return cast("Mapping[RiskKind, Approval]", asdict(self))


class ExecSettings(Checked, frozen=True):
    """Commands in a shell."""

    enabled: bool = True
    """Whether the agent has a shell."""
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = "auto"
    """`auto` uses `bubblewrap` or, if that doesn't work, `landlock`. If neither works, there is no
    shell. `none` gives commands all your permissions."""
    memory_megabytes: Annotated[int, Meta(ge=64)] = 2_048
    """The memory limit in megabytes, for each process and for all commands together."""
    network: bool = True
    """Whether commands can request access to public addresses (see `tools.approval.exec`)."""
    allow_git: bool = False
    """Whether commands can see and create git repositories in the workspace. Such a repository can
    run programs when you use git there."""
    environment: Variables = field(default_factory=dict)
    """Environment variables for commands. The model can read them."""
    paths: tuple[AbsolutePath, ...] = ()
    """Absolute paths outside the workspace that commands can read."""

    def faults(self, home: Path) -> Iterator[Fault]:
        yield from find_exposed_paths("paths", self.paths, home)
        if self.enabled and self.sandbox == "none":
            hint = "Run `nanobot doctor` to find a sandbox for this machine."
            yield Fault(("sandbox",), "gives commands all your permissions", hint, True)


class SearchSettings(Checked, frozen=True):
    """Web search."""

    provider: Literal["duckduckgo", "brave", "tavily", "searxng"] = "duckduckgo"
    """`duckduckgo`, `brave` or `tavily` (with a key), or `searxng` (your own server)."""
    api_key: ApiKey = SecretStr("")
    """The search engine's key."""
    base_url: Url = ""
    """The URL of your SearXNG server."""

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
    """An HTTP proxy for web tools, such as `http://127.0.0.1:3128`. Proxy environment variables are
    ignored."""
    allow_hosts: tuple[HostRule, ...] = ()
    """Non-public hosts to allow: names, IP addresses, or networks such as `192.168.1.0/24`,
    optionally with a port."""
    domains: tuple[Domain, ...] = ()
    """If set, page requests and commands can reach only these domains, their subdomains, and
    `allow_hosts`. `web_search` and MCP servers are not affected."""
    search: SearchSettings = SearchSettings()
    """Web search."""

    @property
    def reachable(self) -> tuple[str, ...]:
        """`allow_hosts`, and the owner's own search server if there is one."""
        url = urlsplit(self.search.base_url)
        if self.search.provider != "searxng" or not url.hostname:
            return self.allow_hosts
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        return (*self.allow_hosts, f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}")


class ToolSettings(Checked, frozen=True):
    """The agent's tools, and which calls need approval."""

    approval: ApprovalSettings = ApprovalSettings()
    """Approvals by the kind of call."""
    exec: ExecSettings = ExecSettings()
    """Commands in a shell."""
    web: WebSettings = WebSettings()
    """Reading the web."""


_NAME = r"(?a)[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}"
_COMMAND_ONLY = ("args", "env", "paths", "writable", "network")
_URL_ONLY = ("headers",)
_BOTH = Fault(("url",), "cannot be combined with `command`", "Remove one of them.")
_NEITHER = Fault(
    (),
    "needs a `command` or a `url`",
    "Write `command:` with a program, or `url:` with a URL.",
)


class McpServerSettings(Checked, frozen=True):
    """One server: a program (`command`) or an address (`url`)."""

    command: str = ""
    """The server's program, unless `url` is set."""
    args: tuple[str, ...] = ()
    """The program's arguments."""
    env: Variables = field(default_factory=dict)
    """Environment variables. Write keys as `${NAME}`."""
    paths: tuple[AbsolutePath, ...] = ()
    """Absolute paths of folders that the server can read."""
    writable: tuple[AbsolutePath, ...] = ()
    """Absolute paths of folders that the server can change."""
    network: bool = False
    """Whether the server can reach public addresses, through a proxy."""
    sandbox: bool = True
    """`false` runs the server without the sandbox, with all your permissions."""
    url: ServerUrl = ""
    """The URL of a server that uses streamable HTTP."""
    headers: Headers = field(default_factory=dict)
    """HTTP headers, such as `Authorization`."""
    tools: tuple[Name, ...] = ()
    """The names of the server's tools to use. Empty: all."""
    people: Literal["owner", "everyone"] = "owner"
    """Who can use the tools: only you (`owner`), or `everyone` with access."""
    trust_read_only: bool = False
    """Whether tools that the server declares as read-only run without approval."""
    timeout_seconds: Seconds = 60.0
    """The timeout of a call in seconds."""
    enabled: bool = True
    """Whether the server is used."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if bool(self.command) == bool(self.url):
            yield _BOTH if self.url else _NEITHER
        else:
            kind, useless = ("command", _URL_ONLY) if self.command else ("url", _COMMAND_ONLY)
            for key in useless:
                if getattr(self, key):
                    yield Fault((key,), f"has no effect with `{kind}`", "Remove it.")
        yield from find_exposed_paths("paths", self.paths, home)
        yield from find_exposed_paths("writable", self.writable, home)
        if self.enabled and self.command and not self.sandbox:
            hint = (
                "Instead, use `paths`, `writable`, and `network` to give it only the access "
                "that it needs."
            )
            yield Fault(("sandbox",), "gives this server all your permissions", hint, True)


def check_names(servers: Mapping[str, McpServerSettings]) -> Mapping[str, McpServerSettings]:
    if not all(re.fullmatch(_NAME, name) for name in servers):
        hint = "Use up to 32 letters, digits, `-`, and single `_`, as in `files`."
        raise InvalidValue("has a name that cannot be part of a tool's name", hint)
    return servers


class McpSettings(Checked, frozen=True):
    """External servers that provide tools."""

    servers: Annotated[Mapping[str, McpServerSettings], Check(check_names)] = field(
        default_factory=dict
    )
    """MCP servers by name. Their tools are called `<name>__<tool>`."""

    @property
    def active(self) -> Mapping[str, McpServerSettings]:
        return {name: server for name, server in self.servers.items() if server.enabled}
