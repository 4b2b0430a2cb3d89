"""Marks are formatted only when intended, and no word is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanobot.bus.events import Button
from nanobot.bus.split import split_text, utf16_length
from nanobot_whatsapp.markup import TEXT_LIMIT, fits, render, with_choices
from tests.growth import assert_linear

HAIR, JOINER = "\u200a", "\u2060"
UNSEEN = str.maketrans("", "", HAIR + JOINER)


def find_formatted(line: str) -> list[str]:
    """Return the parts of a line that a phone formats as bold, italic, struck or code, if it
    formats as much as possible."""
    edges = (
        rf"(?<![A-Za-z0-9]){re.escape(mark)}(?=\S)[^\n]*?(?<=\S){re.escape(mark)}(?![A-Za-z0-9])"
        for mark in "*_~"
    )
    return [found[0] for edge in (*edges, r"`[^`\n]*[^`\s]`") for found in re.finditer(edge, line)]


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** *it* _it_ ~~st~~ `co*de*`", "*bold* _it_ _it_ ~st~ `co*de*`"),
        ("**a *b* c**", "*a _b_ c*"),
        ("**two\nlines**", "*two*\n*lines*"),
        ("**Use `x` now**", "*Use* `x` *now*"),
        ("# Title *x*\ntext", "*Title _x_*\n\ntext"),
        ("foo**bar**baz", f"foo{HAIR}*bar*{HAIR}baz"),
        ("`a``b`", f"```a`{JOINER}`b```"),
        ("[site](https://a.example/x_y_)", "site (https://a.example/x_y_)"),
        ("**[site](https://a.example)**", "*site* (https://a.example)"),
        ("<https://a.example> <ada@a.example>", "https://a.example ada@a.example"),
        ("[https://a.example](https://a.example)", "https://a.example"),
        ("![plan](https://a.example/p.png)", "plan (https://a.example/p.png)"),
        ("![](https://a.example/p.png)", "https://a.example/p.png"),
        ("[the docs][1]\n\n[1]: https://a.example", "[the docs][1]\n\n[1]: https://a.example"),
        ("- a\n- b\n  - c\n\ntext", "- a\n- b\n  ◦ c\n\ntext"),
        ("3) x\n3) y\n   z", "3) x\n4) y\n   z"),
        ("- [ ] open\n- [x] done", "☐ open\n☑ done"),
        ("1. - a\n2.", "1. - a\n2."),
        ("> a\n>\n> b\n\nc", "> a\n> b\n\nc"),
        ("> > deep", "> > deep"),
        ("```python\n*x*\n\n y\n```", "```\n*x*\n\n y\n```"),
        ("```py app.py\nx\n```", "app.py\n\n```\nx\n```"),
        ("````\n```\n````", f"```\n`{JOINER}`{JOINER}`\n```"),
        ("- x\n  ```\n  code\n  ```", "- x\n```\ncode\n```"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("<b>x</b>\n\n<div>\ny\n</div>", "<b>x</b>\n\n<div>\ny\n</div>"),
        ("| a | b |\n|--|--:|\n| *1* | 22 |", "```\na |  b\n--+---\n1 | 22\n```"),
        ("| 東 | b |\n|--|--|\n| xx | c |", "```\n東 | b\n---+--\nxx | c\n```"),
        ("|a|\n|-|\n|b|c|", "```\n|a|\n|-|\n|b|c|\n```"),
        (r"\> x", f"{JOINER}> x"),
        (r"\- x", f"{JOINER}- x"),
        (r"2\*3\*4 a_b_c ~5", "2*3*4 a_b_c ~5"),
        ("", ""),
        ("[", "["),
        ("\ud83d\ude00 \udc00", "\U0001f600 \ufffd"),
        ("a\r\nb", "a\nb"),
    ],
)
def test_it_looks_so(markdown: str, shown: str) -> None:
    assert render(markdown) == shown


@pytest.mark.parametrize(
    "text", ["*no*", "__init__", "~~x~~", "`x`", "***", "(_a_)", "*a* and *b*", "```x```", "é_x_"]
)
def test_what_stands_for_itself_is_seen_and_makes_nothing(text: str) -> None:
    shown = render(re.sub(r"([*_~`])", r"\\\1", text))
    assert shown.translate(UNSEEN) == text
    assert find_formatted(shown) == []


@pytest.mark.parametrize(
    ("markdown", "meant"),
    [
        (r"\*a **b**", "*b*"),
        (r"**a\* b**", f"*a{HAIR}* b*"),
        (r"**a\***", f"*a{HAIR}**"),
        (r"\_ *x_y* _z", "_x_y_"),
        (r"*x(\_a*", f"_x({HAIR}_{HAIR}a_"),
    ],
)
def test_what_stands_for_itself_does_not_end_what_is_meant(markdown: str, meant: str) -> None:
    assert find_formatted(render(markdown)) == [meant]


@given(st.text("ab *_~`\n", max_size=40))
@example("a__a")
@example("a__b__c")
def test_no_text_that_is_escaped_makes_anything(text: str) -> None:
    words = re.sub(r"(?m)^ +", "", text)  # indented text is code
    shown = render(re.sub(r"([*_~`])", r"\\\1", words))
    assert [found for line in shown.split("\n") for found in find_formatted(line)] == []


@given(st.lists(st.sampled_from([*"abc \n*_~>[]()|!<#", "`", "- ", "1. ", "\n\n", "|-", ": "])))
def test_no_word_vanishes(pieces: list[str]) -> None:
    markdown = "".join(pieces)
    shown = render(markdown).translate(UNSEEN)
    assert sorted(re.findall("[abc]", shown)) == sorted(re.findall("[abc]", markdown))
    assert bool(shown.strip()) == bool(markdown.strip())


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "![",
        "**a ",
        "*_",
        "`",
        "> ",
        "- ",
        "|a",
        "a|b\n-|-\n",
        "[a](",
        "<a",
        "~~a",
        "\\*",
        "\n",
    ],
)
def test_hostile_text_costs_no_more_than_its_length(piece: str) -> None:
    def render_long(characters: int) -> str:
        return render(piece * (characters // len(piece)))

    assert_linear(render_long, 500)  # up to the longest that is parsed at all
    assert_linear(render_long, 2_000)


def test_what_fits_is_measured_as_it_is_shown() -> None:
    assert fits("**" + "x" * 8 + "**", 10)
    assert not fits("[a](https://a.example)", 20)
    assert fits("\U0001f600" * 5, 10)
    assert not fits("\U0001f600" * 5, 9)


def test_a_long_answer_is_cut_into_parts_that_fit() -> None:
    row = "| **word** | `code` | [link](https://a.example/page) |\n"
    answer = "# Title\n\n" + row + "|-|-|-|\n" + row * 150
    parts = split_text(answer, TEXT_LIMIT, fits)
    assert len(parts) > 1
    assert all(utf16_length(render(part)) <= TEXT_LIMIT for part in parts)


def test_choices_are_told_unless_the_text_tells_them() -> None:
    buttons = (Button("Yes", "/approve K7"), Button("No", "/deny K7"))
    assert with_choices("Send `/approve K7`.", buttons) == "Send `/approve K7`.\n\n• No: /deny K7"
    assert with_choices("Send /approve K7 or /deny K7.", buttons).endswith("/deny K7.")
    assert with_choices("", buttons[:1]) == "• Yes: /approve K7"
