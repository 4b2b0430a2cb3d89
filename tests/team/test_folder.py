"""Folders that a team can share. A worker starts only with its own team's."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from nanobot.app.gateway import Gateway
from nanobot.config.load import load_settings
from nanobot.errors import NanobotError, StorageError
from nanobot.providers.offline.model import OfflineModel
from nanobot.team.connection import DatabaseAddress
from nanobot.team.folder import (
    check_folder,
    expect_together,
    put_word,
    unknown_caches,
    word_file,
)
from tests.doubles.postgres import PostgresServer
from tests.team.support import sql
from tests.upkeep.homes import write

_MOUNT = "36 35 98:0 / {} rw,noatime - {} server:/export {}\n"


def _mount_text(at: Path, kind: str, options: str = "rw") -> str:
    """Return the kernel's description of a file system at `at`."""
    return _MOUNT.format("/", "ext4", "rw") + _MOUNT.format(at, kind, options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ext4", "rw"),
        ("nfs4", "rw,vers=4.2,hard,noac"),
        ("nfs4", "rw,vers=4.2,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,hard"),
        ("ceph", "rw"),
        ("fuse.glusterfs", "rw"),
    ],
)
def test_a_folder_can_be_shared(tmp_path: Path, kind: str, options: str) -> None:
    check_folder(
        tmp_path / "home", _make(tmp_path / "shared"), _mount_text(tmp_path, kind, options)
    )
    assert not list((tmp_path / "shared").iterdir()), "nothing is left of trying it out"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("nfs", "rw,vers=3,noac"),
        ("nfs4", "rw,soft,noac"),
        ("nfs4", "rw,softerr,noac"),
        ("cifs", "rw,actimeo=0"),
        ("vfat", "rw"),
    ],
)
def test_a_file_system_that_loses_something_is_refused(
    tmp_path: Path, kind: str, options: str
) -> None:
    with pytest.raises(NanobotError, match=r"mounted|replace"):
        check_folder(
            tmp_path / "home", _make(tmp_path / "shared"), _mount_text(tmp_path, kind, options)
        )


@pytest.mark.parametrize(
    "options",
    [
        "rw,vers=4.2,hard",
        "rw,vers=4.2,hard,lookupcache=pos",
        "rw,vers=4.2,hard,lookupcache=none",
        "rw,hard,acregmin=0,acregmax=0",
        "rw,hard,acdirmin=0,acdirmax=0",
        "rw,hard,acregmin=1,acregmax=1,acdirmin=1,acdirmax=1",
        "rw,hard,noac,nocto",
        "rw,hard,noac,softreval",
    ],
)
@pytest.mark.parametrize("place", [".", "shared", "shared/sessions"])
def test_an_nfs_client_that_caches_attributes_is_refused_wherever_it_is_mounted(
    tmp_path: Path, options: str, place: str
) -> None:
    shared = _make(tmp_path / "shared")
    mounts = _mount_text(tmp_path / place, "nfs4", options)
    with pytest.raises(StorageError, match="caches file attributes") as refused:
        check_folder(tmp_path / "home", shared, mounts)
    point = (tmp_path / place).resolve()
    assert f"server:/export {point} nfs4 nfsvers=4.2,hard,noac" in refused.value.hint


def test_where_a_link_in_the_folder_leads_is_looked_at_as_well(tmp_path: Path) -> None:
    shared, elsewhere = _make(tmp_path / "shared"), _make(tmp_path / "elsewhere" / "sessions")
    (shared / "sessions").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="caches file attributes"):
        check_folder(tmp_path / "home", shared, _mount_text(elsewhere.parent, "nfs4", "rw,hard"))


def test_a_mount_that_another_one_hides_does_not_count(tmp_path: Path) -> None:
    shared = _make(tmp_path / "shared")
    hidden = _mount_text(tmp_path, "nfs4", "rw,hard") + _mount_text(shared, "nfs4", "rw,hard,noac")
    check_folder(tmp_path / "home", shared, hidden)
    again = _mount_text(shared, "nfs4", "rw,hard") + _mount_text(shared, "nfs4", "rw,hard,noac")
    check_folder(tmp_path / "home", shared, again)


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [("fuse.glusterfs", True), ("virtiofs", True), ("ceph", False), ("fuse.ceph", False)],
)
def test_file_systems_that_hide_their_cache_times_are_known(
    tmp_path: Path, kind: str, unknown: bool
) -> None:
    named = unknown_caches(_make(tmp_path / "shared"), _mount_text(tmp_path, kind))
    assert named == (kind if unknown else "")


@pytest.mark.parametrize(("home", "shared"), [("a", "a"), ("a/b", "a"), ("a", "a/b")])
def test_home_and_shared_folder_do_not_lie_in_each_other(
    tmp_path: Path, home: str, shared: str
) -> None:
    with pytest.raises(NanobotError, match="contains the other"):
        check_folder(tmp_path / home, _make(tmp_path / shared))


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NanobotError, match="no folder"):
        check_folder(tmp_path / "home", tmp_path / "shared")


def test_a_worker_starts_with_the_folder_of_its_database_alone(
    tmp_path: Path, team_database: str
) -> None:
    address = DatabaseAddress(team_database)
    expect_together(address, tmp_path)  # neither is a team's yet
    with psycopg.connect(team_database) as db:
        put_word(db, "otter")
    with pytest.raises(NanobotError, match="not the folder"):
        expect_together(address, tmp_path)  # as without a mount
    write(word_file(tmp_path), "otter")
    expect_together(address, tmp_path)
    word_file(tmp_path).write_text("heron")
    with pytest.raises(NanobotError, match="belong to different teams"):
        expect_together(address, tmp_path)


@pytest.mark.parametrize("wrong", ["database", "folder"])
async def test_what_a_worker_is_pointed_at_by_mistake_stays_as_it_is(
    tmp_path: Path, postgres: PostgresServer, team_database: str, wrong: str
) -> None:
    empty, home = postgres.dsn(postgres.create()), tmp_path / "home"
    with psycopg.connect(team_database) as db:
        put_word(db, "otter")
    write(word_file(tmp_path / "shared"), "otter")
    dsn, shared = (empty, "shared") if wrong == "database" else (team_database, "unmounted")
    team = f"agent: {{timezone: UTC}}\nteam: {{database: '{dsn}', shared: {tmp_path / shared}}}\n"
    write(home / "config.yaml", team)
    (tmp_path / "unmounted").mkdir()
    with pytest.raises(NanobotError, match="team"):
        await Gateway(load_settings(home, {}), provider=OfflineModel()).run(signals=False)
    assert sql(empty, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    assert sql(team_database, "SELECT id FROM worker") == []
    assert [*(tmp_path / "unmounted").iterdir()] == []
    assert [*(tmp_path / "shared/state").iterdir()] == [word_file(tmp_path / "shared")]


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
