"""A hostile backup: nothing is written outside, and nothing is larger than its header allows."""

from __future__ import annotations

import contextlib
import gzip
import tarfile
from pathlib import Path

import pytest

from nanobot.bus.journal_file import SCHEMA
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError
from nanobot.upkeep.restore import restore, verify
from tests.upkeep.homes import archive, head, member

SIX_MILLION = b"0" * 6_000_000

HOSTILE = {
    "another file": [member("other.txt", b"x")],
    "no head": [member("home/a", b"x")],
    "head without sense": [member("backup.json", b"[1]")],
    "upwards": [head(), member("home/../../a", b"x")],
    "absolute": [head(), member("/a", b"x")],
    "twice the slash": [head(), member("home//a", b"x")],
    "outside home": [head(), member("a", b"x")],
    "twice": [head(files=2, size=2), member("home/a", b"x"), member("home/a", b"x")],
    "below a file": [
        head(files=2, size=2), member("home/a", b"x"), member("home/a/b", b"x"),
    ],
    "a link out": [
        head(), member("home/workspace/a", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    ],
    "a link by way of a link": [
        head(),
        member("home/workspace/here", type=tarfile.SYMTYPE, linkname="."),
        member("home/workspace/a", type=tarfile.SYMTYPE, linkname="here/../state"),
            ],
    "a link below a link": [
        head(), member("home/a", b"x"),
        member("home/workspace/p/q", type=tarfile.SYMTYPE, linkname=".."),
        member("home/workspace/p/q/up", type=tarfile.SYMTYPE, linkname="../.."),
    ],
    "a file with holes": [
        head(), member("home/a", b"x", pax_headers={
            "GNU.sparse.size": "1", "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,1",
        }),
    ],
    "what belongs to a restore": [
        head(files=2, size=1), member("home/a", b"x"),
        member("home/.restore-under-way.json"),
    ],
    "a link in state": [
        head(), member("home/state/a", type=tarfile.SYMTYPE, linkname="b"),
    ],
    "a second name": [
        head(), member("home/workspace/a", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    ],
    "a device": [head(), member("home/a", type=tarfile.CHRTYPE, devmajor=1)],
    "a pipe": [head(), member("home/a", type=tarfile.FIFOTYPE)],
    "larger than it says": [head(), member("home/a", b"xx")],
    "more than it says": [head(), member("home/a"), member("home/b")],
    "larger than the disk": [head(size=1 << 60), member("home/a", b"x")],
    "a name without end": [head(), member("home/" + "a" * 5_000, b"x")],
    "a longer name than memory has room for": [
        head(), member("home/a", bytes(2_000_000), type=tarfile.XHDTYPE), member("home/a", b"x"),
    ],
    "a newer format": [head(format=2)],
    "a newer journal": [head(journal=SCHEMA.version + 1), member("home/a", b"x")],
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_foreign_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive(HOSTILE[name]))
    with pytest.raises(NanobotError):
        restore(file, tmp_path / "inner" / "home", None, SystemClock())
    left = [path for path in tmp_path.rglob("*") if path != file]
    assert left in ([], [tmp_path / "inner"])


@pytest.mark.parametrize("name", ["a link out", "a link in state", "a second name", "a pipe"])
def test_a_check_refuses_such_an_archive_too(tmp_path: Path, name: str) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive(HOSTILE[name]))
    with pytest.raises(NanobotError, match="neither a file nor a folder"):
        verify(file, None, SystemClock())


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no archive"), gzip.compress(SIX_MILLION)],
    ids=["empty", "text", "compressed text", "zeros"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(content)
    with pytest.raises(NanobotError, match="cannot be used"):
        restore(file, tmp_path / "home", None, SystemClock())


def test_one_of_another_version_says_which_version_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    newer = head(journal=SCHEMA.version + 1, nanobot="9.1")
    file.write_bytes(archive([newer, member("home/a", b"x")]))
    with pytest.raises(NanobotError, match=r"another version of nanobot \(9\.1\)") as caught:
        restore(file, tmp_path / "home", None, SystemClock())
    assert "Install" in caught.value.hint


def test_there_must_be_no_home_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive([head(), member("home/a", b"x")]))
    home = tmp_path / "home"
    (home / "backups").mkdir(parents=True)
    (home / "old").write_text("mine")
    (home / "backups" / "one").write_text("kept")
    with pytest.raises(NanobotError, match="not empty") as caught:
        restore(file, home, None, SystemClock())
    assert "--replace" in caught.value.hint
    previous = restore(file, home, None, SystemClock(), replace=True).previous
    assert previous is not None
    assert previous.parent == home
    assert previous.name.startswith("before-restore-")
    assert (previous / "old").read_text() == "mine"
    assert (home / "a").read_text() == "x"
    assert (home / "backups" / "one").read_text() == "kept"
    with contextlib.suppress(FileNotFoundError):
        assert not (home / "old").exists()


def test_an_empty_folder_becomes_the_home(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive([head(), member("home/a", b"x")]))
    (tmp_path / "home").mkdir()
    restore(file, tmp_path / "home", None, SystemClock())
    assert (tmp_path / "home" / "a").read_text() == "x"
