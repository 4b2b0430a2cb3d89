"""Show pip's progress: read pip's output, and write to standard error.

A terminal gets one line that changes, and a pipe or a log gets a line for each wait. The Makefile
uses it with the Python of a new environment, so it only imports the standard library."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

_FETCHED = ("Collecting ", "Processing ")
_EVERY = 10
"""In a pipe, a line for this many packages."""


def moments(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield pip's current activity, and whether it is worth a line of its own."""
    count = 0
    yield "looking for packages", True
    for line in lines:
        if line.startswith(_FETCHED):
            count += 1
            yield f"{count} package{'s' * (count > 1)} fetched", count % _EVERY == 0
        elif line.startswith("Installing collected packages:"):
            count = line.count(",") + 1
            yield f"installing {count} package{'s' * (count > 1)}", True


def main() -> None:
    """Show the progress until pip ends."""
    is_terminal = sys.stderr.isatty()
    for text, has_line in moments(sys.stdin):
        if is_terminal:
            sys.stderr.write(f"\r\033[K  {text} …")
        elif has_line:
            sys.stderr.write(f"  {text} …\n")
        sys.stderr.flush()
    sys.stderr.write("\r\033[K" if is_terminal else "")


if __name__ == "__main__":
    main()
