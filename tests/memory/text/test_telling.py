"""The list of changes describes the effect of a change."""

from __future__ import annotations

import pytest

from nanobot.memory.guard import summary_of_change

LONG = "- " + "very " * 30 + "long"


@pytest.mark.parametrize(
    ("before", "after", "summary"),
    [
        ("", "# Memory\n\n- Likes tea\n", "added: Likes tea"),
        ("- Likes tea\n", "- Likes coffee\n", "added: Likes coffee"),
        ("- Likes tea\n- Has a cat\n", "- Has a cat\n", "removed: Likes tea"),
        ("- a\n", "- a\n- b\n- c\n- d\n- e\n", "added: b; c; d and 1 more line"),
        ("", f"{LONG}\n", "added: 1 line"),
        ("", f"{LONG}\n- Likes tea\n", "added: Likes tea and 1 more line"),
        ("(nothing yet)\n", "## A heading\n\n---\n", "edited MEMORY.md"),
        ("- Likes tea", "- Likes tea\n\n", "edited MEMORY.md"),
    ],
)
def test_a_change_is_told_by_whole_lines(before: str, after: str, summary: str) -> None:
    assert summary_of_change("MEMORY.md", before, after) == summary
