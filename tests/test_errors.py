"""The advice for a failure fits its cause."""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
from pathlib import Path

import pytest

from nanobot.bus.sqlite import storage_error
from nanobot.errors import StorageError
from nanobot.io import hold_lock, storage_errors

ADVICE = {
    "Free some space": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "mounted read-only": (errno.EROFS,),
    "chown": (errno.EACCES, errno.EPERM),
    "Put it back": (errno.ENOENT,),
    "Something else is in its place": (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP),
    "does not support this": (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENAMETOOLONG),
    "out of memory or open files": (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    "dmesg": (errno.EIO, errno.ESTALE, errno.ENOTCONN),
}


@pytest.mark.parametrize(
    ("words", "number"), [(words, number) for words, of in ADVICE.items() for number in of]
)
def test_each_cause_has_its_own_advice(words: str, number: int) -> None:
    error = StorageError.of("/srv/home/x", OSError(number, os.strerror(number)))
    assert words in error.hint
    assert [other for other in ADVICE if other in error.hint] == [words]


def test_an_unknown_cause_gets_no_advice_that_does_not_fit() -> None:
    error = StorageError.of("/srv/home/x", OSError(errno.EXDEV, os.strerror(errno.EXDEV)))
    assert error.hint == StorageError("x", "odd").hint == "Stored data is not lost."


def test_a_command_to_copy_holds_the_path_as_one_word() -> None:
    path = Path("/home/ada/a file; rm -r $(x)")
    hint = StorageError.of(path, OSError(errno.EACCES, "Permission denied")).hint
    commands = [shlex.split(part) for part in hint.split("`")[1::2]]
    assert [command[-1] for command in commands] == [str(path)] * 2


def test_a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError) as caught, storage_errors(tmp_path):
        tmp_path.read_text()
    assert "Move it away" in caught.value.hint
    with pytest.raises(StorageError) as caught, hold_lock(tmp_path / "file" / "lock"):
        pass
    assert "Move it away" in caught.value.hint


def test_what_a_database_says_has_the_same_advice(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    db = sqlite3.connect(database)
    db.execute("CREATE TABLE t (a)")
    db.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as full:
        db.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    db.close()
    assert "space" in storage_error(database, full.value).hint
    with pytest.raises(sqlite3.OperationalError) as absent:
        sqlite3.connect(tmp_path / "no" / "x.db")
    assert "own it" in storage_error(database, absent.value).hint
