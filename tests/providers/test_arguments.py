"""The arguments of a call are kept, repaired if they have only one meaning, or rejected."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.providers.arguments import first_object, read_arguments, sendable_arguments
from tests.growth import assert_linear

OBJECT = '{"path": "a.txt", "text": "it\\"s \\u00e9\\ud83d\\ude00", "n": [1, -2.5e3, true, null]}'
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Without halves of surrogate pairs: those are a matter of their own.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), JSON)


@given(OBJECTS, st.sampled_from([None, 2]), st.booleans(), st.sampled_from(["", " ", "\n\t"]))
def test_a_valid_object_comes_back_byte_for_byte(
    value: dict[str, object], indent: int | None, as_ascii: bool, around: str
) -> None:
    text = around + json.dumps(value, indent=indent, ensure_ascii=as_ascii) + around
    assert read_arguments(text) == text


@given(OBJECTS)
def test_an_object_in_the_words_of_python_is_repaired(value: dict[str, object]) -> None:
    repaired = read_arguments(repr(value))
    if "\\U" in repr(value):  # an escape that JSON does not have
        assert repaired is None
    else:
        assert repaired is not None
        assert json.loads(repaired) == value


@given(OBJECTS, st.integers(1, 3))
def test_an_object_encoded_up_to_three_times_comes_out_as_it_went_in(
    value: dict[str, object], times: int
) -> None:
    text = inner = json.dumps(value)
    for _ in range(times):
        text = json.dumps(text)
    assert read_arguments(text) == inner


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ("null", "{}"),
        ('""', "{}"),
        ('{"a": 1,}', '{"a": 1}'),
        ('{"a": [1, 2, ], }', '{"a": [1, 2]}'),
        ("{'a': 'b \"c\" d'}", '{"a": "b \\"c\\" d"}'),
        ("{'a': 'it\\'s'}", '{"a": "it\'s"}'),
        ('{"a": True, "b": False, "c": None}', '{"a": true, "b": false, "c": null}'),
        ('{a: 1, "b": 2}', '{"a": 1, "b": 2}'),
        ('{"a": 1} // done', '{"a": 1}'),
        ('{"a": "http://x", /* why */ "b": 2 # because\n}', '{"a": "http://x", "b": 2}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('`{"a": 1}`', '{"a": 1}'),
        ('{"a": "one\ntwo\tthree"}', '{"a": "one\\ntwo\\tthree"}'),
        ('{}{"a": 1}', '{"a": 1}'),
        ('{} {}\n{"a": 1}', '{"a": 1}'),
        ('[{"a": 1}]', '{"a": 1}'),
        ("[{'a': 1,}]", '{"a": 1}'),
        ('{"a": "b"}"', '{"a": "b"}'),
        ('{"a": 1}}', '{"a": 1}'),
        ('{"a": "\\x1b[0m",}', '{"a": "\\u001b[0m"}'),
    ],
)
def test_what_can_only_mean_one_thing_is_repaired(written: str, meant: str) -> None:
    assert read_arguments(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "3",
        "-1.5",
        "true",
        '"text"',
        "[]",
        "[1]",
        '[{"a": 1}, {"b": 2}]',
        '[{"a": 1}, 2]',
        "rm -rf x",
        '{"a": 1} and {"b": 2}',
        '{"a": 1}{"b": 2}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 01}',
        '{"a": 1_000}',
        '{"a": "b" "c": 1}',
        '{"a" "b"}',
        '{"a": rm -rf x}',
        '{"a": "say "hi" now"}',
        "{'a': 'don't'}",
        '{"a": "\\d+"}',
        '{"a": "$HOME" + "x"}',
        '{"a": [1, 2}',
        '{{"a": 1}}',
        '{"a": 5"}',
        '{"a": undefined}',
        '{"a": "b""}',
        '"{"a": "b"}',
    ],
)
def test_what_is_no_object_or_may_mean_several_things_is_refused(written: str) -> None:
    assert read_arguments(written) is None


@given(OBJECTS.filter(bool), st.data())
def test_an_object_that_was_cut_off_is_never_completed(
    value: dict[str, object], data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from([json.dumps(value), repr(value)]))
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    assert read_arguments(cut) is None
    assert read_arguments("[" + cut) is None


def letters(text: str) -> str:
    """Return the letters and digits of a JSON text, ignoring case and escapes."""
    text = re.sub(r"\\[nrtbf]|\\u00[0-9a-f]{2}|\\x[0-9a-f]{2}", "", text)
    return "".join(filter(str.isalnum, text)).lower().replace("none", "null")


@given(st.text(st.sampled_from("{}[]:,\"'ab1 \n\\TrueNone"), max_size=40).map("{".__add__))
def test_a_repair_loses_and_invents_no_letter(text: str) -> None:
    repaired = read_arguments(text)
    if repaired is not None:
        assert isinstance(json.loads(repaired), dict)
        assert letters(repaired) == letters(text)


@given(st.text(max_size=60) | JSON.map(json.dumps))
def test_whatever_comes_in_a_valid_object_comes_out_or_none(text: str) -> None:
    result = read_arguments(text)
    assert result is None or isinstance(json.loads(result), dict)
    assert result is None or read_arguments(result) == result


def test_half_a_character_is_replaced_and_a_byte_of_a_file_name_is_kept() -> None:
    assert read_arguments('{"a": "x\\ud83d", }') == '{"a": "x\\ufffd"}'
    assert read_arguments('{"a": "x\\ud83d"}') == '{"a": "x\\ufffd"}'
    name = '{"path": "caf\\udce9\\ud83d\\ude00\\\\udce9"}'
    assert read_arguments(name) == name
    assert sendable_arguments(name) == '{"path": "caf\\\\udce9\\ud83d\\ude00\\\\udce9"}'
    assert sendable_arguments(OBJECT) == OBJECT


@pytest.mark.parametrize(
    ("begins", "repeats", "ends", "times"),
    [
        ("", '{"a":', "", 300_000),
        ("[" * 1_000_000, "]", "", 1_000_000),
        ('"', '{\\"a\\":', "", 200_000),
        ("", "{}", "", 900_000),
        ('{"a": "', "\\", "", 1_900_001),
        ("", "{", "", 1_900_000),
        ('{"a": "', '" ', "", 900_000),
        ("{'a': '", "x y", "'}", 2_700_000),
        ('{"a": "', "x", '"}', 8_000_000),
        ('{"a": ', "/* ", "", 600_000),
        ('{"a": [', "1,", "]}", 4_000_000),
    ],
)
def test_neither_depth_nor_size_is_a_trouble(
    begins: str, repeats: str, ends: str, times: int
) -> None:
    def make(times: int) -> str:
        return begins + repeats * times + ends

    assert read_arguments(make(times)) in (None, make(times))
    assert_linear(lambda times: read_arguments(make(times)), times // 16)


def test_an_object_within_prose_is_found_with_its_end() -> None:
    text = "Here: {'a': [1,], } and more"
    assert first_object(text, 6) == ('{"a": [1]}', len("Here: {'a': [1,], }"))
    assert first_object("{never closed", 0) is None
    assert first_object("no brace", 0) is None


def test_a_reply_that_was_cut_off_is_not_repaired() -> None:
    assert read_arguments(OBJECT, repair=False) == OBJECT
    assert read_arguments("", repair=False) == "{}"
    assert read_arguments('{"a": 1,}', repair=False) is None
    assert read_arguments('"{}{\\"a\\": 1}"', repair=False) is None
