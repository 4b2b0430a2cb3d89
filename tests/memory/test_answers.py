"""JSON objects in a model's answer are found, and repaired like arguments of calls."""

from __future__ import annotations

import pytest

from nanobot.memory.answers import json_object
from tests.growth import assert_linear

EDITS = {"edits": [{"old": "a", "new": "it's"}]}


@pytest.mark.parametrize(
    "answer",
    [
        '{"edits": [{"old": "a", "new": "it\'s"}]}',
        'Here they are:\n```json\n{"edits": [{"old": "a", "new": "it\'s",},]}\n```\nDone {so}.',
        "{'edits': [{'old': 'a', 'new': 'it\\'s'}]}",
        '[{"edits": [{"old": "a", "new": "it\'s"}]}]',
        '"{\\"edits\\": [{\\"old\\": \\"a\\", \\"new\\": \\"it\'s\\"}]}"',
        '{} {"other": 1,} {"edits": [{"old": "a", "new": "it\'s"}]}',
    ],
)
def test_the_object_with_the_key_is_found_in_whatever_form(answer: str) -> None:
    assert json_object(answer, {"edits"}) == EDITS


def test_an_outer_object_that_needs_repair_comes_before_the_objects_inside_of_it() -> None:
    assert json_object("{'a': [{\"b\": 1}]}") == {"a": [{"b": 1}]}


@pytest.mark.parametrize("answer", ["", "no", '{"edits": [{"old": "cut', "[1]", "3"])
def test_an_answer_without_the_object_has_none(answer: str) -> None:
    assert json_object(answer, {"edits"}) is None


@pytest.mark.parametrize(("text", "times"), [("{", 60_000), ('{"a": ', 3_000), ("{'a", 20_000)])
def test_a_long_answer_of_braces_takes_no_long_time(text: str, times: int) -> None:
    assert_linear(lambda times: json_object(text * times, {"edits"}), times)
