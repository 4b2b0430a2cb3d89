"""The grammar of `nanobot import`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, home_of

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands


def add_import(commands: Commands) -> None:
    """`nanobot import`."""
    command = add(commands, "import", "take over a home of HKUDS/nanobot (nanobot-ai)", _import)
    command.add_argument(
        "source",
        nargs="?",
        default="~/.nanobot",
        metavar="FROM",
        help="that home, which is only read (default: ~/.nanobot)",
    )
    command.add_argument(
        "--to",
        metavar="HOME",
        help="the new home, which must be empty or not there yet (default: as without this command;"
        " where that is FROM itself, FROM is moved to FROM.before-import)",
    )
    command.add_argument(
        "--workspace", metavar="DIR", help="its workspace (default: as its configuration says)"
    )
    command.add_argument(
        "--owner",
        action="append",
        default=[],
        metavar="CHANNEL:ID",
        help="an account of yours, such as telegram:12345; needed where more than one person was"
        " let in; may be given several times",
    )
    command.add_argument("--dry-run", action="store_true", help="only show what would be done")
    command.add_argument("--yes", action="store_true", help="do it without being asked")
    add_json(command)


def _import(options: argparse.Namespace) -> int:
    from nanobot.cli.import_ import Wanted, run_import
    from nanobot.tilde import expanded

    given = {"to": options.to, "workspace": options.workspace}
    paths = {name: expanded(path).absolute() for name, path in given.items() if path}
    wanted = Wanted(
        source=expanded(options.source).absolute(),
        target=paths.get("to", home_of(options)),
        workspace=paths.get("workspace"),
        owners=tuple(options.owner),
        dry_run=options.dry_run,
        sure=options.yes,
        as_json=options.json,
    )
    return run_import(wanted)
