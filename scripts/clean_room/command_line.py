"""The command line of programs that work in clean roots: options, temporary folders, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from scripts.clean_room.package_settings import collect_settings
from scripts.clean_room.roots import RoomError, Roots, require_tools
from scripts.clean_room.steps import StepFailed, Steps, describe_failure

ROOT = Path(__file__).parents[2]
"""The repository."""

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanobot-clean-room"


def parser_of(program: str, text: str | None) -> argparse.ArgumentParser:
    """Return a parser with the shared options. `text` is the introduction of --help."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--cache",
        type=Path,
        default=_CACHE,
        metavar="DIR",
        help="the folder for Debian systems (default: %(default)s)",
    )
    parser.add_argument(
        "--lend",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of this machine to mount into the roots, such as one in pip's settings",
    )
    return parser


def run_in_roots(options: argparse.Namespace, play: Callable[[Roots, Steps, Path], None]) -> int:
    """Call `play` with temporary roots and a temporary folder. Return the exit code: 1 if a step
    failed, 2 if roots are impossible."""
    try:
        require_tools()
        with (
            tempfile.TemporaryDirectory(prefix="nanobot-room-", ignore_cleanup_errors=True) as name,
            collect_settings(options.lend) as borrowed,
        ):
            folder = Path(name, "beside")
            folder.mkdir()
            play(Roots(options.cache, Path(name, "roots"), borrowed), Steps(), folder)
    except StepFailed as failure:
        print(describe_failure(failure), file=sys.stderr)
        return 1
    except RoomError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
