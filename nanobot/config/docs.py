"""Keeps the table of settings in docs/configuration.md true.

python -m nanobot.config.docs            say whether it is (exit code 1 when it is not)
python -m nanobot.config.docs --write    write it anew
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nanobot.config.pages import kept_current
from nanobot.config.schema import settings_table

PAGE = Path("docs/configuration.md")
BEGIN = "<!-- settings: begin; written by `python -m nanobot.config.docs --write` -->\n"
END = "<!-- settings: end -->\n"


def with_current_table(page: str) -> str:
    """`page` with what stands between the markers replaced. Raises ValueError without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page lacks the two markers of the table")
    return f"{before}{BEGIN}\n{settings_table()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the page or, with --write, mend it; the exit code."""
    return kept_current(PAGE, with_current_table, "the table", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
