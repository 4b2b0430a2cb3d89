"""Long texts in parts: nothing visible is lost, every part fits, fences are whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.bus.events import Button, Media, OutboundMessage
from nanobot.bus.split import split_message, split_text, utf16_length
from tests.growth import assert_linear

FENCE = re.compile(r" {0,3}(`{3,16}(?!`)[^`]*|~{3,16}(?!~).*)")

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="`~\r"), max_size=40)
pieces = st.one_of(
    words,
    st.sampled_from(["\n", "\n\n", " ", "😀" * 30, "x" * 300, "word " * 60, "a`b"]),
    st.sampled_from(["\n```python\n", "\n```\n", "\n~~~\n", "\n````\n", "\n``` 😀😀😀😀😀😀😀\n"]),
)
texts = st.lists(pieces, max_size=25).map("".join)


def visible(text: str) -> str:
    """What a reader sees, without white space and fences."""
    kept = [line for line in text.split("\n") if not FENCE.fullmatch(line)]
    return "".join("".join(kept).split())


def open_fence(part: str) -> str:
    """The fence that is still open at the end of a part."""
    mark = ""
    for line in part.split("\n"):
        if FENCE.fullmatch(line):
            found = re.match(r"`+|~+", line.strip())
            assert found is not None
            after = line.strip()[found.end() :]
            if not mark:
                mark = found.group()
            elif found.group().startswith(mark) and not after.strip():
                mark = ""
    return mark


@settings(deadline=None)
@given(texts, st.integers(200, 500))
def test_every_part_fits_and_no_visible_character_is_lost(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(utf16_length(part) <= limit for part in parts)
    assert "".join(map(visible, parts)) == visible(text)


@settings(deadline=None)
@given(texts, st.integers(200, 500))
def test_fences_are_closed_in_every_part(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    if len(parts) > 1:
        assert [open_fence(part) for part in parts] == [""] * len(parts)


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(2, 50))
def test_small_limits_hold_for_any_text(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(utf16_length(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@settings(deadline=None)
@given(st.lists(st.sampled_from(["\ud83d\ude00", "😀", "a"]), max_size=60).map("".join))
def test_no_cut_falls_inside_a_surrogate_pair(text: str) -> None:
    for part in split_text(text, 7):
        assert not "\udc00" <= part[:1] <= "\udfff"
        assert not "\ud800" <= part[-1:] <= "\udbff"


@settings(deadline=None)
@given(texts)
def test_a_text_that_fits_stays_as_it_is(text: str) -> None:
    assert split_text(text, 0) == [text]
    assert split_text(text, max(1, utf16_length(text))) == [text]


@settings(deadline=None)
@given(st.text())
def test_length_is_counted_in_utf16_units(text: str) -> None:
    assert utf16_length(text) == sum(2 if character > "\uffff" else 1 for character in text)


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("one two three\n\nfour five", 20, ["one two three", "four five"]),
        ("one two three\nfour five", 20, ["one two three", "four five"]),
        ("one two three four five", 20, ["one two three four ", "five"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("😀😀😀", 4, ["😀😀", "😀"]),
        ("😀😀", 3, ["😀", "😀"]),
        (" \n" * 30, 10, [""]),
        ("a" + "\n" * 30 + "b", 10, ["a", "b"]),
    ],
)
def test_cuts_prefer_paragraphs_then_lines_then_words(
    text: str, limit: int, parts: list[str]
) -> None:
    assert split_text(text, limit) == parts


def test_code_goes_on_as_code_in_the_next_part() -> None:
    text = "Look:\n```python\n" + "print('hello')\n" * 40 + "```\nThat is all."
    first, *_, last = split_text(text, 300)
    assert first.startswith("Look:\n```python\n")
    assert first.endswith("\n```")
    assert last.startswith("```python\nprint")
    assert last.endswith("```\nThat is all.")


def test_a_longer_fence_is_not_closed_by_a_shorter_one() -> None:
    text = "````\n" + "```\ncode\n```\n" * 60 + "````\n" + "text " * 60
    for part in split_text(text, 300)[:2]:
        assert part.startswith("````\n")
        assert part.endswith("\n````")


@pytest.mark.parametrize(
    "piece", ["`", "```\n", "~~~a\n", "\n", " ", "😀", "```a`\n", "   ```", "` ` `\n"]
)
def test_hostile_texts_take_linear_time(piece: str) -> None:
    assert_linear(lambda length: split_text((piece * length)[:length], 4096), 20_000)


def test_files_and_reply_mark_go_first_and_buttons_last() -> None:
    message = OutboundMessage(
        "fake",
        "1",
        "a " * 300,
        media=(Media("a.png"),),
        reply_to="m1",
        thread_id="t",
        buttons=(Button("Yes", "yes"),),
    )
    first, middle, *_, last = split_message(message, 100)
    assert (first.media, first.reply_to, first.buttons) == (message.media, "m1", ())
    assert (middle.media, middle.reply_to, middle.buttons) == ((), "", ())
    assert (last.media, last.reply_to, last.buttons) == ((), "", message.buttons)
    assert {part.thread_id for part in (first, middle, last)} == {"t"}


@pytest.mark.parametrize("content", ["", "short", " " * 500])
def test_a_message_of_one_part_keeps_everything(content: str) -> None:
    message = OutboundMessage("fake", "1", content, (Media("a"),), "m1", "", (Button("a", "b"),))
    (part,) = split_message(message, 100)
    assert (part.media, part.reply_to, part.buttons) == (message.media, "m1", message.buttons)
    assert part.content.strip() == content.strip()
