"""An answer that streams is printed block by block as it would be at its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.channel.streaming import Answer, Piece, mend
from nanobot_cli.markdown import render

LINES = (
    "", "", "word **bold** and *more*", "- item", "  - inner", "1. first", "> quoted", "# Title",
    "---", "===", "-", "```py", "```", "code = 1", "    indented", "| a | b |", "|---|--:|",
    "| 1 | 2 |", "#tag", "<b>html</b>", "<!-- note", "-->",
)  # fmt: skip
MARKDOWN = st.lists(st.sampled_from(LINES), min_size=1, max_size=14).map("\n".join)


def render_pieces(pieces: Sequence[Piece]) -> str:
    return "\n".join("\n" * piece.follows + render(piece.source, 80) for piece in pieces)


def stream(text: str, sizes: Sequence[int]) -> tuple[Answer, list[Piece]]:
    """Return an answer that got `text` in pieces of these sizes, and what it gave back so far."""
    answer, taken, at = Answer(), list[Piece](), 0
    for size in [*sizes, len(text)]:
        answer.add(text[at : at + size])
        at += size
        taken += answer.take_blocks()
        render(answer.live(100), 80)
    return answer, taken


@given(MARKDOWN, st.lists(st.integers(1, 20), max_size=30))
def test_the_blocks_of_a_stream_are_those_of_the_whole_text(text: str, sizes: list[int]) -> None:
    answer, taken = stream(text, sizes)
    taken += answer.take_rest()
    assert render_pieces(taken).strip() == render(text, 80).strip()


@given(MARKDOWN, MARKDOWN)
def test_a_reply_adds_what_the_stream_lacks(text: str, more: str) -> None:
    final = f"{text}\n\n{more}".rstrip()
    answer, taken = stream(text, [5] * 20)
    rest = answer.complete(final)
    assert rest is not None
    shown = render_pieces([*taken, *rest])
    assert "".join(shown.split()) == "".join(render(final, 80).split())


def test_a_reply_that_differs_from_what_was_taken_is_no_continuation() -> None:
    answer, taken = stream("one\n\ntwo\n", [])
    assert [piece.source for piece in taken] == ["one"]
    assert answer.complete("other\n\ntwo") is None
    assert answer.complete("one\n\nthree") == [Piece("three", True)]


def test_a_long_code_block_is_cut_between_lines_and_stays_code() -> None:
    code = "".join(f"line {number}\n" for number in range(3_000))
    answer, taken = stream(f"```\n{code}```\nend", [1_000] * 40)
    pieces = [*taken, *answer.take_rest()]
    assert len(pieces) > 3
    assert render_pieces(pieces) == f"{code}\nend"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("```\n{}\n", "line 99\n"),
        ("- {}\n", "• line 99"),
        ("| a | b |\n|--|--|\n| {} | |\n", "line 99 |"),
    ],
)
def test_only_the_end_of_a_long_block_is_drawn(line: str, shown: str) -> None:
    first, _, more = line.rpartition("\n")[0].rpartition("\n")
    answer = Answer()
    answer.add(f"{first}\n" + "".join(f"{more}\n".format(f"line {n}") for n in range(100)))
    drawn = render(answer.live(200), 80)
    assert shown.strip() in drawn
    assert "line 60" not in drawn
    assert "|" not in drawn or drawn.startswith("a ")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("some **bol", "some **bol**"),
        ("some **", "some "),
        ("some *it", "some *it*"),
        ("2 * 3", "2 * 3"),
        ("call `f(", "call `f(`"),
        ("see [here](http://exa", "see here"),
        ("text\n#", "text"),
        ("text\n- ", "text"),
        ("text\n``", "text"),
        ("text\n```py", "text"),
        ("```py\nx = **2", "```py\nx = **2"),
        ("text\n| a | b", "text"),
        ("| a | b |\n|-", ""),
        ("| a | b |\n|---|---|\n| 1 ", "| a | b |\n|---|---|\n| 1 "),
    ],
)
def test_marks_that_are_not_complete_are_not_shown(source: str, shown: str) -> None:
    assert mend(source).strip() == shown.strip()
