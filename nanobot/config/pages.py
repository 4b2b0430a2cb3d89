"""Pages of the documentation that are made from the code: checked, or written anew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def kept_current(
    page: Path, render: Callable[[str], str], what: str, arguments: Sequence[str] | None = None
) -> int:
    """The command line of a page: check it or, with --write, mend it; the exit code. `render` makes
    the page from what stands there, empty where there is none; `what` says what is made."""
    parser = argparse.ArgumentParser(description=f"Check {what}.")
    parser.add_argument("--write", action="store_true", help="write it anew")
    parser.add_argument("page", nargs="?", type=Path, default=page)
    chosen = parser.parse_args(arguments)
    place: Path = chosen.page
    old = place.read_text(encoding="utf-8") if place.exists() else ""
    new = render(old)
    if old == new:
        return 0
    if chosen.write:
        place.write_text(new, encoding="utf-8")
        return 0
    sys.stderr.write(f"{place}: {what} is out of date; run this with --write\n")
    return 1
