"""`nanobot mcp`: other people's programs that bring tools."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanobot.cli.command import (
    Data,
    add,
    add_group,
    add_operation,
    expect_consent,
    field,
    indent,
    number,
    print_result,
    record,
    records,
    said_yes,
    table,
    text,
)
from nanobot.cli.gateway import operate
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from nanobot.cli.command import Commands

_NONE = "There are no MCP servers; they are set up in config.yaml (docs/mcp.md).\n"


def add_mcp(commands: Commands) -> None:
    """`nanobot mcp …`."""
    what = add_group(
        commands,
        "mcp",
        "look after MCP servers and their tools",
        "Look after MCP servers, which are set up in config.yaml, and their tools.",
    )
    add_operation(what, "list", "all servers and how they are doing", "mcp.list", _list_text)
    check = add(what, "check", "start a server, show its tools, ask about new ones", _check)
    approve = add(what, "approve", "accept tools that are new or changed", _approve).yes()
    for command in (check, approve):
        command.json().argument("name", "NAME", "as `mcp list` shows it")


def _check(options: argparse.Namespace) -> int:
    """In a terminal it asks about what waits to be accepted."""
    data = operate(options.home, "mcp.check", server=options.name)
    if _names(data, "waiting") and not options.json and sys.stdin.isatty():
        options.yes = False
        return _approve(options)
    return print_result(options, data, _server_text)


def _approve(options: argparse.Namespace) -> int:
    """Shows what is new or different, asks, and accepts just that; 1 where nothing was accepted."""
    expect_consent(options, "Tools should be looked at first; `--yes` accepts them unseen.")
    waiting = operate(options.home, "mcp.waiting", server=options.name)
    digest = text(waiting, "digest")
    if not (options.json and digest):
        print_result(options, waiting, _waiting_text)
    if not digest:
        return 0
    if not options.yes and not said_yes("Accept these?"):
        return 1
    accepted = operate(options.home, "mcp.approve", server=options.name, digest=digest)
    return print_result(options, accepted, _server_text)


def _list_text(data: Data) -> str:
    servers = records(data, "servers")
    listed = table(map(_row, servers), "name", "state", "tools", "where")
    return listed + "".join(map(_notes, servers)) or _NONE


def _row(server: Data) -> tuple[str, ...]:
    if server.get("running"):
        state = "running"
    else:
        state = "at rest" if server.get("known") else "not asked yet"
    return field(server, "name"), state, str(len(_names(server, "tools"))), field(server, "where")


def _notes(server: Data) -> str:
    name, notes = field(server, "name"), ""
    if waiting := _names(server, "waiting"):
        notes += f"{name}: new or changed, and not offered: {', '.join(waiting)}\n"
        notes += f"  look at them with `nanobot mcp approve {name}`\n"
    if left_out := number(server, "left_out"):
        notes += f"{name}: {left_out} tools are not offered; `tools:` says which ones are\n"
    if trouble := field(server, "trouble", 500):
        notes += f"{name}: {trouble}\n"
    return f"\n{notes}" if notes else ""


def _server_text(server: Data) -> str:
    tools = "".join(f"{name}\n" for name in _names(server, "tools"))
    head = f"{field(server, 'name')} offers {len(_names(server, 'tools'))} tools\n"
    return head + indent(tools) + _notes(server)


def _waiting_text(data: Data) -> str:
    return "".join(map(_difference, records(data, "waiting"))) or "Nothing waits to be accepted.\n"


def _difference(tool: Data) -> str:
    import difflib

    before, now = record(tool, "before"), record(tool, "now")
    head = f"{field(tool, 'name')} ({'changed' if before else 'new'})\n"
    diff = difflib.unified_diff(_lines(before), _lines(now), lineterm="", n=2)
    lines = list(diff)[2:] if before else _lines(now)
    return head + indent("\n".join(lines)) + "\n"


def _lines(card: Data) -> Sequence[str]:
    if not card:
        return []
    lines = text(card, "description").splitlines()
    lines += json.dumps(json.loads(text(card, "schema")), indent=1).splitlines()
    return [*lines, f"read-only: {'yes' if card.get('read_only') is True else 'no'}"]


def _names(server: Data, key: str) -> list[str]:
    names = server.get(key)
    return [one_line(str(name), 80) for name in names] if isinstance(names, list) else []
