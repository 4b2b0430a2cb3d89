"""The grammar of `nanobot mcp`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, choices, home_of

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands


def add_mcp(commands: Commands) -> None:
    """`nanobot mcp …`."""
    mcp = commands.add_parser(
        "mcp",
        help="look after MCP servers and their tools",
        description="Look after MCP servers, which are set up in config.yaml, and their tools.",
    )
    what = choices(mcp)
    add_json(add(what, "list", "all servers and how they are doing", _list))
    check = add(what, "check", "start a server, show its tools, ask about new ones", _check)
    _add_name(check)
    add_json(check)
    approve = add(what, "approve", "accept tools that are new or changed", _approve)
    _add_name(approve)
    approve.add_argument("--yes", action="store_true", help="do not ask")
    add_json(approve)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="as `mcp list` shows it")


def _list(options: argparse.Namespace) -> int:
    from nanobot.cli.mcp import show

    return show(home_of(options), as_json=options.json)


def _check(options: argparse.Namespace) -> int:
    from nanobot.cli.mcp import check

    return check(home_of(options), options.name, as_json=options.json)


def _approve(options: argparse.Namespace) -> int:
    from nanobot.cli.mcp import approve

    home = home_of(options)
    return approve(home, options.name, sure=options.yes, as_json=options.json)
