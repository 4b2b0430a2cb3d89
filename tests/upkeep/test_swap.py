"""An old and a new home are swapped, even if the process is killed in between."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from errno import EBUSY
from pathlib import Path

import pytest

from nanobot.app.base import make_home
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.lock import home_lock
from nanobot.upkeep.restore import STAGING, put_in_place, restore, staging_in
from tests.upkeep.homes import archive, head, member, tree, write

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
BEFORE = "before-restore-20260302T090000Z"


@pytest.mark.parametrize("moved", range(6))
def test_half_a_home_starts_nothing_and_is_made_whole(tmp_path: Path, moved: int) -> None:
    """`moved` entries of the old home, then of the new one, were moved before the interruption."""
    home, file = tmp_path / "home", tmp_path / "backup.tar.gz"
    file.write_bytes(archive([head(), member("home/a", b"x")]))
    old, new = home / BEFORE, home / ".restoring-x"
    write(old / "config.yaml" if moved > 0 else home / "config.yaml", "old")
    write(old / "state/old" if moved > 1 else home / "state/old", "old")
    write(home / "a" if moved > 3 else new / "a", "x")
    write(home / "state/new" if moved > 4 else new / "state/new", "new")
    write(home / ".restore-under-way.json", "")
    refused = pytest.raises(StorageError, match="was interrupted")
    with refused as caught, home_lock(home / "state"):
        pass
    assert "--replace" in caught.value.hint
    restore(file, home, None, SystemClock())
    assert [name for name in tree(home) if not name.startswith("before-")] == ["a"]
    for name in ("config.yaml", "state/old"):
        assert [one.read_text() for one in home.glob(f"before-*/{name}")] == ["old"]
    with home_lock(home / "state"):
        pass


def test_two_attempts_in_one_second_keep_both_old_homes(tmp_path: Path) -> None:
    home = write(tmp_path / "home" / "first", "1").parent
    places = []
    for name in ("second", "third"):
        with staging_in(home, STAGING) as staging:
            write(staging / name, "1")
            places.append(put_in_place(staging, home, NOW))
    first, second = places
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == (BEFORE, f"{BEFORE}-2")
    assert (first / "first").exists()
    assert (second / "second").exists()
    assert (home / "third").exists()


def test_after_a_killed_restore_into_an_empty_home_the_next_one_goes_well(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.tar.gz"
    write(home / ".restoring-left" / "secrets.env", "x")
    file.write_bytes(archive([head(), member("home/a", b"x")]))
    assert restore(file, home, None, SystemClock()).previous is None
    assert (home / "a").read_text() == "x"
    assert not (home / ".restoring-left").exists()


def test_what_is_mounted_in_a_volume_is_told_and_the_home_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.tar.gz"
    for name in ("config.yaml", "sessions/s", "state/old", "workspace/w"):
        write(home / name, "mine")
    before = tree(home)
    file.write_bytes(archive([head(), member("home/a", b"x")]))
    rename, mounted = Path.rename, {home / "state", home / "backups"}

    def busy(path: Path, target: Path) -> Path:
        if path in mounted:
            raise OSError(EBUSY, os.strerror(EBUSY), str(path), None, str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", busy)
    for _ in range(2):
        with pytest.raises(NanobotError, match=r"home/state is a mount point") as caught:
            restore(file, home, None, SystemClock(), replace=True)
        assert "Unmount" in caught.value.hint
        assert tree(home) == before
    with home_lock(home / "state"):
        pass
    mounted.discard(home / "state")
    write(home / "backups/b", "mine")
    before["state/gateway.lock"] = tree(home)["state/gateway.lock"]
    previous = restore(file, home, None, SystemClock(), replace=True).previous
    assert previous is not None
    assert tree(previous) == before
    assert set(tree(home)) == {"a", "backups/b", *(f"{previous.name}/{name}" for name in before)}


def test_no_folder_is_made_in_half_a_home(tmp_path: Path) -> None:
    write(tmp_path / ".restore-under-way.json", "{}")
    with pytest.raises(StorageError, match="was interrupted"):
        make_home(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".restore-under-way.json"]


def test_a_home_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(archive([head(), member("home/a", b"x")]))
    write(tmp_path / "disk/home/old", "mine")
    link = tmp_path / "home"
    link.symlink_to("disk/home")
    restore(file, link, None, SystemClock(), replace=True)
    assert link.is_symlink()
    assert (tmp_path / "disk/home/a").read_text() == "x"
