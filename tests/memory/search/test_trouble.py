"""A damaged, unknown, busy or unwritable index takes time, but never an answer."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nanobot.errors import StorageError
from nanobot.memory.search import Query
from tests.memory.search.talk import Home, find, message


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.say("cli:direct", *(message(n, f"the elephant number {n}") for n in range(1, 200)))
    return made


def put_out_of_sight(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder)


async def build(home: Home) -> None:
    index = home.index()
    await index.refresh()
    await index.close()


async def test_a_file_that_is_no_database_is_made_anew(home: Home, warnings: list[str]) -> None:
    home.database.parent.mkdir()
    home.database.write_bytes(b"this is no database at all" * 100)
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    await index.close()
    assert len(warnings) == 1
    assert "Rebuilding" in warnings[0]


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
async def test_damaged_pages_are_noticed_or_do_no_harm(
    home: Home, warnings: list[str], at: float
) -> None:
    await build(home)
    content = bytearray(home.database.read_bytes())
    start = int(len(content) * at)
    content[start : start + 8192] = os.urandom(8192)
    home.database.write_bytes(content)
    index = home.index()
    home.say("cli:direct", message(200, "another elephant"))
    assert "m:cli:direct:200" in await find(index, "another elephant")
    await index.rebuild()
    assert (await index.stats()).messages == 200
    await index.close()


async def test_a_text_that_is_no_utf8_hides_nothing(home: Home, warnings: list[str]) -> None:
    await build(home)
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("UPDATE stream SET files = CAST(x'ff41' AS TEXT)")
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    await index.close()
    assert "may miss" in warnings[0]


async def test_an_index_that_contradicts_itself_is_made_anew(
    home: Home, warnings: list[str]
) -> None:
    """Damage to a page can make new rows equal to old ones."""
    await build(home)
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("CREATE UNIQUE INDEX wrong ON passage (seq)")
    home.say("telegram:7", message(1, "another elephant"))
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    assert (await index.stats()).messages == 200
    await index.close()
    assert "Rebuilding" in warnings[0]


async def test_a_file_cut_in_half_is_made_anew(home: Home, warnings: list[str]) -> None:
    await build(home)
    with home.database.open("r+b") as file:
        file.truncate(home.database.stat().st_size // 2)
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    await index.close()


async def test_another_schema_version_is_made_anew(home: Home, warnings: list[str]) -> None:
    await build(home)
    db = sqlite3.connect(home.database)
    db.execute("PRAGMA user_version = 999")
    db.close()
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    await index.close()
    assert "schema version 999" in warnings[0]


async def test_a_table_of_someone_else_is_made_anew(home: Home, warnings: list[str]) -> None:
    home.database.parent.mkdir()
    db = sqlite3.connect(home.database)
    db.execute("CREATE TABLE passage (other TEXT)")
    db.execute("PRAGMA user_version = 1")
    db.close()
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    await index.close()


async def test_a_file_deleted_between_two_runs_is_made_anew(home: Home) -> None:
    await build(home)
    home.database.unlink()
    index = home.index()
    assert len(await find(index, "elephant")) == 50
    await index.close()


async def test_a_place_that_cannot_be_used_is_said(home: Home) -> None:
    state = home.path / "state"
    state.write_text("a file where the folder should be")
    index = home.index()
    with pytest.raises(StorageError, match=r"index\.db"):
        await find(index, "elephant")
    state.unlink()
    assert len(await find(index, "elephant")) == 50
    await index.close()


async def test_where_the_disk_refuses_a_search_answers_from_what_is_there(
    home: Home, warnings: list[str]
) -> None:
    index = home.index()
    await index.refresh()
    home.say("cli:direct", message(200, "a tiger"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        assert len(await find(index, "elephant")) == 50
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert await find(index, "tiger") == ["m:cli:direct:200"]
    await index.close()
    assert "Search may miss the newest messages" in warnings[0]


async def test_two_processes_that_index_at_once_do_not_index_twice(home: Home) -> None:
    one, other = home.index(), home.index()
    async with asyncio.TaskGroup() as group:
        group.create_task(one.refresh())
        group.create_task(other.refresh())
    home.say("cli:direct", message(200, "a tiger"))
    async with asyncio.TaskGroup() as group:
        group.create_task(one.refresh())
        group.create_task(other.refresh())
    assert (await one.stats()).messages == (await other.stats()).messages == 200
    assert await find(other, "tiger") == ["m:cli:direct:200"]
    await one.close()
    await other.close()


async def test_while_another_process_writes_a_search_answers_from_what_is_there(
    home: Home, warnings: list[str]
) -> None:
    index = home.index(patience=0.05)
    await index.refresh()
    db = sqlite3.connect(home.database, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    home.say("cli:direct", message(200, "a tiger"))
    assert len(await find(index, "elephant")) == 50
    assert await find(index, "tiger") == []
    db.execute("ROLLBACK")
    db.close()
    assert await find(index, "tiger") == ["m:cli:direct:200"]
    await index.close()
    assert "locked" in warnings[0]


async def test_an_index_is_opened_while_another_process_writes(
    home: Home, warnings: list[str]
) -> None:
    await build(home)
    db = sqlite3.connect(home.database, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    index = home.index(patience=0.05)
    assert len(await find(index, "elephant")) == 50
    db.execute("ROLLBACK")
    db.close()
    home.say("cli:direct", message(200, "a tiger"))
    assert await find(index, "tiger") == ["m:cli:direct:200"]
    await index.close()
    assert warnings == []


async def test_a_session_that_cannot_be_read_hides_no_other(
    home: Home, warnings: list[str]
) -> None:
    os.mkfifo(home.sessions / "cli_pipe.jsonl")
    (home.sessions / "cli_odd.jsonl").write_bytes(b"\xff\xfe\x00 no session\n" * 5)
    (home.memory / "history.jsonl").mkdir()
    index = home.index()
    result = await index.search(Query("elephant", ("owner",), limit=3))
    assert len(result.hits) == 3
    await index.close()


async def test_conversations_that_cannot_be_listed_hide_nothing_else(
    home: Home, warnings: list[str]
) -> None:
    await build(home)
    home.remember(1, "a tiger")
    put_out_of_sight(home.sessions)
    index = home.index()
    for _ in range(2):
        assert len(await find(index, "tiger")) == 1
    assert len(await find(index, "elephant")) == 50
    await index.close()
    assert len(warnings) == 1


async def test_closing_does_not_wait_for_a_first_indexing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say("cli:direct", *(message(n, f"the elephant number {n}") for n in range(1, 12_000)))
    index = home.index()
    refreshing = asyncio.create_task(index.refresh())
    await asyncio.sleep(0)
    await index.close()
    with pytest.raises(StorageError, match="the index is closed"):
        await refreshing
    again = home.index()
    assert len(await find(again, "elephant")) == 50
    await again.close()


async def test_the_index_is_readable_by_its_owner_only(home: Home) -> None:
    await build(home)
    assert home.database.stat().st_mode & 0o077 == 0
