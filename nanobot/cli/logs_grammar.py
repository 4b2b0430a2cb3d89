"""The grammar of `nanobot logs`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, count, home_of

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands

_LEVELS = ("debug", "info", "warning", "error")


def add_logs(commands: Commands) -> None:
    """`nanobot logs`."""
    logs = add(commands, "logs", "what nanobot has been doing", _logs)
    logs.add_argument(
        "-n", type=count, default=50, metavar="N", help="how many lines (default: %(default)s)"
    )
    logs.add_argument(
        "-f", "--follow", action="store_true", help="go on with new lines until Ctrl-C"
    )
    logs.add_argument(
        "--turn", default="", metavar="ID", help="of this turn only, as `turn show` takes it"
    )
    logs.add_argument(
        "--level", choices=_LEVELS, default=_LEVELS[0], help="nothing less important than this"
    )
    logs.add_argument("--json", action="store_true", help="print JSON, one object a line")


def _logs(options: argparse.Namespace) -> int:
    from nanobot.cli.logs import Selection, show

    chosen = Selection(options.n, options.level, options.turn)
    return show(home_of(options), chosen, follow=options.follow, as_json=options.json)
