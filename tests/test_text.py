"""Untrusted text that is printed or reviewed hides nothing, is not reversed or drawn over, and
stays readable in every script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.text import MOST_MARKS, clean, escape_invisible, one_line
from tests.hidden import find_hidden

READABLE = (
    "plain text,\tand a\nline",
    "grüße é è ñ",
    "Tiếng Việt ở NFD: ệ",
    "شَمْسٌ and می‌خواهم",
    "بِسْمِ ٱللَّٰهِ",
    "בְּרֵאשִׁית בָּרָא",
    "हिन्दी क्‍ष, র‍্যাব, ශ්‍රී, ന്‍",
    "สวัสดี น้ำ",
    "རྒྱལ་པོའི་",
    "日本語、葛󠄀城 中文　한국어",
    "👩‍👩‍👧 ❤️ 🏳️‍🌈 🏳️‍⚧️ 🧔🏽‍♂️ 1️⃣ #️⃣ 🇩🇪 🏴󠁧󠁢󠁷󠁬󠁳󠁿",
    "a ≠ b, a ≠ b",
    "⠓⠑⠇⠇⠕⠀⠺",
)
"""Texts that `clean` leaves unchanged."""

HIDDEN = {
    "bidi": "ab\u202ec\u2066d\u200ee\u061cf",
    "zero width": "a\u200bb\ufeffc\u2060d\xade\u034ff\u200c\u200d",
    "fillers": "a\u115fb\u3164c\uffa0d\u17b4e",
    "controls": "a\x07b\x08c\x00d\x7fe\x9ff",
    "escapes": "\x1b[31ma\x1b[0mb\x1b]0;title\x07c\x1b]8;;http://x\x1b\\d",
    "overlays": "a\u0336b\u0338c\u20d2d\u20e0e\u0489f\u20e3",
    "selectors": "a" + "".join(map(chr, range(0xE0100, 0xE0120))) + "\ufe0fb",
    "many selectors": "\U0001f600" + "\ufe0f" * 16,
    "tags": "a\U000e0041\U000e007fb\U0001f3f4" + "\U000e0061" * 40,
    "lines": "a\u2028b\u2029c\rd",
    "nothing": "a\uffffb\ufff9c",
    "surrogates": "a\ud800b",
    "leading marks": "\u0336\u0301a",
    "many marks": "a" + "\u0301" * 50 + "b" + "\u0337\u0362" * 20 + "ก" + "\u0e47" * 30,
    "marks after joiners": "\u0915" + "\u094d\u200d" * 30,
}


@pytest.mark.parametrize("text", READABLE)
def test_what_people_write_in_any_script_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("kind", HIDDEN)
def test_nothing_is_hidden_in_what_is_printed(kind: str) -> None:
    shown = clean(HIDDEN[kind])
    assert find_hidden(shown) == ""
    assert not set("ab") - set(shown) or kind in (
        "many selectors",
        "leading marks",
        "marks after joiners",
    )
    assert find_hidden(one_line(HIDDEN[kind])) == ""
    assert "\n" not in one_line(HIDDEN[kind])


@given(st.text(st.characters() | st.sampled_from("".join(HIDDEN.values()))))
def test_cleaning_again_changes_nothing(text: str) -> None:
    once = clean(text)
    assert find_hidden(once) == ""
    assert clean(once) == once


@pytest.mark.parametrize(
    "unit",
    ["\u0301", "\ufe0f", "\u200d", "\u200b", "\U0001f3f4\U000e0061", "\x1b[", "\u0915\u094d\u200d"],
)
def test_a_megabyte_is_cleaned_in_linear_time(unit: str) -> None:
    assert len(clean(unit * 100_000)) <= 600_000


def test_a_long_text_without_marks_is_not_looked_at_letter_by_letter() -> None:
    for letters in ("Größe und Länge. ", "Съешь ещё этих булок. ", "日本語の文章、한국어 문장。"):
        text = letters * 20_000
        assert clean(text) is text


@pytest.mark.parametrize("kind", HIDDEN)
def test_in_a_question_all_of_it_is_written_out(kind: str) -> None:
    shown = escape_invisible(HIDDEN[kind])
    assert find_hidden(shown, marks=3) == ""
    assert "\\" in shown


def test_a_question_in_any_script_keeps_its_marks() -> None:
    for text in ("Tiếng Việt ệ", "شَمْسٌ", "בְּרֵאשִׁית", "สวัสดี น้ำ", "हिन्दी"):
        assert escape_invisible(text) == text


def test_a_letter_carries_few_marks_and_a_question_fewer() -> None:
    zalgo = "a" + "\u0301" * 50
    assert clean(zalgo) == "a" + "\u0301" * MOST_MARKS
    shown = escape_invisible(zalgo)
    assert sum(map(unicodedata.combining, shown)) < sum(map(unicodedata.combining, clean(zalgo)))
    assert shown.count("\\u0301") == 47
