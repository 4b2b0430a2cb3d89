from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanobot.session.records import SUFFIX, key_of, stem_of

keys = st.text(st.characters(codec=None), max_size=16) | st.text("abA:_.%/~ ", max_size=12)


@pytest.mark.parametrize(
    ("key", "stem"),
    [
        ("telegram:123", "telegram_123"),
        ("telegram:-100:7", "telegram_-100%3A7"),
        ("cli:my_chat", "cli_my%5Fchat"),
        ("whatsapp:5511@s.us", "whatsapp_5511@s.us"),
        ("..", "%2E."),
        (".", "%2E"),
        ("", "%"),
        ("a/../b", "a%2F..%2Fb"),
        ("cli:é", "cli_%C3%A9"),
    ],
)
def test_a_name_is_readable_and_reversible(key: str, stem: str) -> None:
    assert stem_of(key) == stem
    assert key_of(stem) == key


@given(keys)
@example("\udc80:\ud800")
@example("a\x00b")
def test_every_short_key_comes_back_and_its_file_stays_in_the_folder(key: str) -> None:
    stem = stem_of(key)
    folder = Path("/home/sessions")
    assert key_of(stem) == key
    assert (folder / f"{stem}{SUFFIX}").resolve().parent == folder
    assert (folder / stem).resolve().parent == folder
    assert not stem.startswith(".")


@given(keys, keys)
def test_two_keys_never_share_a_name(one: str, other: str) -> None:
    assert (stem_of(one) == stem_of(other)) == (one == other)


def test_keys_too_long_for_a_file_name_stay_apart() -> None:
    one, other = "cli:" + "ü" * 500, "cli:" + "ü" * 499 + "u"
    assert stem_of(one) != stem_of(other)
    assert len(stem_of(one)) <= 200
    assert stem_of(one).startswith("cli_%C3")


@given(st.text(max_size=60))
def test_any_file_name_yields_some_key(stem: str) -> None:
    assert isinstance(key_of(stem), str)
