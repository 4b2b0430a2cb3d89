"""`nanobot doctor` on the stores of a home: it finds damage and changes nothing."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.clock import SystemClock
from nanobot.memory.gitstore import GitStore
from nanobot.memory.search.database import connect
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from nanobot.upkeep.backups import backup_name

Report = dict[str, list[dict[str, str]]]
Doctor = Callable[[], tuple[int, Report]]

STORES = ("journal", "conversations", "versions")
NO_SHELL = "tools: {exec: {enabled: false}}\n"
_PAGE = 4096


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home at rest, with a little of everything."""
    home, clock = tmp_path / "home", SystemClock()
    for name in ("sessions", "state", "workspace/memory"):
        (home / name).mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    (home / "config.yaml").write_text(NO_SHELL)
    (home / "sessions" / "cli_direct.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    asyncio.run(_journal(home))
    connect(home / "state" / "index.db").close()
    path, text = "memory/MEMORY.md", b"- Likes tea.\n"
    for prefix in ("", "people/telegram_7/"):
        versions = GitStore(home / "state", Root(home / "workspace"), clock, prefix)
        file = home / "workspace" / prefix / path
        file.parent.mkdir(parents=True, exist_ok=True)
        put = partial(_put, file, text)
        versions.write(f"{prefix}{path}", None, text, Change("you", "new"), put)
    return home


def _put(file: Path, text: bytes) -> None:
    file.write_bytes(text)


async def _journal(home: Path) -> None:
    journal = SqliteJournal(home / "state" / "journal.db", SystemClock())
    await journal.open()
    await journal.close()


@pytest.fixture
def doctor(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def examine() -> tuple[int, Report]:
        done = here("doctor", "--json")
        found: Report = {}
        for finding in json.loads(done.stdout):
            found.setdefault(finding["check"], []).append(finding)
        return done.returncode, found

    return examine


def _tree(home: Path) -> dict[str, tuple[int, int]]:
    """Return the time and size of each file in a home."""
    return {
        str(path.relative_to(home)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in home.rglob("*")
        if path.is_file()
    }


def test_a_home_that_is_whole_is_said_to_be_and_nothing_in_it_changes(
    home: Path, doctor: Doctor
) -> None:
    before = _tree(home)
    code, found = doctor()
    assert (code, [found[name][0]["state"] for name in STORES]) == (0, ["ok"] * 3)
    assert found["versions"][0]["text"].endswith(", 2 files in 2 scopes")
    assert _tree(home) == before


def test_a_home_whose_name_is_no_utf_8_can_be_looked_into(home: Path, here: Any) -> None:
    odd = home.rename(home.with_name("caf\udce9 #?"))
    done = here("--home", str(odd), "doctor", "--json")
    found = {finding["check"]: finding["state"] for finding in json.loads(done.stdout)}
    assert [found[name] for name in STORES] == ["ok"] * 3


def test_commands_that_mend_can_be_copied_whatever_the_name_of_the_home(
    home: Path, here: Any
) -> None:
    mine = home.rename(home.with_name("my home"))
    mine.chmod(0o755)
    found = json.loads(here("--home", str(mine), "doctor", "--json").stdout)
    hints = "\n".join(finding["hint"] for finding in found)
    assert f"`chmod 700 '{mine}'`" in hints


async def test_stores_that_are_in_use_are_looked_into_all_the_same(
    home: Path, doctor: Doctor
) -> None:
    journal = SqliteJournal(home / "state" / "journal.db", SystemClock())
    await journal.open()
    index = connect(home / "state" / "index.db")
    try:
        assert (home / "state" / "journal.db-wal").exists()
        _, found = await asyncio.to_thread(doctor)
        await journal.receive("cli", (), "still works")
    finally:
        index.close()
        await journal.close()
    assert [found[name][0]["state"] for name in STORES] == ["ok"] * 3


def test_damaged_stores_are_found_each_with_its_remedy(home: Path, doctor: Doctor) -> None:
    with (home / "state" / "journal.db").open("r+b") as file:
        file.seek(2 * _PAGE)
        file.write(b"\xff" * 3 * _PAGE)
    (blob,) = (
        path
        for path in (home / "state" / "memory.git" / "objects").rglob("*")
        if path.is_file() and b"Likes tea" in _inflate(path)
    )
    blob.unlink()
    code, found = doctor()
    assert code == 1
    assert [found[name][0]["state"] for name in STORES] == ["fail", "ok", "fail"]
    assert "rebuilds the journal" in found["journal"][0]["hint"]
    assert "is missing or broken" in found["versions"][0]["text"]


def _inflate(path: Path) -> bytes:
    return zlib.decompress(path.read_bytes())


def test_a_journal_of_another_version_is_an_error(home: Path, doctor: Doctor) -> None:
    with sqlite3.connect(home / "state" / "journal.db") as db:
        db.execute("PRAGMA user_version = 999")
        db.execute("ALTER TABLE turn ADD COLUMN more TEXT")
    db.close()
    code, found = doctor()
    assert (code, found["journal"][0]["text"]) == (
        1, "it was written by another version of nanobot (format 999)",
    )  # fmt: skip


def test_messages_that_failed_are_pointed_out(home: Path, doctor: Doctor) -> None:
    with sqlite3.connect(home / "state" / "journal.db") as db:
        db.execute(
            "INSERT INTO inbox (channel, chat_id, event_id, session_key, state, received_at)"
            " VALUES ('cli', 'direct', '1', 'cli:direct', 'failed', '2026-11-21T09:00:00+00:00')"
        )
    db.close()
    code, found = doctor()
    assert (code, found["journal"][1]["state"]) == (0, "warn")
    assert "`nanobot queue list`" in found["journal"][1]["hint"]


def test_a_document_that_is_not_used_is_pointed_out(home: Path, doctor: Doctor) -> None:
    (home / "state" / "jobs.json.broken-1").write_text("{")
    code, found = doctor()
    assert (code, found["journal"][1]["state"]) == (0, "warn")
    assert found["journal"][1]["text"].startswith("jobs could not be read, so it is not used")
    assert f"save it as {home / 'state' / 'jobs.json'}" in found["journal"][1]["hint"]


def test_conversations_that_cannot_be_read_are_named(home: Path, doctor: Doctor) -> None:
    sessions = home / "sessions"
    (sessions / "telegram_7.jsonl").write_text("this is no conversation\n")
    with (sessions / "cli_direct.jsonl").open("a") as file:
        file.write("{broken\n")
    code, found = doctor()
    states = [(one["state"], one["text"].partition(": ")[2]) for one in found["conversations"]]
    assert (code, states[:2]) == (
        1,
        [
            ("fail", "it contains no readable messages"),
            ("warn", "skipped 1 broken lines, which are still in the file"),
        ],
    )


def test_a_backup_must_be_as_new_as_the_schedule_promises(home: Path, doctor: Doctor) -> None:
    (home / "config.yaml").write_text(NO_SHELL + 'backup: {schedule: "30 3 * * *"}\n')
    (home / "backups").mkdir()
    states = []
    for age in (timedelta(days=9), timedelta(hours=1)):
        _put(home / "backups" / backup_name(datetime.now(UTC) - age, ""), b"")
        states.append(doctor()[1]["backups"][0]["state"])
    assert states == ["warn", "ok"]
