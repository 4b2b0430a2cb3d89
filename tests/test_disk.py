"""A small file is replaced as a whole, for its owner's eyes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nanobot.disk import replace


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "chats.json"
    path.write_text("much more than comes after it")
    path.chmod(0o644)
    replace(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_crash_left_half_written_does_no_harm(tmp_path: Path) -> None:
    path, half = tmp_path / "chats.json", tmp_path / "chats.json.new"
    half.write_text("half of what was to come, and open to all")
    half.chmod(0o644)
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_names_alike_but_for_their_endings_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "people.json.new").mkdir()
    replace(tmp_path / "people.txt", b"new")
    assert (tmp_path / "people.txt").read_bytes() == b"new"


def test_where_it_is_refused_the_old_file_stays(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "chats.json", tmp_path / "elsewhere"
    path.write_text("old")
    elsewhere.write_text("somebody's")
    (tmp_path / "chats.json.new").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"chats\.json\.new"):
        replace(path, b"new")
    assert (path.read_text(), elsewhere.read_text()) == ("old", "somebody's")
