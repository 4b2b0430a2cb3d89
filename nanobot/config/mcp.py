"""The settings of MCP servers: programs and addresses that bring tools of others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from nanobot.config.base import Fault, Strict
from nanobot.config.environment import Headers, Variables, revealed
from nanobot.config.places import AbsolutePath, unfit_to_show
from nanobot.config.values import Name, Seconds, ServerUrl, Unfit

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}", re.ASCII)
_PROGRAM_ONLY = ("args", "env", "paths", "writable", "network")


class McpServerSettings(Strict):
    """One server: a program (`command`) or an address (`url`)."""

    command: str = Field(
        default="",
        description="The program that is the server, such as `mcp-server-memory`; or else `url`.",
    )
    args: tuple[str, ...] = Field(default=(), description="Its arguments.")
    env: Variables = Field(
        default={},
        description="Variables that it gets, beside a small fixed set. Keys are best written as "
        "`${NAME}`.",
    )
    paths: tuple[AbsolutePath, ...] = Field(
        default=(), description="Folders that it may read, as absolute paths."
    )
    writable: tuple[AbsolutePath, ...] = Field(
        default=(), description="Folders that it may change, as absolute paths."
    )
    network: bool = Field(
        default=False, description="Whether it may reach public addresses, by way of a proxy."
    )
    sandbox: bool = Field(
        default=True,
        description="Whether it is shut in. `false` lets it do all that you may do yourself.",
    )
    url: ServerUrl = Field(
        default="",
        description="The address of a server that speaks streamable HTTP; or else `command`.",
    )
    headers: Headers = Field(
        default={}, description="HTTP headers for it, such as `Authorization`."
    )
    tools: tuple[Name, ...] = Field(
        default=(), description="The only tools of it that are used, by its own names; empty: all."
    )
    people: Literal["owner", "everyone"] = Field(
        default="owner",
        description="Whom its tools work for: you alone, or everyone who may talk to the agent.",
    )
    trust_read_only: bool = Field(
        default=False,
        description="Whether tools that it calls read-only run without asking.",
    )
    timeout_seconds: Seconds = Field(
        default=60.0, description="Seconds that one call of its tools may take."
    )
    enabled: bool = Field(default=True, description="Whether it is used.")

    @property
    def variables(self) -> Mapping[str, str]:
        """`env` with its secrets told."""
        return revealed(self.env)

    @property
    def revealed_headers(self) -> Mapping[str, str]:
        """`headers` with their values told."""
        return revealed(self.headers)

    def faults(self, home: Path) -> Iterator[Fault]:
        """What is wrong between the keys, each right in itself; `home` is nanobot's own folder."""
        if self.command and self.url:
            hint = "Keep one of `command` and `url`."
            yield Fault(("url",), "does not go with `command`", hint)
        elif self.url:
            yield from self._not_for_addresses()
        elif self.command:
            yield from self._not_for_programs()
        else:
            hint = "Write `command:` with a program, or `url:` with an address."
            yield Fault((), "needs a `command` or a `url`", hint)
        for index, path in enumerate(self.paths):
            if reason := unfit_to_show(Path(path), home):
                yield Fault(("paths", index), reason, "Name the folder that is needed, no more.")
        for index, path in enumerate(self.writable):
            if reason := unfit_to_show(Path(path), home):
                yield Fault(("writable", index), reason, "Name another folder.")

    def _not_for_addresses(self) -> Iterator[Fault]:
        for key in _PROGRAM_ONLY:
            if getattr(self, key):
                hint = "Leave it out; it is for servers that are programs."
                yield Fault((key,), "has no effect beside `url`", hint)

    def _not_for_programs(self) -> Iterator[Fault]:
        if self.headers:
            hint = "Leave it out; programs get keys by `env`."
            yield Fault(("headers",), "has no effect beside `command`", hint)


class McpSettings(Strict):
    """Servers that bring tools of others."""

    servers: Mapping[str, McpServerSettings] = Field(
        default={},
        description="The servers, by names that you choose; their tools are called "
        "`<name>__<tool>`.",
    )

    @field_validator("servers")
    @classmethod
    def _usable_names(
        cls, servers: Mapping[str, McpServerSettings]
    ) -> Mapping[str, McpServerSettings]:
        if not all(_NAME.fullmatch(name) for name in servers):
            hint = "Use up to 32 letters, digits, `-` and single `_`, such as `files`."
            raise Unfit("has a name that cannot be part of a tool's name", hint)
        return servers

    def faults(self, home: Path) -> Iterator[Fault]:
        """What is wrong between the keys, each right in itself; `home` is nanobot's own folder."""
        for name, server in self.servers.items():
            for fault in server.faults(home):
                yield replace(fault, key=("servers", name, *fault.key))
