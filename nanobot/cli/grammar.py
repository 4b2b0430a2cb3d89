"""The small pieces that the grammar of the command line is made of."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.config import home_folder
from nanobot.tilde import expanded

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def home_of(options: argparse.Namespace) -> Path:
    """The home that a command line means, absolute."""
    return expanded(options.home).absolute() if options.home else home_folder()


def add(commands: Commands, name: str, summary: str, run: object) -> argparse.ArgumentParser:
    """A command; `run` takes its namespace and returns the exit code."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + "."
    )
    parser.set_defaults(run=run)
    return parser


def choices(parser: argparse.ArgumentParser) -> Commands:
    """The commands within a command. Alone it shows them, and says by its exit code that one of
    them is wanted."""

    def show(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return 2

    parser.set_defaults(run=show)
    return parser.add_subparsers(dest="what", metavar="WHAT")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option of commands whose result machines can have."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def count(text: str) -> int:
    """A number from 1, as an argument's type."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def words(text: str) -> str:
    """A text that says something, as an argument's type."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def day(text: str) -> str:
    """A date such as 2026-11-21, as an argument's type."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-11-21") from None
