"""The adapter's stored state of chats."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.errors import SendRefused, StorageError
from nanobot_telegram.chats import Chats


def test_a_group_keeps_its_first_id_however_often_it_moves(tmp_path: Path) -> None:
    chats = Chats(tmp_path)
    chats.move("-1", "-1002")
    chats.move("-1002", "-1003")
    chats.move("-1", "-1003")  # repeated
    for known in (chats, Chats(tmp_path)):
        assert [known.canonical(id) for id in ("-1", "-1002", "-1003", "-9")] == ["-1"] * 3 + ["-9"]
        assert [known.current(id) for id in ("-1", "-1002", "-1003", "-9")] == [-1003] * 3 + [-9]


def test_a_move_is_kept_once_somebody_in_the_group_was_admitted(tmp_path: Path) -> None:
    chats = Chats(tmp_path)
    chats.note_move("-1", "-1001")
    chats.note_move("-2", "-1002")
    chats.flush()
    assert (chats.canonical("-1001"), chats.canonical("-1002")) == ("-1", "-2")
    assert list(tmp_path.iterdir()) == []  # nothing is written for strangers
    chats.admit_group("-1001")
    chats.flush()
    later = Chats(tmp_path)
    assert (later.canonical("-1001"), later.canonical("-1002")) == ("-1", "-1002")
    later.note_move("-1001", "-1003")
    later.flush()
    assert Chats(tmp_path).canonical("-1003") == "-1"


def test_moves_of_strangers_push_out_only_each_other(tmp_path: Path) -> None:
    chats = Chats(tmp_path)
    chats.admit_group("-1")
    chats.note_move("-1", "-1001")
    for number in range(10_000, 10_600):
        chats.note_move(f"-{number}", f"-100{number}")
    chats.note_move("-9", "-1001")  # another group's
    known = [chats.canonical(f"-100{number}") != f"-100{number}" for number in (10_000, 10_599)]
    assert known == [False, True]
    chats.flush()
    for kept in (chats, Chats(tmp_path)):
        assert kept.canonical("-1001") == "-1"
    assert (tmp_path / "chats.json").stat().st_size < 200


def test_moves_never_go_in_a_circle(tmp_path: Path) -> None:
    chats = Chats(tmp_path)
    chats.move("-1", "-2")
    chats.move("-2", "-1")
    chats.move("-3", "-3")
    assert (chats.current("-1"), chats.current("-2"), chats.current("-3")) == (-2, -2, -3)


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    chats = Chats(tmp_path)
    chats.move("-1", "-2")
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "chats.json": 0o600,
    }


@pytest.mark.parametrize("content", [b"", b"{", b'{"moved": 1}', b"\xff"])
def test_a_damaged_file_is_put_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "chats.json").write_bytes(content)
    chats = Chats(tmp_path)
    chats.move("-1", "-2")
    assert Chats(tmp_path).current("-1") == -2
    assert (tmp_path / "chats.damaged").read_bytes() == content


def test_a_move_that_the_disk_refuses_holds_at_once_and_is_written_when_told_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    chats = Chats(folder)
    folder.rmdir()
    with pytest.raises(StorageError):
        chats.move("-1", "-2")
    assert chats.current("-1") == -2
    folder.mkdir()
    chats.move("-1", "-2")  # the update comes again
    assert Chats(folder).current("-1") == -2


def test_a_chat_that_is_gone_is_so_under_all_its_ids_until_it_is_back(tmp_path: Path) -> None:
    chats = Chats(tmp_path)
    chats.move("-1", "-2")
    chats.set_unreachable("-2")
    assert chats.is_unreachable("-1")
    assert not chats.is_unreachable("-3")
    chats.set_reachable("-1")
    assert not chats.is_unreachable("-2")


def test_what_is_no_id_of_telegram_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SendRefused, match="is not a Telegram chat"):
        Chats(tmp_path).current("somebody")
