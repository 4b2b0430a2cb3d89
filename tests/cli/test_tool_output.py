"""The end of a tool's output, from pieces of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nanobot_cli.text import OutputTail


def tail(*pieces: str) -> OutputTail:
    output = OutputTail()
    for piece in pieces:
        output.feed(piece)
    return output


def test_what_goes_before_the_last_lines_is_counted() -> None:
    assert tail("one\ntwo\nthree\nfour\n").lines(3, 80) == ["… 2 earlier lines", "three", "four"]
    assert tail("one\ntwo\nthree\n").lines(3, 80) == ["one", "two", "three"]


def test_a_line_that_is_written_over_is_shown_as_it_is_now() -> None:
    assert tail("10%", "\r20", "%\r\nnext\r").lines(5, 80) == ["20%", "next"]


def test_what_could_control_the_terminal_is_gone() -> None:
    assert tail("a\x1b[3", "1mb\tc\x07").lines(5, 80) == ["ab  c"]


@given(st.lists(st.text(st.sampled_from("ab \n\r\x1b[m"), max_size=30)), st.integers(1, 4))
def test_there_are_never_more_lines_than_asked_for_nor_wider_ones(
    pieces: list[str], most: int
) -> None:
    lines = tail(*pieces).lines(most, 9)
    assert len(lines) <= most
    assert all(len(line) <= 9 for line in lines if not line.startswith("…"))
    assert lines == tail("".join(pieces)).lines(most, 9)
