"""Untrusted text cannot control the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.text import clean
from nanobot_cli.text import one_line

ANY_TEXT = st.text(st.sampled_from("\x1b\x9b\x9d\x07\x9c\x00\r\n\t[]();0m?=\\PX^_ aü\x7f\x85"))


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b[1;1Hhello", "hello"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1bP1$r\x1b\\text", "text"),
        ("\x1b(Btext", "text"),
        ("\x1b\x1b[m[2Jtext", "[2Jtext"),
        ("\x1b]never ended, still text", "]never ended, still text"),
        ("overwritten\rtext", "overwritten\ntext"),
        ("windows\r\nline", "windows\nline"),
        ("a\tb\nc\x00\x08\x7f\x85d", "a\tb\ncd"),
        ("grüße 👋 中文", "grüße 👋 中文"),
    ],
)
def test_sequences_go_and_words_stay(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


@given(ANY_TEXT)
def test_nothing_but_lines_and_tabs_is_left_to_control_a_terminal(text: str) -> None:
    left = clean(text)
    assert all(char.isprintable() or char in "\n\t" for char in left)
    assert clean(left) == left


@pytest.mark.parametrize("unit", ["\x1b[", "\x1b]", "\x1b]x", "\x1b(", "\x9d", "\x1b[0;"])
def test_much_hostile_text_is_cleaned_in_linear_time(unit: str) -> None:
    assert "\x1b" not in clean(unit * 100_000)


def test_one_line_is_short_and_of_one_line() -> None:
    assert one_line("a\nb\x1b[2J  c", 10) == "a b c"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
