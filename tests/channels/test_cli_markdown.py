"""Markdown in a terminal: it fits the width, and cannot control the terminal."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import strip_sequences, width

from nanobot_cli.markdown import render

REPLY = """\
# Tea

A **bold** word, `code` and [a link](https://example.com/tea).

- a long item that has to go on below its first word
  1. one inside it that is rather long as well

> said by somebody who had a lot to say

| tea | cups |
|---|---|
| green | 2 |
"""

SHOWN = """\
Tea

A bold word, code and a
link
(https://example.com/tea).

• a long item that has to
  go on below its first
  word
  1. one inside it that is
     rather long as well

│ said by somebody who had
│ a lot to say

tea   | cups
------+-----
green |    2"""


def test_blocks_are_laid_out_and_wrapped_below_their_first_word() -> None:
    shown = render(REPLY, 26)
    assert strip_sequences(shown) == SHOWN
    assert {"\x1b[1mTea\x1b[0m", "\x1b[1mbold\x1b[0m", "\x1b[36mcode\x1b[0m"} <= {
        *re.findall("\x1b\\[[0-9]+m[^\x1b]*\x1b\\[0m", shown)
    }


def test_lists_nest_below_the_text_of_their_item_and_tasks_have_boxes() -> None:
    shown = render("- a\n  - b\n    - c\n\n10. d\n    - e\n      - f\n- [ ] g\n- [x] h", 40)
    assert shown == "• a\n  ◦ b\n    ▪ c\n\n10. d\n    • e\n      ◦ f\n\n☐ g\n☑ h"


def test_numbers_are_aligned_to_the_right_and_given_alignments_are_kept() -> None:
    table = "|a|b|c|d|\n|---|:--|:-:|---|\n|$1.50|1|m|2nd of 3|\n|−12 %|200|middle|1|"
    assert render(table, 40).split("\n") == [
        "    a | b   |   c    | d",
        "------+-----+--------+---------",
        "$1.50 | 1   |   m    | 2nd of 3",
        "−12 % | 200 | middle | 1",
    ]


def test_a_table_that_is_too_wide_becomes_a_list_of_its_rows() -> None:
    table = "| tea | origin |\n|---|---|\n| green | a small village |\n| black | here |"
    assert render(table, 16) == (
        "tea: green\norigin: a small\n  village\n\ntea: black\norigin: here"
    )
    assert render("| tea | a long head |\n|---|---|", 10) == "tea:\na long\n  head:"


def test_code_has_colours_where_they_are_installed_and_all_its_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "def tea():\n    return '" + "x" * 80 + "'"
    shown = render(f"```python\n{code}\n```", 30)
    assert "\x1b[" in shown
    assert strip_sequences(shown) == code
    assert render(f"```nolanguage\n{code}\n```", 30) == code
    monkeypatch.setitem(sys.modules, "pygments", None)
    assert render(f"```python\n{code}\n```", 30) == code


@given(st.text(alphabet="ab \n*_`>-1.日é&#27;\x1b[m\x9b", max_size=60), st.integers(1, 20))
def test_any_text_fits_and_controls_nothing(markdown: str, columns: int) -> None:
    shown = render(markdown, columns)
    assert "\x1b" not in re.sub("\x1b\\[[0-9]m|\x1b\\[36m", "", shown)
    assert "\x9b" not in shown


@given(st.text(alphabet="ab 日é", max_size=60), st.integers(2, 20))
def test_words_fit_the_width(words: str, columns: int) -> None:
    assert all(width(line) <= columns for line in render(words, columns).split("\n"))
