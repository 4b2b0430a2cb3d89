"""Whether a home would work: everything that a start relies on is opened and read, as it would be.

Nothing is written but what reading needs (SQLite's side files), so that it serves on a copy as well
as on what was just unpacked.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nanobot.bus.sqlite_journal import MIGRATIONS
from nanobot.bus.sqlite_reports import queue_counts
from nanobot.clock import Clock
from nanobot.cron.codec import decoded, problem_of
from nanobot.errors import NanobotError
from nanobot.memory.history.log import HISTORY, HistoryLog
from nanobot.memory.versions.checking import read_newest
from nanobot.memory.versions.git import Repository
from nanobot.security.documents import UnfitDocument
from nanobot.security.paths import Root
from nanobot.session.files import FileOps
from nanobot.session.jsonl_store import SessionFolder
from nanobot.upkeep.selection import JOURNAL

NEEDED = ("state/", "sessions/", "workspace/memory/", "workspace/people/", "workspace/groups/")
"""What a drill reads of a home; the rest need not be there."""

_JOBS = "jobs.json"
_LONGEST = 50_000_000
"""Bytes of it beyond which no start reads it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a home holds. `waiting` messages and parts of replies are under way, `failed` ones are
    set aside; `history` are its entries of consolidated conversation; `troubles` is what cannot be
    used, and why."""

    conversations: int = 0
    messages: int = 0
    versions: int = 0
    history: int = 0
    jobs: int = 0
    waiting: int = 0
    failed: int = 0
    troubles: tuple[str, ...] = ()


def examine(home: Path, clock: Clock) -> Found:
    """Open and read what is in `home`; never raises for what is wrong with it."""
    troubles: list[str] = []

    def tried(read: Callable[[], int]) -> int:
        try:
            return read()
        except (NanobotError, OSError, ValueError, sqlite3.Error) as error:
            troubles.append(str(error))
            return 0

    waiting, failed = _journal(home / JOURNAL, troubles)
    folder = SessionFolder(home / "sessions", FileOps())
    keys = sorted(folder.keys())
    messages = sum(tried(lambda key=key: _messages(folder, key, clock)) for key in keys)  # type: ignore[misc]
    workspace = home / "workspace"
    found = Found(
        conversations=len(keys),
        messages=messages,
        versions=tried(lambda: _versions(home / "state" / "memory.git")),
        history=sum(
            tried(lambda prefix=prefix: _history(workspace, prefix, clock))  # type: ignore[misc]
            for prefix in _prefixes(workspace)
        ),
        jobs=tried(lambda: _jobs(home / "state")),
        waiting=waiting,
        failed=failed,
    )
    # Where it lies now is nobody's business: it gets another place, or goes.
    return replace(found, troubles=tuple(one.replace(f"{home}/", "") for one in troubles))


def _journal(path: Path, troubles: list[str]) -> tuple[int, int]:
    """How many rows are under way, and how many failed."""
    if not path.exists():
        troubles.append("there is no journal")
        return 0, 0
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.text_factory = lambda data: data.decode("utf-8", "replace")
            (state,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            counts = queue_counts(db)
    except sqlite3.Error as error:
        troubles.append(f"the journal cannot be read: {error}")
        return 0, 0
    if state != "ok":
        troubles.append(f"the journal is damaged: {state}")
    if version > len(MIGRATIONS):
        troubles.append(f"the journal is of a newer nanobot (format {version})")
    waiting = counts.received + counts.working + counts.outbox_pending
    return waiting, counts.failed + counts.dead


def _messages(folder: SessionFolder, key: str, clock: Clock) -> int:
    folder.read(key, folder.file_of(key), clock.now())
    return sum(1 for _ in folder.messages(key, b"", 1, None))


def _versions(path: Path) -> int:
    """The versions of memory, once the newest is read with everything in it."""
    repository = Repository(path)
    try:
        newest = read_newest(repository)
        return sum(1 for _ in repository.chain(newest[0].id)) if newest else 0
    finally:
        repository.close()


def _jobs(state: Path) -> int:
    """Only looked at: who starts with a file that is none moves it aside."""
    content = Root(state).place(_JOBS).read_bytes(_LONGEST)
    if content is None:
        return 0
    try:
        jobs = decoded(content)
    except (UnfitDocument, RecursionError) as error:
        why = str(error) if isinstance(error, UnfitDocument) else "it is nested too deeply"
        raise NanobotError(f"state/{_JOBS} cannot be used: {why}") from error
    if jobs.unread:
        why = "; ".join(problem_of(one) for one in jobs.unread)
        raise NanobotError(f"entries of state/{_JOBS} cannot be used: {why}")
    return len(jobs.jobs)


def _prefixes(workspace: Path) -> list[str]:
    others = [path for name in ("people", "groups") for path in (workspace / name).glob("*/")]
    return ["", *sorted(f"{path.relative_to(workspace)}/" for path in others)]


def _history(workspace: Path, prefix: str, clock: Clock) -> int:
    if not (workspace / prefix / HISTORY).exists():
        return 0
    return HistoryLog(Root(workspace), clock, prefix=prefix).count()
