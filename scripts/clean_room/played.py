"""What every program that works in clean roots does: read where to, make room, say how it ended."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from scripts.clean_room.lent import lent
from scripts.clean_room.roots import RoomError, Roots, require_tools
from scripts.clean_room.steps import StepFailed, Steps, told

ROOT = Path(__file__).parents[2]
"""The repository."""

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanobot-clean-room"


def parser_of(program: str, text: str | None) -> argparse.ArgumentParser:
    """A command line with what all of them can be told; `text` is what --help says first."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--cache", type=Path, default=_CACHE, metavar="DIR", help="keeps Debian (%(default)s)"
    )
    parser.add_argument(
        "--lend",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of this machine that is seen in the roots: one that pip's settings name",
    )
    return parser


def played(options: argparse.Namespace, play: Callable[[Roots, Steps, Path], None]) -> int:
    """Let `play` work with roots that are gone afterwards, and a folder for whatever else it needs.
    The exit code: 1 where a step failed, 2 where there can be no roots."""
    try:
        require_tools()
        with (
            tempfile.TemporaryDirectory(prefix="nanobot-room-", ignore_cleanup_errors=True) as name,
            lent(options.lend) as borrowed,
        ):
            folder = Path(name, "beside")
            folder.mkdir()
            play(Roots(options.cache, Path(name, "roots"), borrowed), Steps(), folder)
    except StepFailed as failure:
        print(told(failure), file=sys.stderr)
        return 1
    except RoomError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
