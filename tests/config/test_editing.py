"""Changing a configuration in place: everything else stays byte for byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.config.yamltext import ConfigChange, edit_text, mask_values, value_at
from nanobot.errors import NanobotError

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def test_a_value_is_replaced_and_its_neighbours_stay_as_they_were() -> None:
    text = "# mine\nagent:   {on_busy:  queue}  # so\nmodel:\n   name:  'a'   # why\n   x: 0123\n"
    new = edit_text(text.replace("   x: 0123\n", ""), [ConfigChange(("model", "name"), "qwen3:8b")])
    assert new == "# mine\nagent:   {on_busy:  queue}  # so\nmodel:\n   name: qwen3:8b   # why\n"


def test_a_new_key_goes_below_its_section() -> None:
    text = "model:\n    name: a  # one\n    # base_url: nothing\nlog:\n  level: debug\n"
    change = ConfigChange(("model", "base_url"), "http://127.0.0.1:1/v1")
    assert edit_text(text, [change]) == (
        "model:\n    name: a  # one\n    base_url: http://127.0.0.1:1/v1\n"
        "    # base_url: nothing\nlog:\n  level: debug\n"
    )


def test_a_new_section_goes_to_the_end() -> None:
    path = ("channels", "telegram", "token")
    assert edit_text("log:\n  level: debug", [ConfigChange(path, "${TELEGRAM_TOKEN}")]) == (
        "log:\n  level: debug\n\nchannels:\n  telegram:\n    token: ${TELEGRAM_TOKEN}\n"
    )
    assert edit_text("", [ConfigChange(("log", "level"), "debug")]) == "log:\n  level: debug\n"
    assert edit_text("# mine\n", [ConfigChange(("log", "level"), "debug")]) == (
        "# mine\n\nlog:\n  level: debug\n"
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("owner:\n  # none\nlog:\n", 'owner:\n  telegram: ["7"]\n  # none\nlog:\n'),
        ("owner: null # x\n", 'owner: # x\n  telegram: ["7"]\n'),
        ("owner:\n  telegram:\n    - 1\n  b: []\n", 'owner:\n  telegram: ["7"]\n  b: []\n'),
        ("owner:\n  telegram:\n  - 1\n  - 2\n  b: []\n", 'owner:\n  telegram: ["7"]\n  b: []\n'),
        ("owner:\r\n  telegram: # me\r\n  - 1", 'owner:\r\n  telegram: ["7"] # me'),
        ("owner:\n  telegram:\n  - 1 # me\n", 'owner:\n  telegram: ["7"] # me\n'),
        ("  log: {}\n", '  log: {}\n\n  owner:\n    telegram: ["7"]\n'),
        ("owner:\n  telegram:   # me\n", 'owner:\n  telegram: ["7"]   # me\n'),
        ("owner: {}\n", 'owner:\n  telegram: ["7"]\n'),
        ("owner:", 'owner:\n  telegram: ["7"]\n'),
        ("owner:\r\n  b: [x]\r\n", 'owner:\r\n  b: [x]\r\n  telegram: ["7"]\n'),
        ("owner:\n  b: |\n    x\n", 'owner:\n  b: |\n    x\n  telegram: ["7"]\n'),
    ],
)  # fmt: skip
def test_every_way_of_writing_a_section_is_understood(text: str, wanted: str) -> None:
    assert edit_text(text, [ConfigChange(("owner", "telegram"), ("7",))]) == wanted


def test_line_ends_of_two_kinds_stay_as_they_are() -> None:
    text = "model:\r\n  name: a\r\nlog:\n  level: debug\n"
    assert edit_text(text, [ConfigChange(("model", "name"), "b")]) == text.replace("a\r", "b\r")


def test_the_example_takes_every_kind_of_change_and_loses_nothing() -> None:
    text = EXAMPLE.read_text()
    changes = [
        ConfigChange(("model", "provider"), "openai"),
        ConfigChange(("model", "name"), "yes"),
        ConfigChange(("agent", "timezone"), "Europe/Berlin"),
        ConfigChange(("owner", "telegram"), ("12345",)),
        ConfigChange(("channels", "telegram", "enabled"), True),
        ConfigChange(("model", "context_window"), 32_768),
    ]
    new = edit_text(text, changes)
    assert value_at(new, ("model", "name")) == "yes"
    lost = Counter(text.splitlines()) - Counter(new.splitlines())
    assert list(lost.elements()) == [
        '  name: ""', "  context_window: 128000", "  provider:", '  timezone: ""',
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["model: gpt\n", "model: {provider: offline}\n", "log:\n  level: debug\n...\n"]
)
def test_what_only_a_person_can_change_is_said(text: str) -> None:
    with pytest.raises(NanobotError) as caught:
        edit_text(text, [ConfigChange(("model", "name"), "other")])
    assert caught.value.hint == "Add it by hand: model.name: other"


@settings(max_examples=40)
@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=30))
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    new = edit_text("model:\n  name: old # why\n", [ConfigChange(("model", "name"), text)])
    assert value_at(new, ("model", "name")) == text
    assert new.endswith(" # why\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a:\n  b: 1 # x\n  c: 2\n", "a:\n  c: 2\n"),
        ("a:\n  # about b\n  b:\n    - 1\n    - 2\n\n  # about c\n  c: 2\n", None),
        ("a:\n  b: 1\nc: 2\n", "a:\nc: 2\n"),
        ("a:\n  b: |\n    x\n    y\n  c: 2\n", "a:\n  c: 2\n"),
        ("a:\n  c: 2\n  b: {x: [1,\n      2]}", "a:\n  c: 2\n"),
        ("a:\n  b:\n  c: 2\n", "a:\n  c: 2\n"),
        ("a:\n  c: 2\n", "a:\n  c: 2\n"),
        ("c: 2\n", "c: 2\n"),
        ("", ""),
    ],
)
def test_a_key_is_taken_out_with_all_beneath_it(text: str, wanted: str | None) -> None:
    kept = "a:\n  # about b\n\n  # about c\n  c: 2\n" if wanted is None else wanted
    assert edit_text(text, [ConfigChange(("a", "b"), None)]) == kept


@pytest.mark.parametrize("text", ["a: {b: 1, c: 2}\n", "a:\n  b: &x 1\nc: *x\n"])
def test_what_cannot_be_taken_out_alone_stays(text: str) -> None:
    with pytest.raises(NanobotError, match="cannot be changed automatically"):
        edit_text(text, [ConfigChange(("a", "b"), None)])


_NESTED = st.recursive(
    st.text("ab: #-\"'[{", max_size=6) | st.integers() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("xyz", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(_NESTED)
def test_what_is_set_and_taken_out_again_leaves_the_text_as_it_was(value: Any) -> None:
    text = EXAMPLE.read_text()
    change = ConfigChange(("log", "extra"), value)
    new = edit_text(text, [change])
    assert value_at(new, ("log", "extra")) == change.as_read()
    assert edit_text(new, [ConfigChange(("log", "extra"), None)]) == text


def test_masking_touches_only_what_it_is_asked_to() -> None:
    text = 'a: "x" # x\nb:\n  - &r x\n  - *r\nc: |\n  x\n  y\nd: x\n'
    shown = mask_values(text, lambda path, _: None if path == ("d",) else "…")
    assert shown == "a: … # x\nb:\n  - …\n  - *r\nc: …\nd: x\n"
