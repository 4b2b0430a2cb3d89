"""The catalogue is a cache shared by processes. It is right after any change of the files or of
itself, and only changed files are read again."""

from __future__ import annotations

import os
import resource
import sqlite3
import tempfile
from pathlib import Path

import pytest

from nanobot.session.catalogue import Changes, SessionCatalogue, list_states
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.privileges import without_privileges
from tests.session.support import Open, say, user


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.db"


@pytest.fixture
def catalogue(folder: Path, clock: FakeClock, database: Path) -> SessionCatalogue:
    return SessionCatalogue(folder, clock, database)


def live(folder: Path) -> Path:
    return folder / "cli_direct.jsonl"


def remove(path: Path) -> None:
    path.unlink()


def previews(catalogue: SessionCatalogue) -> dict[str, str]:
    return {info.key: info.preview for info in catalogue.sessions()}


def names_by_key(changes: Changes) -> dict[str, list[str]]:
    return {key: [name for name, _ in files] for key, files in changes.sessions}


def overwrite(path: Path, content: bytes) -> None:
    """Change a file without changing its stat."""
    state = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def read(path: Path) -> bytes:
    return path.read_bytes()


def link_to_itself(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to(path)


def is_private(path: Path) -> bool:
    return path.stat().st_mode & 0o777 == 0o600


async def test_what_one_process_read_the_next_one_knows(
    managed: Open, folder: Path, clock: FakeClock, database: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    await say(managed(), "cli:other", "hello too")
    assert previews(catalogue) == {"cli:direct": "hello", "cli:other": "hello too"}
    overwrite(live(folder), live(folder).read_bytes().replace(b"hello", b"HELLO"))
    await say(managed(), "cli:other", "bye")
    known = SessionCatalogue(folder, clock, database)
    assert previews(known) == {"cli:direct": "hello", "cli:other": "bye"}
    remove(database)
    assert previews(known) == {"cli:direct": "HELLO", "cli:other": "bye"}


async def test_it_tells_what_changed_since_it_was_asked_last(
    managed: Open, folder: Path, clock: FakeClock, database: Path, catalogue: SessionCatalogue
) -> None:
    manager = managed(live_limit=1)
    session = await say(manager, "cli:direct", *"abc")
    await say(manager, "cli:other", "hello")
    first = catalogue.changes("")
    assert names_by_key(first) == {
        "cli:direct": ["cli_direct.jsonl"],
        "cli:other": ["cli_other.jsonl"],
    }
    assert first.is_whole
    none = catalogue.changes(first.mark)
    assert (none.sessions, none.is_whole, none.mark) == ([], False, first.mark)
    await manager.mark_consolidated(session, 2)
    await manager.archive(session)
    second = SessionCatalogue(folder, clock, database).changes(first.mark)
    files = ["archive/cli_direct/0001.jsonl", "cli_direct.jsonl"]
    assert (names_by_key(second), second.is_whole) == ({"cli:direct": files}, False)
    live(folder).unlink()
    third = catalogue.changes(second.mark)
    assert third.is_whole
    assert names_by_key(third) == {"cli:direct": files[:1], "cli:other": ["cli_other.jsonl"]}


async def test_what_a_power_cut_took_is_told_again(
    managed: Open, folder: Path, clock: FakeClock, database: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    catalogue.changes("")
    before = read(database)
    clock.jump(1)
    await say(managed(), "cli:direct", "more")
    mark = catalogue.changes("").mark
    overwrite(database, before)
    clock.jump(1)
    changes = SessionCatalogue(folder, clock, database).changes(mark)
    assert (len(changes.sessions), changes.is_whole) == (1, False)


async def test_a_look_may_be_shared_but_not_by_another_database(
    managed: Open, clock: FakeClock, database: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    catalogue.changes("")
    await say(managed(), "cli:direct", "more")
    assert [one.preview for one in catalogue.sessions(within=30)] == ["hello"]
    await clock.advance(31)
    assert [one.preview for one in catalogue.sessions(within=30)] == ["more"]
    remove(database)
    assert [one.preview for one in catalogue.sessions(within=30)] == ["more"]


async def test_unchanged_files_are_not_looked_up_in_the_database(
    managed: Open, database: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    mark = catalogue.changes("").mark
    overwrite(database, b"no database at all" * 100)
    assert catalogue.changes(mark) == ([], False, mark)
    catalogue.forget(live(catalogue.folder))
    assert len(catalogue.changes(mark).sessions) == 1


@pytest.mark.parametrize("damage", [b"no database at all" * 100, b""])
async def test_a_damaged_database_is_made_anew(
    managed: Open, database: Path, catalogue: SessionCatalogue, damage: bytes
) -> None:
    await say(managed(), "cli:direct", "hello")
    mark = catalogue.changes("").mark
    overwrite(database, damage)
    assert previews(catalogue) == {"cli:direct": "hello"}
    assert catalogue.changes(mark).is_whole
    assert is_private(database)


async def test_one_of_another_version_is_made_anew(
    managed: Open, database: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert previews(catalogue) == {"cli:direct": "hello"}


async def test_a_line_added_by_hand_hides_the_last_number(
    managed: Open, folder: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    with live(folder).open("a") as file:
        file.write('{"role": "user", "content": "by hand"}\n')
    assert [(info.preview, info.last_seq) for info in catalogue.sessions()] == [("by hand", 0)]


def test_a_database_of_another_user_gives_way(clock: FakeClock) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        database = Path(name, "catalogue.db")
        database.touch(mode=0o600)
        database.parent.chmod(0o777)
        with without_privileges():
            catalogue = SessionCatalogue(Path(name), clock, database)
            assert list(catalogue.sessions()) == []
        assert database.read_bytes()


async def test_without_a_place_on_the_disk_sessions_are_listed_all_the_same(
    managed: Open, folder: Path, clock: FakeClock, tmp_path: Path, warnings: list[str]
) -> None:
    manager = managed()
    await say(manager, "cli:direct", "hello")
    (tmp_path / "file").touch()
    catalogue = SessionCatalogue(folder, clock, tmp_path / "file" / "catalogue.db")
    mark = catalogue.changes("").mark
    await say(manager, "cli:direct", "more")
    assert previews(catalogue) == {"cli:direct": "more"}
    assert len(catalogue.changes(mark).sessions) == 1
    assert len(warnings) == 1


async def test_a_copy_goes_by_its_own_name(
    managed: Open, folder: Path, catalogue: SessionCatalogue
) -> None:
    await say(managed(), "cli:direct", "hello")
    (folder / "copy.jsonl").write_bytes(live(folder).read_bytes())
    assert previews(catalogue) == {"cli:direct": "hello", "copy": "hello"}
    mark = catalogue.changes("").mark
    live(folder).rename(folder / "later.jsonl")
    assert previews(catalogue) == {"later": "hello", "copy": "hello"}
    assert set(names_by_key(catalogue.changes(mark))) == {"copy", "later"}


async def test_what_cannot_be_read_is_said_once_and_hides_no_other(
    managed: Open, folder: Path, catalogue: SessionCatalogue, warnings: list[str]
) -> None:
    await say(managed(), "cli:direct", "hello")
    (folder / "broken.jsonl").mkdir()
    link_to_itself(folder / "archive" / "cli_broken")
    for _ in range(2):
        assert previews(catalogue) == {"cli:direct": "hello"}
    assert len(warnings) == 2


async def test_nothing_is_left_of_a_line_that_was_rewritten(
    folder: Path, clock: FakeClock, database: Path, catalogue: SessionCatalogue
) -> None:
    manager = SessionManager(catalogue, clock)
    await say(manager, "cli:direct", "my secret")
    await say(manager, "cli:other", "x")
    assert "my secret" in previews(catalogue).values()
    await manager.rewrite("cli:direct", lambda line: line.replace("secret", "[gone]"))
    kept = b"".join(path.read_bytes() for path in database.parent.glob("catalogue.db*"))
    assert b"secret" not in kept
    assert previews(catalogue) == {"cli:direct": "my [gone]", "cli:other": "x"}
    await manager.close()


async def test_nothing_is_left_of_it_where_the_disk_is_full(
    managed: Open, folder: Path, database: Path, catalogue: SessionCatalogue, warnings: list[str]
) -> None:
    await say(managed(), "cli:direct", "my secret")
    assert previews(catalogue) == {"cli:direct": "my secret"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        catalogue.forget(live(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any(b"secret" in read(path) for path in database.parent.glob(f"{database.name}*"))
    assert len(warnings) == 1


async def test_a_change_during_a_scan_ends_its_use(
    managed: Open, folder: Path, catalogue: SessionCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed()
    await say(manager, "cli:direct", "hello")
    listed = live(folder).read_bytes()
    later = iter([folder / "later.jsonl"])

    def list_and_change(place: Path) -> dict[str, str]:
        found = list_states(place)
        for path in later:
            path.write_bytes(listed)
            catalogue.expire()
        return found

    monkeypatch.setattr("nanobot.session.catalogue.list_states", list_and_change)
    catalogue.changes("")
    assert "later" in {info.key for info in catalogue.sessions(within=60.0)}


async def test_background_work_does_not_count_as_use(
    managed: Open, folder: Path, clock: FakeClock
) -> None:
    manager = managed()
    rested = await say(manager, "cli:rested", "hello")
    clock.jump(60)
    await say(manager, "cli:newest", "hello")
    clock.jump(3_600)
    await manager.mark_consolidated(rested, 1)
    assert [info.key for info in managed().list_sessions()] == ["cli:newest", "cli:rested"]


async def test_the_latest_sessions_are_read_without_the_others(
    managed: Open, clock: FakeClock
) -> None:
    manager = managed()
    for number in range(5):
        await say(manager, f"cli:{number}", "hello")
        clock.jump(60)
    other = managed()
    assert [info.key for info in other.list_sessions(most=2)] == ["cli:4", "cli:3"]
    assert other.count() == 5
    new = await manager.get_or_create("cli:new")
    new.add_message(user("hello"))
    saved = manager.save(new)
    assert [info.key for info in manager.list_sessions(most=2)] == ["cli:new", "cli:4"]
    await saved
