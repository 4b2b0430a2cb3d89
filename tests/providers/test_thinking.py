"""Thinking in the text of a reply is not shown, or retracted if it was."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.providers.thinking import ThinkingFilter
from tests.growth import assert_linear


def visible(pieces: Iterable[str]) -> tuple[str, bool]:
    """Return the text that remains visible, and whether there was thinking."""
    reading, text = ThinkingFilter(), ""
    for piece in pieces:
        shown = reading.feed(piece)
        text = shown.text if shown.restart else text + shown.text
    shown = reading.close()
    return (shown.text if shown.restart else text + shown.text), reading.thought


HARMONY = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>"
CALL = (
    "<|start|>assistant<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}<|call|>"
)


@pytest.mark.parametrize(
    ("text", "shown", "thought"),
    [
        ("plain", "plain", False),
        ("  plain ", "  plain ", False),
        ("<thin ice", "<thin ice", False),
        ("<thi", "<thi", False),
        ("", "", False),
        ("<Thinking>hm</thinking> yes", "yes", True),
        ("<think>a</think><think>b</think> yes", "yes", True),
        ("<thought>a</thought>\nyes", "yes", True),
        ("<seed:think>a</seed:think>yes", "yes", True),
        ("[THINK]a[/THINK]yes", "yes", True),
        ("<reasoning>a</reasoning>yes", "yes", True),
        ("<longcat_think>a</longcat_think>\nyes", "yes", True),
        ("<mm:think>a</mm:think>yes", "yes", True),
        ("◁think▷a◁/think▷yes", "yes", True),
        ("<|channel>thought\na<channel|>yes", "yes", True),
        ("<unused94>thought\na<unused95>yes", "yes", True),
        (
            "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>yes<|END_RESPONSE|>",
            "yes",
            True,
        ),
        (
            "<|begin_of_thought|>\na<|end_of_thought|>\n<|begin_of_solution|>\nyes\n"
            "<|end_of_solution|>",
            "yes",
            True,
        ),
        ("<think>a</think>\n<answer>\nyes\n</answer>", "yes", True),
        ("<think>a</think><response>yes</response>", "yes", True),
        ("<think>a</think>the <answer> tag", "the <answer> tag", True),
        ("<answer>yes</answer>", "<answer>yes</answer>", False),
        ("<think>never closed", "", True),
        ("<think>İİİ</think>yes", "yes", True),
        ("<think>a</think>", "", True),
        ("<think>a</think>yes </think> no", "yes </think> no", True),
        ("yes <think>no</think>", "yes <think>no</think>", False),
        ("hm, so\n</think>\n\nyes", "yes", True),
        ("hm</thinking>yes", "yes", True),
        ("hm[/THINK]yes", "yes", True),
        ("</think>yes", "yes", True),
        ("a</think>b</think>c", "b</think>c", True),
        ("a</think><think>b</think>c", "c", True),
        ("hm</think>", "", True),
        ("the tag `</think>` ends it", "the tag `</think>` ends it", False),
        ("```\na</think>\n```\nb", "```\na</think>\n```\nb", False),
        ("~~~\na</think>\n~~~\nb", "~~~\na</think>\n~~~\nb", False),
        ("```\na\n```\nb</think>c", "c", True),
        ("a ` tick\nb</think>c", "c", True),
        (HARMONY + "yes", "yes", True),
        (HARMONY + "yes<|return|>", "yes", True),
        (HARMONY + CALL, CALL, True),
        ("<|channel|>analysis<|message|>never ended", "", True),
        ("<|channel|>analysis<|message|>hm<|end|>" + CALL, CALL, True),
        ("<|channel|>final<|message|>yes", "yes", False),
        (
            "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final"
            "<|message|>Then.",
            "First.\n\nThen.",
            False,
        ),
        ("a < b and c > d [x] </div>", "a < b and c > d [x] </div>", False),
    ],
)
def test_thinking_is_dropped_however_the_text_is_cut(text: str, shown: str, thought: bool) -> None:
    assert visible([text]) == (shown, thought)
    assert visible(text) == (shown, thought)
    for cut in range(len(text)):
        assert visible([text[:cut], text[cut:]]) == (shown, thought)


PARTS = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "[/THINK]", "`", "```", "~~~", "\n", " ", "a", "<"),
        *("<|channel|>", "<|end|>", "analysis", "<|message|>", "<|start|>assistant", "final"),
    ]
)


@given(st.lists(PARTS, max_size=12).map("".join), st.lists(st.integers(0, 80), max_size=9))
def test_what_is_shown_depends_on_the_text_and_not_on_its_pieces(
    text: str, cuts: list[int]
) -> None:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert visible(pieces) == visible([text]) == visible(text)


@given(st.text(max_size=60))
def test_text_without_tags_comes_out_as_it_went_in(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert visible(text) == (text, False)


def test_nothing_of_thinking_between_its_tags_is_ever_shown() -> None:
    reading = ThinkingFilter()
    text = "<think>" + "secret thoughts " * 100 + "</think>\nyes"
    shown = [reading.feed(letter) for letter in text]
    assert "".join(one.text for one in shown) == "yes"
    assert not any(one.restart for one in shown)


def test_what_was_shown_before_a_closing_tag_is_taken_back() -> None:
    reading = ThinkingFilter()
    assert reading.feed("hm, so") == ("hm, so", False)
    assert reading.feed("</thi") == ("", False)
    assert reading.feed("nk>\n") == ("", True)
    assert reading.feed("\nyes") == ("yes", False)
    assert reading.close() == ("", False)


def test_halves_of_a_character_are_joined_and_stray_ones_replaced() -> None:
    assert visible(["a\ud83d", "\ude00b\ud83d"]) == ("a😀b\ufffd", False)


@pytest.mark.parametrize("piece", ["`", " ", "\n", "<", "a"])
@pytest.mark.parametrize("before", ["", "a\n"])
def test_a_model_that_repeats_itself_for_ever_takes_linear_time(piece: str, before: str) -> None:
    assert_linear(lambda times: visible([before, *[piece] * times]), 500)
