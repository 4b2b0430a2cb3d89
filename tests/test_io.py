"""A small file is replaced as a whole, and only its owner can read it."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest

from nanobot.errors import StorageError
from nanobot.io import (
    FENCE,
    MOST_DESCRIPTORS,
    hold_lock,
    own_inode,
    raise_descriptor_limit,
    replace_file,
    temporary_name,
)


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "chats.json"
    path.write_text("much more than comes after it")
    path.chmod(0o644)
    replace_file(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_crash_left_half_written_does_no_harm(tmp_path: Path) -> None:
    path, half = tmp_path / "chats.json", tmp_path / temporary_name("chats.json")
    half.write_text("half of what was to come, and open to all")
    half.chmod(0o644)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_where_it_is_refused_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text("old")
    (tmp_path / temporary_name("chats.json")).mkdir()
    with pytest.raises(OSError, match="nanobot-tmp"):
        replace_file(path, b"new")
    assert path.read_text() == "old"


def test_a_link_where_the_new_content_is_written_is_not_followed(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "chats.json", tmp_path / "elsewhere"
    elsewhere.write_text("somebody's")
    (tmp_path / temporary_name("chats.json")).symlink_to(elsewhere)
    replace_file(path, b"new")
    assert (path.read_text(), elsewhere.read_text()) == ("new", "somebody's")


def test_a_lock_is_held_by_one_and_free_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with hold_lock(path), pytest.raises(BlockingIOError), hold_lock(path):
        pass
    with hold_lock(path), pytest.raises(StorageError), hold_lock(path / "below"):
        pass


def test_a_worker_appends_only_to_files_that_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FENCE, "epoch", ".7")
    monkeypatch.setattr(FENCE, "made", set())
    path = tmp_path / "notes.md"
    path.write_text("one\n")
    before = path.stat().st_ino
    own_inode(path)
    mine = path.stat()
    own_inode(path)
    assert path.stat().st_ino == mine.st_ino != before
    # Another file system has the same numbers.
    assert FENCE.made == {(mine.st_dev, mine.st_ino)}
    assert path.read_text() == "one\n"


def test_the_limit_of_descriptors_is_raised_within_reason() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = min(before[1], MOST_DESCRIPTORS)
    try:
        for soft in (512, allowed):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
            raise_descriptor_limit()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
