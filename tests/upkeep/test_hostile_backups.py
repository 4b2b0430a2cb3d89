"""A backup from anywhere: nothing lands outside, nothing is larger than it says."""

from __future__ import annotations

import contextlib
import gzip
import json
import tarfile
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest

from nanobot.bus.journal_file import SCHEMA
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError
from nanobot.upkeep.restoring import restore
from tests.upkeep.homes import archive, head, member

ONE = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of "x"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def sums(more: Mapping[str, str] | None = None, **files: str) -> bytes:
    """What `manifest.json` holds."""
    return json.dumps({"sha256": {**files, **(more or {})}}).encode()


MANIFEST = member("manifest.json", sums(a=ONE))
SIX_MILLION = b"0" * 6_000_000

HOSTILE = {
    "another file": [member("other.txt", b"x")],
    "no head": [member("home/a", b"x"), MANIFEST],
    "head without sense": [member("backup.json", b"[1]"), MANIFEST],
    "no manifest": [head(), member("home/a", b"x")],
    "something after the manifest": [head(), member("home/a", b"x"), MANIFEST, member("home/b")],
    "another content": [head(), member("home/a", b"y"), MANIFEST],
    "a file too few": [head(), MANIFEST],
    "upwards": [head(), member("home/../../a", b"x"), MANIFEST],
    "absolute": [head(), member("/a", b"x"), MANIFEST],
    "twice the slash": [head(), member("home//a", b"x"), MANIFEST],
    "outside home": [head(), member("a", b"x"), MANIFEST],
    "twice": [head(files=2, size=2), member("home/a", b"x"), member("home/a", b"x"), MANIFEST],
    "below a file": [
        head(files=2, size=2), member("home/a", b"x"), member("home/a/b", b"x"), MANIFEST,
    ],
    "a link out": [
        head(), member("home/workspace/a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), MANIFEST,
    ],
    "a link by way of a link": [
        head(),
        member("home/workspace/here", type=tarfile.SYMTYPE, linkname="."),
        member("home/workspace/a", type=tarfile.SYMTYPE, linkname="here/../state"),
        MANIFEST,
    ],
    "a link below a link": [
        head(), member("home/a", b"x"),
        member("home/workspace/p/q", type=tarfile.SYMTYPE, linkname=".."),
        member("home/workspace/p/q/up", type=tarfile.SYMTYPE, linkname="../.."), MANIFEST,
    ],
    "a file with holes": [
        head(), member("home/a", b"x", pax_headers={
            "GNU.sparse.size": "1", "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,1",
        }), MANIFEST,
    ],
    "what belongs to a restore": [
        head(files=2, size=1), member("home/a", b"x"),
        member("home/.restore-under-way.json"),
        member("manifest.json", sums({".restore-under-way.json": EMPTY}, a=ONE)),
    ],
    "a link in state": [
        head(), member("home/state/a", type=tarfile.SYMTYPE, linkname="b"), MANIFEST,
    ],
    "a second name": [
        head(), member("home/workspace/a", type=tarfile.LNKTYPE, linkname="/etc/passwd"), MANIFEST,
    ],
    "a device": [head(), member("home/a", type=tarfile.CHRTYPE, devmajor=1), MANIFEST],
    "a pipe": [head(), member("home/a", type=tarfile.FIFOTYPE), MANIFEST],
    "larger than it says": [head(), member("home/a", b"xx"), MANIFEST],
    "more than it says": [head(), member("home/a"), member("home/b"), MANIFEST],
    "larger than the disk": [head(size=1 << 60), member("home/a", b"x"), MANIFEST],
    "a name without end": [head(), member("home/" + "a" * 5_000_000, b"x"), MANIFEST],
    "a newer format": [head(format=2)],
    "a newer journal": [head(journal=SCHEMA.version + 1), member("home/a", b"x"), MANIFEST],
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


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_headers_takes_no_memory(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 100_000_000
    file = tmp_path / "backup.tar.gz"
    with gzip.open(file, "wb") as packed:
        packed.write(header.tobuf())
        for _ in range(100):
            packed.write(bytes(1_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(NanobotError, match="100,000,000"):
            restore(file, tmp_path / "home", None, SystemClock())
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_manifest_lists_no_more_than_the_backup_holds(tmp_path: Path) -> None:
    large = member("manifest.json", b'{"sha256": {}, "more": [' + b"{}," * 1_000_000 + b"1]}")
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive([head(), member("home/a", b"x"), large]))
    with pytest.raises(NanobotError, match="manifest"):
        restore(file, tmp_path / "home", None, SystemClock())


def test_one_of_another_version_says_which_version_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    newer = head(journal=SCHEMA.version + 1, nanobot="9.1")
    file.write_bytes(archive([newer, member("home/a", b"x"), MANIFEST]))
    with pytest.raises(NanobotError, match=r"another version of nanobot \(9\.1\)") as caught:
        restore(file, tmp_path / "home", None, SystemClock())
    assert "Install" in caught.value.hint


def test_there_must_be_no_home_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive([head(), member("home/a", b"x"), MANIFEST]))
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
    file.write_bytes(archive([head(), member("home/a", b"x"), MANIFEST]))
    (tmp_path / "home").mkdir()
    restore(file, tmp_path / "home", None, SystemClock())
    assert (tmp_path / "home" / "a").read_text() == "x"
