"""What nanobot keeps for itself: the journal, the versions of memory, the search index.

All of it is opened for reading alone. A database at rest is read as a file that nobody changes, so
that SQLite leaves nothing beside it; one that is in use, as it asks for.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from nanobot.cli.doctor.finding import Case, Finding
from nanobot.cli.show import size
from nanobot.clock import Clock
from nanobot.errors import StorageError

_PATIENCE = 10.0
"""Seconds for looking through one database."""
_STEPS = 100_000


def check_journal(case: Case) -> Iterator[Finding]:
    """Whether the journal is whole, of a format that is known, and has nothing that failed."""
    from nanobot.bus.sqlite_journal import MIGRATIONS
    from nanobot.bus.sqlite_reports import queue_counts

    path = case.home / "state" / "journal.db"
    if not path.exists():
        return
    aside = f"End the gateway, then `mv {shlex.quote(str(path))} {shlex.quote(f'{path}.broken')}`"
    aside += " and start again: conversations and memory are in other files; only messages that"
    aside += " waited in it have to be sent again."
    try:
        with _reading(path) as db:
            version = _version(db)
            if version > len(MIGRATIONS):
                text = f"it was written by a newer nanobot (format {version})"
                yield Finding("journal", "fail", text, "Install that version again.")
                return
            if damage := _damage(db, case.clock):
                yield Finding("journal", "fail", f"it is damaged: {damage}", aside)
                return
            found = queue_counts(db) if version else None
    except sqlite3.DatabaseError as error:
        yield Finding("journal", "fail", f"it cannot be read: {error}", aside)
        return
    yield Finding("journal", "ok", f"whole, format {version}, {size(path.stat().st_size)}")
    if found and found.failed + found.dead and not case.heard.judged:
        text = f"{found.failed} messages failed, {found.dead} parts could not be delivered"
        yield Finding(
            "journal", "warn", text, "`nanobot queue list` shows them and how to mend it."
        )


def check_index(case: Case) -> Iterator[Finding]:
    """Whether the search index can be used. It is a cache, so nothing is lost with it."""
    from nanobot.memory.search.tables import VERSION

    path = case.home / "state" / "index.db"
    if not path.exists():
        return
    rebuild = "`nanobot memory rebuild` makes it anew; nothing is lost."
    try:
        with _reading(path) as db:
            version, damage = _version(db), _damage(db, case.clock)
    except sqlite3.DatabaseError as error:
        damage, version = str(error), VERSION
    if damage:
        yield Finding("index", "warn", f"it is damaged: {damage}", rebuild)
    elif version != VERSION:
        text = f"it is of another version ({version}), and made anew when it is used next"
        yield Finding("index", "ok", text)
    else:
        yield Finding("index", "ok", f"whole, {size(path.stat().st_size)}")


def check_versions(case: Case) -> Iterator[Finding]:
    """Whether the newest version of memory is there with all that is in it."""
    from nanobot.memory.versions.git import Repository
    from nanobot.memory.versions.gitstore import read_newest

    path = case.home / "state" / "memory.git"
    if not os.path.lexists(path):
        return
    repository = Repository(path)
    try:
        found = read_newest(repository)
    except StorageError as error:
        yield Finding("versions", "fail", str(error), error.hint)
        return
    finally:
        repository.close()
    if found is None:
        yield Finding("versions", "ok", "there is none of memory yet")
        return
    newest, files = found
    when = f"{newest.when.astimezone(case.clock.now().tzinfo):%Y-%m-%d %H:%M}"
    yield Finding("versions", "ok", f"whole; the newest is of {when}, with {files} files")


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    in_use = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if in_use else "immutable=1"
    db = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True, timeout=_PATIENCE)
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        yield db
    finally:
        db.close()


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _damage(db: sqlite3.Connection, clock: Clock) -> str:
    """What is wrong with the file, as SQLite says it; empty for nothing that is found in time."""
    end = clock.monotonic() + _PATIENCE
    db.set_progress_handler(lambda: clock.monotonic() > end, _STEPS)
    try:
        said = [str(row[0]) for row in db.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return ""
    finally:
        db.set_progress_handler(None, 0)
    return "" if said == ["ok"] else "; ".join(" ".join(line.split()) for line in said)[:300]
