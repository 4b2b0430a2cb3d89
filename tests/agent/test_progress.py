"""Short lines that show a person which tool is running."""

from __future__ import annotations

import pytest

from nanobot.messages import ToolCall


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ('{"path":"notes.txt","start_line":3}', "read_file notes.txt"),
        ('{"start_line":3}', "read_file"),
        ('{"path":"two\\n words"}', "read_file two words"),
        ("not JSON", "read_file"),
        ("[1]", "read_file"),
        ("[" * 100_000, "read_file"),
        ('{"path":"' + "x" * 200 + '"}', "read_file " + "x" * 70),
    ],
)
def test_a_hint_names_the_tool_and_what_it_works_on(arguments: str, hint: str) -> None:
    assert ToolCall("c", "read_file", arguments).hint == hint
