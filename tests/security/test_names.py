"""Text for review hides nothing."""

from __future__ import annotations

import sys
import unicodedata
from itertools import chain

import regex  # type: ignore[import-untyped]  # what the tokenizer uses; it knows all properties
from hypothesis import given
from hypothesis import strategies as st

from nanobot.text import escape_for_review, escape_invisible

HIDDEN = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{White_Space}\p{C}--[ \n\t]]", regex.V1)
BLANK_GLYPHS = "\u2800\u3164\uffa0\u115f\U00016fe4\U0001d159\U00013441\U00013442"


def every_character() -> str:
    """Return all planes with characters, and one in 251 of the empty or private ones."""
    planes = (range(0xD800), range(0xE000, 0x33480), range(0xE0000, 0xE1000))
    return "".join(map(chr, (*chain(*planes), *range(0x33480, sys.maxunicode + 1, 251))))


def test_every_character_that_cannot_be_seen_is_written_out() -> None:
    shown = escape_invisible(every_character())
    assert HIDDEN.findall(shown)[:9] == []
    assert [character for character in BLANK_GLYPHS if character in shown] == []


def test_what_can_be_seen_stays() -> None:
    ordinary = "naïve Grüße 你好,世界。 привет שלום مرحبا नमस्ते ✅ 🙂 é"
    assert escape_invisible(ordinary) == ordinary
    letters = "".join(
        character
        for character in every_character()
        if unicodedata.category(character) in {"Lu", "Ll", "Nd", "Sc"}
    )
    assert escape_invisible(letters) == letters


@given(st.text(alphabet=st.sampled_from("a \t\n\r\u2028\u3000\u2800\x0b#")))
def test_no_text_is_far_from_the_next(text: str) -> None:
    for lines in (escape_for_review(text), escape_for_review(text * 20)):
        assert " " * 33 not in lines.replace("\t", " ")
        assert "\n" * 4 not in lines.replace(" ", "").replace("\t", "")
