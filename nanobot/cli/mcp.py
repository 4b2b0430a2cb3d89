"""`nanobot mcp list|check|approve`: other people's programs that bring tools.

The work is done by the running gateway, so that it holds at once, or here where none runs. What
servers say of themselves is cleaned before it is printed.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nanobot.cli.admin import asked, put, said_yes, to_json
from nanobot.cli.agent import WrongUse
from nanobot.cli.show import Data, field, fitted, indent, number, record, records, table, text
from nanobot_cli.text import clean, one_line

_NONE = "There are no MCP servers; they are set up in config.yaml (docs/mcp.md).\n"


def show(home: Path, *, as_json: bool) -> int:
    """`nanobot mcp list`."""
    data = asked(home, "mcp.list", {})
    return put(to_json(data) if as_json else fitted(_list_text(data)))


def check(home: Path, name: str, *, as_json: bool) -> int:
    """`nanobot mcp check NAME`: in a terminal it asks about what waits to be accepted."""
    data = asked(home, "mcp.check", {"server": name})
    if _names(data, "waiting") and not as_json and sys.stdin.isatty():
        return approve(home, name, sure=False, as_json=False)
    return put(to_json(data) if as_json else _server_text(data))


def approve(home: Path, name: str, *, sure: bool, as_json: bool) -> int:
    """`nanobot mcp approve NAME`: shows what is new or different, asks, and accepts just that.

    Raises `WrongUse` where there is nobody to ask. Returns 1 where nothing was accepted.
    """
    if not sure and (as_json or not sys.stdin.isatty()):
        raise WrongUse(
            "tools have to be looked at before they are accepted",
            hint="`--yes` accepts them unseen.",
        )
    waiting = asked(home, "mcp.waiting", {"server": name})
    if not as_json:
        put(_waiting_text(waiting))
    if not text(waiting, "digest"):
        return put(to_json(waiting)) if as_json else 0
    if not sure and not said_yes("Accept these?"):
        put("Nothing was changed.\n")
        return 1
    done = asked(home, "mcp.approve", {"server": name, "digest": text(waiting, "digest")})
    return put(to_json(done) if as_json else _server_text(done))


def _list_text(data: Data) -> str:
    servers = records(data, "servers")
    trouble = text(data, "trouble")
    warning = f"warning: {clean(trouble)}\n\n" if trouble else ""
    if not servers:
        return warning + _NONE
    rows = [("name", "state", "tools", "where"), *map(_row, servers)]
    return warning + table(rows) + "".join(_notes(server) for server in servers)


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
    tools = records(data, "waiting")
    if not tools:
        return "Nothing waits to be accepted.\n"
    return "".join(_difference(tool) for tool in tools)


def _difference(tool: Data) -> str:
    before, now = record(tool, "before"), record(tool, "now")
    head = f"{field(tool, 'name')} ({'changed' if before else 'new'})\n"
    diff = difflib.unified_diff(_lines(before), _lines(now), lineterm="", n=2)
    lines = list(diff)[2:] if before else _lines(now)
    return head + indent("".join(f"{clean(line)}\n" for line in lines)) + "\n"


def _lines(card: Data) -> Sequence[str]:
    if not card:
        return []
    lines = text(card, "description").splitlines()
    lines += json.dumps(json.loads(text(card, "schema")), indent=1).splitlines()
    return [*lines, f"read-only: {'yes' if card.get('read_only') is True else 'no'}"]


def _names(server: Data, key: str) -> list[str]:
    names = server.get(key)
    return [one_line(str(name), 80) for name in names] if isinstance(names, list) else []
