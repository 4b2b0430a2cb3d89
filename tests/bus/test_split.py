"""Long texts in parts: nothing visible is lost, every part fits, and fences are complete."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.bus.events import Button, Media, MediaKind, OutboundMessage
from nanobot.bus.split import Limits, split_message, split_text, utf16_length
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
    """Return the visible text, without white space and fences."""
    kept = [line for line in text.split("\n") if not FENCE.fullmatch(line)]
    return "".join("".join(kept).split())


def open_fence(part: str) -> str:
    """Return the fence that is still open at the end of a part."""
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


@given(texts, st.integers(200, 500))
def test_every_part_fits_and_no_visible_character_is_lost(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(utf16_length(part) <= limit for part in parts)
    assert "".join(map(visible, parts)) == visible(text)


@given(texts, st.integers(200, 500))
def test_fences_are_closed_in_every_part(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    if len(parts) > 1:
        assert [open_fence(part) for part in parts] == [""] * len(parts)


@given(st.text(max_size=300), st.integers(2, 50))
def test_small_limits_hold_for_any_text(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(utf16_length(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@given(st.lists(st.sampled_from(["\ud83d\ude00", "😀", "a"]), max_size=60).map("".join))
def test_no_cut_falls_inside_a_surrogate_pair(text: str) -> None:
    for part in split_text(text, 7):
        assert not "\udc00" <= part[:1] <= "\udfff"
        assert not "\ud800" <= part[-1:] <= "\udbff"


@given(texts)
def test_a_text_that_fits_stays_as_it_is(text: str) -> None:
    assert split_text(text, 0) == [text]
    assert split_text(text, max(1, utf16_length(text))) == [text]


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


Room = partial(Limits, text=100)
PHOTOS: tuple[frozenset[MediaKind], ...] = (frozenset({"image", "video"}), frozenset({"audio"}))
BUTTONS = (Button("Yes", "yes"),)


def message(content: str, *kinds: MediaKind, buttons: tuple[Button, ...] = ()) -> OutboundMessage:
    """Return a message with a file of each kind."""
    media = tuple(Media(f"{number}", kind) for number, kind in enumerate(kinds))
    return OutboundMessage("fake", "1", content, media, "m1", "t", buttons)


def refs(parts: tuple[OutboundMessage, ...]) -> list[str]:
    """Return the files of each part."""
    return ["".join(file.ref for file in part.media) for part in parts]


def test_the_reply_mark_goes_first_and_buttons_with_the_last_text() -> None:
    parts = split_message(message("a " * 300, "image", buttons=BUTTONS), Room())
    texts = [part for part in parts if part.content]
    assert len(texts) > 2
    assert [part.reply_to for part in parts] == ["m1"] + [""] * (len(parts) - 1)
    assert [part.buttons for part in texts] == [()] * (len(texts) - 1) + [BUTTONS]
    assert refs(parts) == [""] * len(texts) + ["0"]
    assert {part.thread_id for part in parts} == {"t"}


@pytest.mark.parametrize("content", ["", "short", " " * 90])
@pytest.mark.parametrize("files", [0, 1])
def test_a_message_of_one_part_stays_as_it_is(content: str, files: int) -> None:
    kinds: list[MediaKind] = ["image"]
    whole = message(content, *kinds[:files], buttons=BUTTONS)
    (part,) = split_message(whole, Room(caption=100))
    assert (part.media, part.reply_to, part.buttons) == (whole.media, "m1", BUTTONS)
    assert part.content.strip() == content.strip()


def test_files_go_together_as_the_platform_takes_them() -> None:
    kinds: list[MediaKind] = ["image", "video", "audio", "audio", "document", "image", "image"]
    room = Room(files=2, together=PHOTOS)
    assert refs(split_message(message("", *kinds), room)) == ["01", "23", "4", "56"]
    assert refs(split_message(message("", *kinds[:3]), Room(files=0))) == ["012"]
    assert refs(split_message(message("", "image", "image", "image"), room)) == ["01", "2"]


def test_a_text_is_the_caption_of_the_first_files_where_it_fits() -> None:
    room = Room(caption=10, files=2, together=PHOTOS, fits=lambda text, _: "no" not in text)
    first, second = split_message(message("yes", "image", "image", "image"), room)
    assert (first.content, len(first.media), second.content) == ("yes", 2, "")
    for apart in ("yes, but much longer", "no"):
        assert split_message(message(apart, "image"), room)[-1].content == ""


def test_what_grows_beyond_a_caption_is_a_text_of_its_own() -> None:
    room = Room(caption=10, fits=lambda text, limit: 3 * len(text) <= limit)
    assert len(split_message(message("abc", "image"), room)) == 1
    text, file = split_message(message("abcd", "image"), room)
    assert (text.content, file.content, refs((text, file))) == ("abcd", "", ["", "0"])


def test_files_that_go_together_never_carry_buttons() -> None:
    room = Room(caption=10, files=2, together=PHOTOS)
    above, below = split_message(message("yes", "image", "image", buttons=BUTTONS), room)
    assert (above.content, above.buttons, below.buttons) == ("yes", BUTTONS, ())
    parts = split_message(message("", "image", "image", buttons=BUTTONS), room)
    assert (refs(parts), [part.buttons for part in parts]) == (["0", "1"], [(), BUTTONS])


@settings(deadline=None, max_examples=40)
@given(st.lists(words | st.sampled_from(["\n", "word " * 60]), max_size=9).map("".join))
def test_parts_that_do_not_fit_are_cut_again(text: str) -> None:
    parts = split_text(text, 400, lambda part, _: len(visible(part)) <= 9)
    assert all(len(visible(part)) <= 9 for part in parts)
    assert "".join(map(visible, parts)) == visible(text)


def test_fences_are_closed_in_parts_that_were_cut_again_as_well() -> None:
    text = "```python\n" + "print('hello')\n" * 90 + "```\n"
    parts = split_text(text, 4000, lambda part, _: part.count("\n") < 30)
    assert len(parts) > 3
    assert all(part.startswith("```python\n") and open_fence(part) == "" for part in parts)


def test_what_fits_nowhere_still_ends() -> None:
    assert split_text("abc", 10, lambda _, __: False) == ["a", "b", "c"]


def test_the_work_of_asking_what_fits_grows_with_the_text_and_no_faster() -> None:
    asked = 0

    def fits(text: str, limit: int) -> bool:
        nonlocal asked
        assert limit == 4000
        asked += len(text)
        return text.count("x") <= 10

    text = "x word " * 10_000
    assert len(split_text(text, 4000, fits)) < 2 * 1000
    assert asked < 6 * len(text)
