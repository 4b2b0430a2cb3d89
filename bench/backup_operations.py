"""Operations of the backup campaign on a small home, and the invariants afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path

from nanobot.bus.journal_file import SCHEMA
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError
from nanobot.gateway.lock import home_lock
from nanobot.upkeep import UNFINISHED
from nanobot.upkeep.backups import (
    BackupOrder,
    backup_name,
    exclusive_backup,
    list_backups,
    make_backup,
    prune_backups,
)
from nanobot.upkeep.restore import restore, verify
from nanobot.upkeep.snapshot import BackupOperations

_CLOCK = SystemClock("UTC")
_LINE = '{"role": "user", "content": "%s", "seq": 1, "timestamp": "2026-03-02T09:00:00+00:00"}\n'
_OLD = "nanobot-20260101T000000Z.tar.gz"

Tree = dict[str, bytes]


def create_home(home: Path, word: str) -> Path:
    """Create a home with `word` in every file."""
    files = {
        "config.yaml": f"# {word}\n",
        "secrets.env": f"WORD={word}\n",
        f"sessions/fake_{word}.jsonl": _LINE % word,
        "workspace/memory/MEMORY.md": f"- {word}\n",
        f"workspace/projects/{word}.txt": word * 50_000,
        f"media/{word}.jpg": word,
        "backups/notes.txt": "kept",
    }
    for path, text in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    (home / "state").mkdir()
    with contextlib.closing(sqlite3.connect(home / "state/journal.db")) as db:
        db.executescript(SCHEMA.tables)
        db.execute(f"PRAGMA user_version={SCHEMA.version}")
        db.execute("INSERT INTO cursor VALUES ('fake', ?)", (word,))
        db.commit()
    return home


def tree(home: Path) -> Tree:
    """Return every file except locks and backups. A journal is represented by its contents."""
    files = {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.relative_to(home).parts[0].startswith((".", "b"))
    }
    kept = {name: data for name, data in files.items() if not name.startswith("state/")}
    return kept | {"cursor": _cursor(home).encode()}


def _cursor(home: Path) -> str:
    with contextlib.closing(sqlite3.connect(home / "state/journal.db")) as db:
        return str(db.execute("SELECT value FROM cursor").fetchone()[0])


async def back_up(home: Path, folder: Path) -> Path:
    """Make a backup as the gateway does, and prune all but two."""
    journal = SqliteJournal(home / "state/journal.db", _CLOCK)
    await journal.open()
    try:
        with exclusive_backup(home):
            taken = await BackupOperations(home, journal, _CLOCK, live=True).take()
            target = folder / backup_name(taken.made_at, "")
            made = make_backup(home, taken, target, BackupOrder(), lambda *_: None)
        prune_backups(folder, 2, made.path)
        return made.path
    finally:
        await journal.close()


class BackupOperation(ABC):
    """An operation in `folder`, and its invariants however it ended."""

    name = ""

    def __init__(self, folder: Path, backup: Path) -> None:
        self.folder, self.backup, self.home = folder, backup, folder / "home"

    @abstractmethod
    def prepare(self) -> None:
        """Create the initial state."""

    @abstractmethod
    def do(self) -> None:
        """Run the operation, also after an interrupted run."""

    @abstractmethod
    def faults(self, *, over: bool) -> list[str]:
        """Return the broken promises. `over`: the operation has finished."""


class MakeBackup(BackupOperation):
    """Making a backup."""

    name = "a backup"

    def prepare(self) -> None:
        create_home(self.home, "new")
        (self.folder / "kept").mkdir()
        shutil.copy(self.backup, self.folder / "kept" / _OLD)
        self._before = tree(self.home)

    def do(self) -> None:
        with contextlib.suppress(NanobotError):  # a backup of this second exists already
            asyncio.run(back_up(self.home, self.folder / "kept"))

    def faults(self, *, over: bool) -> list[str]:
        wrong = [] if tree(self.home) == self._before else ["the home is another one"]
        stored = list_backups(self.folder / "kept")
        for one in stored:
            with contextlib.suppress(NanobotError):
                if not verify(one.path, None, _CLOCK).found.troubles:
                    continue
            wrong.append(f"{one.path.name} cannot be used")
        if over and not [one for one in stored if one.path.name != _OLD]:
            wrong.append("there is no new backup")
        left = [path.name for path in (self.folder / "kept").iterdir() if path.name[0] == "."]
        if over and (left or (self.home / "state/backup").exists()):
            wrong.append(f"left lying about: {left}")
        return wrong


class RestoreBackup(BackupOperation):
    """Restoring a backup over another home."""

    name = "a restore"

    def prepare(self) -> None:
        create_home(self.home, "old")
        self._old = tree(self.home)

    def do(self) -> None:
        restore(self.backup, self.home, None, _CLOCK, replace=True, resume=True)

    def faults(self, *, over: bool) -> list[str]:
        if (self.home / UNFINISHED).exists():
            return self._of_half_a_home(over)
        if not self.home.is_dir():
            return ["there is no home"]
        now, wrong = tree(self._without_before()), []
        if now != self._old and now["cursor"] != b"kept":
            wrong.append("the home is neither the one nor the other")
        if now["cursor"] == b"kept" and "config.yaml" not in now:
            wrong.append("the new home is not whole")
        if now["cursor"] == b"kept" and not self._is_aside():
            wrong.append("the old home is lost")
        if over and now["cursor"] != b"kept":
            wrong.append("it is still the old home")
        places = [self.home, *self.home.glob("before*")]
        if not any((place / "backups/notes.txt").exists() for place in places):
            wrong.append("its backups are lost")
        left = [
            p.name for p in (*self.folder.iterdir(), *self.home.iterdir()) if "restoring" in p.name
        ]
        if over and left:
            wrong.append(f"left lying about: {left}")
        return wrong

    def _of_half_a_home(self, over: bool) -> list[str]:
        if over:
            return ["it never became a home"]
        with contextlib.suppress(NanobotError), home_lock(self.home / "state"):
            return ["a gateway could start on half a home"]
        return []

    def _without_before(self) -> Path:
        """Copy the home without the previous contents."""
        copy = self.folder / ".looked-at"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.home, copy, ignore=shutil.ignore_patterns("before-*", ".restoring*"))
        return copy

    def _is_aside(self) -> bool:
        before = self.home.glob("before-*")
        return any((path / "sessions/fake_old.jsonl").exists() for path in before)
