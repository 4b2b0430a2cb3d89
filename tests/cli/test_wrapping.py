"""Long lines fit a terminal, and a list item continues below its beginning."""

from __future__ import annotations

import pytest

from nanobot_cli.text import wrap_text

WORDS = "one two three four five six seven eight nine ten eleven twelve"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        (WORDS, "one two three four five six seven eight\nnine ten eleven twelve"),
        (f"- {WORDS}", "- one two three four five six seven\n  eight nine ten eleven twelve"),
        (f"  - {WORDS}", "  - one two three four five six seven\n    eight nine ten eleven twelve"),
        (f"    {WORDS}", f"    {WORDS}"),
        ("一" * 21, "一" * 21),
        ("x" * 50, "x" * 50),
        ("one\n\ntwo", "one\n\ntwo"),
    ],
)
def test_a_line_is_broken_where_it_may_be(text: str, shown: str) -> None:
    assert wrap_text(text, 40) == shown
