"""The grammar of `nanobot audit` and `nanobot doctor`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, count, home_of

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands


def add_audit(commands: Commands) -> None:
    """`nanobot audit`."""
    audit = add(commands, "audit", "what tools were allowed, refused and done", _audit)
    audit.add_argument(
        "-n", type=count, default=20, metavar="N", help="how many entries (default: %(default)s)"
    )
    audit.add_argument("--tool", default="", metavar="T", help="of this tool only")
    audit.add_argument("--session", default="", metavar="KEY", help="of this conversation only")
    add_json(audit)


def add_doctor(commands: Commands) -> None:
    """`nanobot doctor`."""
    doctor = add(commands, "doctor", "check that everything works, and say what to mend", _doctor)
    doctor.add_argument(
        "--ask-model",
        action="store_true",
        help="also have the model and its fallbacks answer one short question, which costs tokens",
    )
    add_json(doctor)


def _audit(options: argparse.Namespace) -> int:
    from nanobot.cli.audit import Selection, show

    chosen = Selection(options.n, options.tool, options.session)
    return show(home_of(options), chosen, as_json=options.json)


def _doctor(options: argparse.Namespace) -> int:
    from nanobot.cli.doctor import examine

    return examine(home_of(options), ask_model=options.ask_model, as_json=options.json)
