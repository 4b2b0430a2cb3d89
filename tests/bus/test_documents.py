"""Documents in the journal's database: their import, and the handling of damaged documents."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nanobot.bus import journal_file
from nanobot.bus.damage import inspect_journal
from nanobot.bus.journal_file import SCHEMA, SqliteState
from nanobot.bus.sqlite import Schema, open_file
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.bus.state import DOCUMENTS, Stored
from nanobot.errors import StorageError
from nanobot.testing import FakeClock

FILES = {f"{name}.json": json.dumps({"version": 1, "of": name}) for name in DOCUMENTS}


class Killed(BaseException):
    """The process was killed."""


def read_documents(folder: Path) -> dict[str, str]:
    """Open the database like a new process and return all documents."""
    with contextlib.closing(SqliteState(folder)) as state:
        found = {name: state.read(name) for name in DOCUMENTS}
    return {name: one.content.decode() for name, one in found.items() if one}


def put_files(folder: Path) -> None:
    """Create a journal with a message, and documents as files next to it."""
    open_file(folder / "journal.db", Schema(SCHEMA.tables)).close()
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as db, db:
        db.execute(
            "INSERT INTO inbox (channel, chat_id, event_id, session_key, received_at, payload)"
            " VALUES ('c', '1', 'e', 'c:1', '2026-03-02T08:00:00+00:00', '{}')"
        )
    for name, content in FILES.items():
        (folder / name).write_text(content)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir()}


def file_documents() -> dict[str, str]:
    return {name.removesuffix(".json"): content for name, content in FILES.items()}


def test_documents_that_are_files_are_taken_in_and_kept(tmp_path: Path) -> None:
    put_files(tmp_path)
    assert read_documents(tmp_path) == file_documents()
    assert not any((tmp_path / name).exists() for name in FILES)
    kept = {name: (tmp_path / f"{name}.imported").read_text() for name in FILES}
    assert kept == FILES
    assert read_documents(tmp_path) == file_documents()


def dying_at(step: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wrap functions so that the process dies after the `step`-th call of any of them."""
    calls = 0

    def dying(work: Callable[..., Any]) -> Callable[..., Any]:
        def count_call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            result = work(*args, **kwargs)
            calls += 1
            if calls > step:
                raise Killed
            return result

        return count_call

    return dying


@pytest.mark.parametrize("step", range(16))
def test_killed_at_any_step_of_taking_them_in_the_next_start_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    put_files(tmp_path)
    dying = dying_at(step)
    with monkeypatch.context() as patch:
        schema = replace(SCHEMA, import_files=dying(journal_file.import_documents))
        patch.setattr(journal_file, "SCHEMA", schema)
        patch.setattr(Path, "replace", dying(Path.replace))
        patch.setattr(os, "rename", dying(os.rename))
        patch.setattr(os, "fsync", dying(os.fsync))
        with contextlib.suppress(Killed):
            read_documents(tmp_path)
    assert read_documents(tmp_path) == file_documents()
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert db.execute("SELECT count(*) FROM inbox").fetchone() == (1,)


def test_a_file_that_a_person_puts_there_replaces_the_document_at_the_next_start(
    tmp_path: Path,
) -> None:
    with contextlib.closing(SqliteState(tmp_path)) as state:
        state.write("jobs", b'{"old": 1}', 0)
        state.write("access", b'{"old": 1}', 0)
    (tmp_path / "jobs.json").write_text('{"new": 1}')
    (tmp_path / "access.json").write_text('{"half')
    assert read_documents(tmp_path) == {"jobs": '{"new": 1}', "access": '{"old": 1}'}
    assert (tmp_path / "access.json").read_text() == '{"half'


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "jobs.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"jobs\.json"):
        read_documents(tmp_path)


def test_all_documents_are_copied_for_people_and_for_their_owner_only(tmp_path: Path) -> None:
    with contextlib.closing(SqliteState(tmp_path)) as state:
        state.write("jobs", b'{"jobs": []}', 0)
        state.write("access", b"no json", 0)
        copy = tmp_path / "documents.json"
        assert json.loads(copy.read_text())["documents"] == {"jobs": {"jobs": []}}
        assert copy.stat().st_mode & 0o777 == 0o600


def test_a_new_database_takes_the_documents_from_the_copy(tmp_path: Path) -> None:
    with contextlib.closing(SqliteState(tmp_path)) as state:
        state.write("jobs", b'{"jobs": [1]}', 0)
    for path in tmp_path.glob("journal.db*"):
        path.unlink()
    assert {name: json.loads(text) for name, text in read_documents(tmp_path).items()} == {
        "jobs": {"jobs": [1]}
    }


@pytest.mark.parametrize(
    "copy", ["", "{", "[]", '{"version": 2, "documents": {}}', '{"version": 1}']
)
def test_a_copy_that_cannot_be_used_is_kept_and_lets_nobody_in(tmp_path: Path, copy: str) -> None:
    (tmp_path / "documents.json").write_text(copy)
    assert read_documents(tmp_path) == {}
    assert (tmp_path / "documents.json.broken").read_text() == copy


async def test_an_erasure_reaches_the_documents_and_their_copy(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", FakeClock())
    await journal.open()
    journal.state.write("access", b'{"name": "Anna"}', 0)
    assert await journal.erase(lambda text: text.replace("Anna", "[erased]")) == 1
    assert journal.state.read("access") == Stored(b'{"name": "[erased]"}', 2)
    await journal.close()
    assert not any(b"Anna" in content for content in contents(tmp_path).values())


def test_a_look_at_a_journal_changes_nothing_and_knows_files_that_wait(tmp_path: Path) -> None:
    put_files(tmp_path)
    before = contents(tmp_path)
    found = inspect_journal(tmp_path / "journal.db")
    assert (found.version, found.damage, found.counts.received) == (SCHEMA.version, "", 1)
    assert {name: content.decode() for name, content in found.documents.items()} == file_documents()
    assert contents(tmp_path) == before
