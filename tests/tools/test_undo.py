"""The undo log by itself."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nanobot.security.paths import Root
from nanobot.tools.files import UndoLog


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def undo(tmp_path: Path, workspace: Path) -> UndoLog:
    return UndoLog(tmp_path / "state" / "undo", Root(workspace))


def test_the_old_content_is_on_disk_before_the_change_is_made(
    undo: UndoLog, tmp_path: Path
) -> None:
    undo.before_change("t1", "a.txt", b"old\0bytes", b"new")
    [record] = (tmp_path / "state" / "undo" / "t1").iterdir()
    assert record.read_bytes().endswith(b"\nold\0bytes")
    assert record.stat().st_mode & 0o777 == 0o600


def test_a_change_that_was_announced_and_never_made_is_harmless(
    undo: UndoLog, workspace: Path
) -> None:
    (workspace / "a.txt").write_bytes(b"old")
    undo.before_change("t1", "a.txt", b"old", b"made")
    (workspace / "a.txt").write_bytes(b"made")
    undo.before_change("t1", "a.txt", b"made", b"never made")
    undo.before_change("t1", "b.txt", None, b"never made")
    assert undo.revert("t1") == [("b.txt", "unchanged"), ("a.txt", "restored")]
    assert (workspace / "a.txt").read_bytes() == b"old"


def test_a_link_put_in_place_of_a_file_is_not_followed(
    undo: UndoLog, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_bytes(b"new")
    undo.before_change("t1", "a.txt", b"old", b"new")
    (workspace / "a.txt").symlink_to(tmp_path / "outside")
    assert undo.revert("t1") == [("a.txt", "failed")]
    assert (tmp_path / "outside").read_bytes() == b"new"


def test_a_damaged_record_spoils_only_itself(
    undo: UndoLog, workspace: Path, tmp_path: Path
) -> None:
    undo.before_change("t1", "a.txt", None, b"new")
    (workspace / "a.txt").write_bytes(b"new")
    undo.before_change("t1", "b.txt", None, b"new")
    (tmp_path / "state" / "undo" / "t1" / "000002").write_bytes(b"{}")
    assert dict(undo.revert("t1"))["a.txt"] == "removed"


@pytest.mark.parametrize("turn_id", ["", ".", "..", "../x", "a/b", "a\0b", ".hidden", "x" * 300])
def test_only_plain_turn_ids_are_taken(undo: UndoLog, turn_id: str) -> None:
    with pytest.raises(ValueError, match="not the id of a turn"):
        undo.before_change(turn_id, "a.txt", None, b"new")
    with pytest.raises(ValueError, match="not the id of a turn"):
        undo.revert(turn_id)


def test_only_the_latest_turns_are_kept(undo: UndoLog, tmp_path: Path) -> None:
    assert undo.turns() == []
    undo.prune()
    for number in range(5):
        undo.before_change(f"t{number}", "a.txt", b"old", b"new")
        folder = tmp_path / "state" / "undo" / f"t{number}"
        os.utime(folder, (number, number))
    assert undo.turns() == ["t4", "t3", "t2", "t1", "t0"]
    undo.prune(keep=2)
    assert undo.turns() == ["t4", "t3"]
    assert undo.revert("t0") == []


def test_turns_that_forget_the_same_ones_do_not_get_in_each_others_way(
    undo: UndoLog, tmp_path: Path
) -> None:
    for number in range(60):
        undo.before_change(f"t{number}", "a.txt", b"old", b"new")
    with ThreadPoolExecutor(4) as threads:
        logs = [UndoLog(tmp_path / "state" / "undo", Root(tmp_path)) for _ in range(4)]
        list(threads.map(lambda log: log.prune(keep=0), logs))
    assert undo.turns() == []
