"""A home for backups, without a gateway, and shortcuts for making a backup."""

from __future__ import annotations

import contextlib
import gzip
import io
import sqlite3
import tarfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import force_setattr

from nanobot.bus.journal_file import SCHEMA
from nanobot.bus.sqlite import copy_to
from nanobot.upkeep.archive import BackupHeader
from nanobot.upkeep.backups import BackupOrder, NewBackup, exclusive_backup, make_backup
from nanobot.upkeep.snapshot import Snapshot, freeze_home

MADE = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LINE = '{"role": "user", "content": "%s", "seq": %d, "timestamp": "2026-03-02T09:00:00+00:00"}\n'


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file and its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def build_home(home: Path) -> Path:
    """Build a home with a little of everything."""
    write(home / "config.yaml", "# of Otter\nagent:\n  timezone: UTC\n")
    write(home / "secrets.env", "TOKEN=secret\n")
    write(home / "sessions/fake_1.jsonl", LINE % ("hello", 1))
    write(home / "workspace/memory/MEMORY.md", "- likes tea\n")
    write(home / "workspace/tool.sh", "echo\n", 0o755)
    write(home / "media/photo.jpg", "picture")
    with contextlib.closing(journal(home)) as db:
        db.execute("INSERT INTO cursor VALUES ('telegram', '7')")
    return home


def journal(home: Path) -> sqlite3.Connection:
    """Connect to the home's journal, which is created if it is missing."""
    path = home / "state" / "journal.db"
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    if is_new:
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(SCHEMA.tables)
        db.execute(f"PRAGMA user_version={SCHEMA.version}")
    return db


def freeze(home: Path, *, live: bool = False) -> Snapshot:
    """Take a snapshot as the owner of the home does."""
    folder = home / "state" / "backup"
    folder.mkdir()
    with contextlib.closing(journal(home)) as db:
        copy_to(db, folder / "journal.db")
        items = freeze_home(home)
    return Snapshot(live, MADE, tuple(items))


def back_up(
    home: Path, target: Path, *, live: bool = False, order: BackupOrder | None = None
) -> NewBackup:
    """Make a backup in one step."""
    with exclusive_backup(home):
        taken = freeze(home, live=live)
        return make_backup(home, taken, target, order or BackupOrder(), lambda *_: None)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of every file."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def archive(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Return a compressed archive of exactly these members."""
    out = io.BytesIO()
    with gzip.GzipFile("", "wb", 1, out) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return a file of an archive, changed by the `fields`."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def head(**fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return the header of a backup of one file of one byte."""
    said = BackupHeader("1", 1, MADE, live=False, media=True, files=1, size=1)
    for field, value in fields.items():
        force_setattr(said, field, value)
    return member("backup.json", said.encode())
