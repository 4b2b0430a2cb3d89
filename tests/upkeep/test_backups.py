"""From a home to a file and back: everything, as of one moment, or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from errno import ENOSPC
from pathlib import Path

import pytest

from nanobot.clock import SystemClock
from nanobot.errors import NanobotError, StorageError
from nanobot.upkeep import backups
from nanobot.upkeep.archive import make_identity
from nanobot.upkeep.backups import (
    BackupOrder,
    exclusive_backup,
    list_backups,
    make_backup,
    prune_backups,
)
from nanobot.upkeep.restore import restore, verify
from tests.upkeep.homes import LINE, MADE, back_up, build_home, freeze, journal, tree, write

CLOCK = SystemClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return build_home(tmp_path / "home")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.tar.gz"


def nothing(*_: int) -> None:
    pass


def test_what_is_restored_is_what_was_there_with_its_modes(
    home: Path, file: Path, tmp_path: Path
) -> None:
    (home / "workspace" / "link").symlink_to("tool.sh")
    (home / "workspace" / "empty").mkdir()
    before = tree(home)
    made = back_up(home, file)
    restored = restore(file, tmp_path / "new", None, CLOCK)
    after = tree(tmp_path / "new")
    for name in [*before, *after]:
        if not name.startswith("state/journal.db"):
            assert after[name] == before[name]
    with contextlib.closing(journal(tmp_path / "new")) as db:
        assert db.execute("SELECT value FROM cursor").fetchall() == [("7",)]
    assert (tmp_path / "new/workspace/link").readlink() == Path("tool.sh")
    assert (tmp_path / "new/workspace/empty").is_dir()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    assert restored.unpacked.files == made.files
    assert (restored.found.conversations, restored.found.messages) == (1, 1)
    assert not restored.found.troubles
    assert restored.previous is None


def test_what_happens_after_the_snapshot_is_not_in_the_backup(
    home: Path, file: Path, tmp_path: Path
) -> None:
    taken = freeze(home)
    session = home / "sessions" / "fake_1.jsonl"
    with session.open("a") as lines:
        lines.write(LINE % ("later", 2))
    write(home / "new.yaml", "later").replace(home / "config.yaml")
    (home / "secrets.env").unlink()
    with contextlib.closing(journal(home)) as db:
        db.execute("UPDATE cursor SET value = '8'")
    # Readers of memory reject files with a second name.
    assert (home / "workspace/memory/MEMORY.md").stat().st_nlink == 1
    make_backup(home, taken, file, BackupOrder(), nothing)
    new = tmp_path / "new"
    restore(file, new, None, CLOCK)
    assert (new / "sessions/fake_1.jsonl").read_text() == LINE % ("hello", 1)
    assert "Otter" in (new / "config.yaml").read_text()
    assert (new / "secrets.env").exists()
    with contextlib.closing(journal(new)) as db:
        assert db.execute("SELECT value FROM cursor").fetchone() == ("7",)


def test_what_is_made_anew_and_what_leads_elsewhere_is_left_out(
    home: Path, file: Path, tmp_path: Path
) -> None:
    write(home / "state/index.db", "cache")
    write(home / "backups/nanobot-20260302T090000Z.tar.gz", "an older one")
    write(home / "state/channels/whatsapp/bridge-0123456789abcdef/index.js", "installed again")
    (home / "workspace/outside").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "state/other.sock"))
        made = back_up(home, file, order=BackupOrder(media=False))
    restore(file, tmp_path / "new", None, CLOCK)
    names = set(tree(tmp_path / "new"))
    assert made.left_out == ("workspace/outside",)
    assert names == {
        "config.yaml", "secrets.env", "sessions/fake_1.jsonl", "state/journal.db",
        "workspace/memory/MEMORY.md", "workspace/tool.sh",
    }  # fmt: skip


def test_a_file_that_shrinks_or_goes_while_it_is_packed_harms_nothing(
    home: Path, file: Path
) -> None:
    write(home / "workspace/projects/a.bin", "x" * 600_000)
    write(home / "workspace/projects/b.bin", "y" * 10)

    def meddle(*_: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.truncate(home / "workspace/projects/a.bin", 300_000)
            (home / "workspace/projects/b.bin").unlink()

    made = make_backup(home, freeze(home), file, BackupOrder(), meddle)
    assert made.changed == ("workspace/projects/a.bin",)
    assert verify(file, None, CLOCK).unpacked.files == made.files


def test_an_encrypted_backup_takes_its_key_and_no_other(
    home: Path, tmp_path: Path, file: Path
) -> None:
    public = make_identity(tmp_path / "key", "now")
    make_identity(tmp_path / "other", "now")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    back_up(home, file, order=BackupOrder(recipient=public))
    assert b"secret" not in file.read_bytes()
    with pytest.raises(NanobotError, match="encrypted") as caught:
        verify(file, None, CLOCK)
    assert "--identity" in caught.value.hint
    with pytest.raises(NanobotError, match="cannot be decrypted"):
        verify(file, tmp_path / "other", CLOCK)
    assert verify(file, tmp_path / "key", CLOCK).found.conversations == 1
    restore(file, tmp_path / "new", tmp_path / "key", CLOCK)
    assert "TOKEN=secret" in (tmp_path / "new/secrets.env").read_text()
    with pytest.raises(NanobotError, match="already exists"):
        make_identity(tmp_path / "key", "now")


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("harm", ["flipped", "cut"])
def test_a_damaged_backup_is_refused_and_the_home_stays_as_it_is(
    home: Path, tmp_path: Path, file: Path, harm: str, sealed: bool
) -> None:
    public = make_identity(tmp_path / "key", "now") if sealed else ""
    back_up(home, file, order=BackupOrder(recipient=public))
    content = bytearray(file.read_bytes())
    if harm == "cut":
        del content[-9:]
    else:
        content[len(content) // 2] ^= 0x40
    file.write_bytes(content)
    before = tree(home)
    with pytest.raises(NanobotError, match=r"cannot be used|damaged"):
        restore(file, home, tmp_path / "key", CLOCK, replace=True)
    assert tree(home) == before
    assert [path.name for path in tmp_path.iterdir() if "restor" in path.name] == []


def test_a_full_disk_leaves_neither_half_a_file_nor_the_snapshot(home: Path, file: Path) -> None:
    free = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
    with pytest.raises(StorageError, match=os.strerror(ENOSPC)):
        back_up(home, file, order=BackupOrder(reserve=free * 2))
    assert not any(file.parent.glob("*backup.tar*"))
    assert not (home / "state/backup").exists()
    back_up(home, file)


def test_a_disk_that_does_not_tell_its_room_is_no_full_one(
    home: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untold = os.statvfs("/proc")
    monkeypatch.setattr("os.statvfs", lambda _: untold)
    back_up(home, file, order=BackupOrder(reserve=1))
    restore(file, tmp_path / "new", None, CLOCK)
    verify(file, None, CLOCK)


def test_what_a_killed_attempt_left_is_cleared_and_a_name_is_never_taken_twice(
    home: Path, file: Path
) -> None:
    torn = write(file.with_name(".nanobot-20260301T090000Z.tar.gz.nanobot-partial"), "torn")
    back_up(home, file)
    assert not torn.exists()
    before = file.read_bytes()
    with pytest.raises(NanobotError, match="already exists"):
        back_up(home, file)
    assert file.read_bytes() == before


def test_only_one_backup_of_a_home_is_made_at_a_time(home: Path) -> None:
    with (
        exclusive_backup(home),
        pytest.raises(NanobotError, match="already running"),
        exclusive_backup(home),
    ):
        pass


def test_the_newest_are_kept_and_other_files_are_nobodys_business(tmp_path: Path) -> None:
    names = [f"nanobot-202603{day:02}T090000Z.tar.gz" for day in range(1, 6)]
    names[2] += ".age"
    others = ["nanobot-20260301T090000Z.tar", "nanobot-latest.tar.gz", "holiday.jpg"]
    for name in names + others:
        write(tmp_path / name, "x")
    assert [one.path.name for one in list_backups(tmp_path)] == names[::-1]
    assert [one.encrypted for one in list_backups(tmp_path)][2]
    assert {path.name for path in prune_backups(tmp_path, 2, tmp_path / names[4])} == set(names[:3])
    assert {path.name for path in tmp_path.iterdir()} == {*names[3:], *others}
    assert backups.backup_name(MADE, "age1x") == "nanobot-20260302T090000Z.tar.gz.age"


def test_what_only_has_a_name_like_a_backups_hides_none(tmp_path: Path) -> None:
    (tmp_path / "nanobot-20260305T090000Z.tar.gz").symlink_to(tmp_path / "gone")
    write(tmp_path / "nanobot-20261301T000000Z.tar.gz", "x")
    whole = write(tmp_path / "nanobot-20260302T090000Z.tar.gz", "x")
    assert [one.path for one in list_backups(tmp_path)] == [whole]


def test_tar_unpacks_it_as_well(home: Path, file: Path, tmp_path: Path) -> None:
    write(home / "workspace" / f"{'long ' * 40}name ü.md", "found")
    write(home / "media" / "large.png", "picture" * 20_000)  # not compressed again
    back_up(home, file)
    subprocess.run(["tar", "-xzf", str(file), "-C", str(tmp_path), "home/workspace"], check=True)
    assert any(content == b"found" for _, content in tree(tmp_path / "home/workspace").values())


def test_what_was_made_just_now_stays_though_a_wrong_clock_made_others_of_the_future(
    tmp_path: Path,
) -> None:
    ahead = [write(tmp_path / f"nanobot-20990{n}01T000000Z.tar.gz", "x") for n in (1, 2, 3)]
    newest = write(tmp_path / "nanobot-20260302T090000Z.tar.gz", "x")
    assert set(prune_backups(tmp_path, 2, newest)) == set(ahead[:2])
    assert newest.exists()


def test_a_snapshot_that_goes_while_it_is_packed_leaves_no_backup_that_looks_whole(
    home: Path, file: Path
) -> None:
    write(home / "sessions/fake_2.jsonl", LINE % ("more", 1))

    def lose(*_: int) -> None:
        shutil.rmtree(home / "state/backup", ignore_errors=True)

    with pytest.raises(StorageError):
        make_backup(home, freeze(home), file, BackupOrder(), lose)
    assert not file.exists()


def test_nothing_but_plain_files_of_the_workspace_gets_in_whatever_takes_their_place(
    home: Path, file: Path, tmp_path: Path
) -> None:
    key = write(tmp_path / "elsewhere/key", "PRIVATE")
    for name in ("a/key", "b.txt", "c.txt"):
        write(home / "workspace/projects" / name, "harmless")

    def meddle(*_: int) -> None:
        projects = home / "workspace/projects"
        if (projects / "a").is_symlink():
            return
        shutil.rmtree(projects / "a")
        (projects / "a").symlink_to(key.parent)
        (projects / "b.txt").unlink()
        (projects / "b.txt").symlink_to(key)
        (projects / "c.txt").unlink()
        os.mkfifo(projects / "c.txt")

    make_backup(home, freeze(home), file, BackupOrder(), meddle)
    assert verify(file, None, CLOCK).found.conversations == 1
    restore(file, tmp_path / "new", None, CLOCK)
    assert "workspace/projects/b.txt" not in tree(tmp_path / "new")
    assert b"PRIVATE" not in b"".join(content for _, content in tree(tmp_path / "new").values())


def test_folders_too_deep_to_be_restored_keep_nothing_else_from_it(
    home: Path, file: Path, tmp_path: Path
) -> None:
    folder = os.open(home / "workspace", os.O_RDONLY)
    for _ in range(150):
        os.mkdir("x" * 200, dir_fd=folder)
        inner = os.open("x" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    made = back_up(home, file)
    assert [path.startswith("workspace/xxx") for path in made.left_out] == [True]
    restore(file, tmp_path / "new", None, CLOCK)
    assert (tmp_path / "new/workspace/tool.sh").exists()


def test_a_large_file_of_the_agent_is_not_copied_while_the_journal_waits(
    home: Path, file: Path, tmp_path: Path
) -> None:
    large = write(home / "workspace/large.md", "x" * 9_000_000)
    taken = freeze(home)
    kept = (home / "state/backup").iterdir()
    assert sum(path.stat().st_size for path in kept) < 1_000_000
    make_backup(home, taken, file, BackupOrder(), nothing)
    restore(file, tmp_path / "new", None, CLOCK)
    assert (tmp_path / "new/workspace/large.md").stat().st_size == large.stat().st_size


@pytest.mark.parametrize("place", ["workspace", "workspace/deep", "media", "link"])
def test_no_backup_goes_where_the_agent_reads_or_the_next_one_would_hold_it(
    home: Path, tmp_path: Path, place: str
) -> None:
    (home / "workspace/deep").mkdir()
    (tmp_path / "link").symlink_to(home / "workspace")
    folder = tmp_path / "link" if place == "link" else home / place
    with pytest.raises(NanobotError, match=r"agent can read|backed up"):
        back_up(home, folder / "nanobot-20260302T090000Z.tar.gz")
