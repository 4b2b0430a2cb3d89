"""What passes for the person's own text, to the letter."""

from __future__ import annotations

import pytest

from nanobot.memory.grounds.quoting import is_quoted
from nanobot.messages import ATTACHED, Message
from tests.growth import assert_linear

SAID = "Tell Ana: we are late,  sorry!\nThe code is 42."


def quoted(text: str, *said: str) -> bool:
    return is_quoted(text, [Message("user", one) for one in said or (SAID,)])


@pytest.mark.parametrize(
    "text",
    [
        SAID,
        "we are late",
        "We are late, sorry!",
        "we are late,  sorry!",
        "sorry! The code is 42.",
        " sorry!\nThe code ",
    ],
)
def test_a_piece_of_what_the_person_wrote_is_a_quotation(text: str) -> None:
    assert quoted(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "late",
        "We are late.",
        "we are Late",
        "we  are late",
        "we\u2003are late",
        "we are late 🍎",
        "we are late\u200b",
        "we are late\U000e0041",
        "we are l",
        "e are late",
        "are we late",
        "we: are late",
        "!?.,",
    ],
)
def test_whatever_is_added_or_changed_makes_it_none(text: str) -> None:
    assert not quoted(text)


def test_one_word_is_a_quotation_where_it_is_the_whole_message() -> None:
    assert quoted("yes", "Yes")
    assert quoted("我迟到了", "我迟到了")
    assert not quoted("late", "we are late")


def test_words_of_several_messages_or_of_others_are_none() -> None:
    assert not quoted("we are late", "we are", "late")
    others = [
        Message("user", "we are late", origin="forwarded"),
        Message("assistant", "we are late"),
        Message("user", "mine\n[quote: we are late]", origin=ATTACHED),
    ]
    assert not is_quoted("we are late", others)


@pytest.mark.parametrize("piece", ["a ", "a b", "aa", " "])
def test_the_work_grows_with_the_text(piece: str) -> None:
    assert_linear(lambda size: quoted("x " + piece * 20, piece * size), 200)
