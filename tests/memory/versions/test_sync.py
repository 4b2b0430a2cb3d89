"""Several devices, one memory: real repositories, one of them shared."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from nanobot.errors import NanobotError, WriteConflict
from nanobot.memory.git import DamagedRepository, Repository, repositories
from nanobot.memory.gitstore import GitStore
from nanobot.memory.sync import SyncFailed, SyncResult, Write, fetch, sync
from nanobot.memory.version import Change, scope_of
from nanobot.security.paths import Root
from nanobot.testing.clock import FakeClock

FILE = "memory/MEMORY.md"
FRIEND = "people/telegram_7/"
START = "# Memory\n\n- lives in Ulm\n- likes tea\n"


class Device:
    """A home with versions that syncs with the shared repository next to it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.remote = str(folder / "shared.git")
        self.root = Root(folder / name / "workspace")
        self.root.create()
        self.state = folder / name / "state"
        self.clock = FakeClock()
        self._stores: dict[str, GitStore] = {}
        self.store = self.store_of("")

    def store_of(self, prefix: str) -> GitStore:
        """Return the versions of a scope."""
        new = GitStore(self.state, self.root, self.clock, prefix)
        return self._stores.setdefault(prefix, new)

    def sync(self, forgotten: str = "nothing", write: Write | None = None) -> SyncResult:
        def hides(path: str, line: str) -> bool:
            return forgotten in line

        scopes = repositories(self.state)
        return sync(self.store_of, scopes, self.remote, write or self.write_merged, hides)

    def write_merged(self, path: str, expected: str | None, text: str, change: Change) -> int:
        """Write the result of a sync."""
        place = self.root.place(path)
        before = None if expected is None else expected.encode()
        put = partial(place.write_bytes, text.encode(), expected=before)
        store = self.store_of(scope_of(path) or "")
        return store.write(path, before, text.encode(), change, put)

    def edit(self, text: str, path: str = FILE) -> None:
        self.root.place(path).write_bytes(text.encode())

    def write(self, text: str) -> int:
        return self.write_for("", text)

    def write_for(self, prefix: str, text: str) -> int:
        """Write the long-term facts of that scope."""
        place = self.root.place(f"{prefix}{FILE}")
        before = place.read_bytes(100_000)
        put = partial(place.write_bytes, text.encode(), expected=before)
        store = self.store_of(prefix)
        return store.write(place.relative, before, text.encode(), Change("agent"), put)

    def add(self, line: str) -> None:
        self.write(f"{self.text()}{line}\n")

    def replace(self, old: str, new: str) -> None:
        self.write(self.text().replace(old, new))

    def text(self, path: str = FILE) -> str:
        return (self.root.place(path).read_bytes(100_000) or b"").decode()

    @property
    def facts(self) -> set[str]:
        return {line for line in self.text().splitlines() if line.startswith("-")}


@pytest.fixture
def devices(tmp_path: Path) -> tuple[Device, Device]:
    """Two devices that have both synced the same start."""
    one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
    one.write(START)
    one.sync()
    two.sync()
    assert two.text() == START
    return one, two


def test_both_devices_changes_end_on_both(devices: tuple[Device, Device]) -> None:
    one, two = devices
    one.add("- has a dog")
    two.edit(two.text().replace("- likes tea\n", "") + "- speaks Danish\n")
    one.sync()
    result = two.sync()
    assert result.conflicts == ()
    assert [two.store.version(number).author for number in result.numbers] == ["sync"]
    one.sync()
    assert one.facts == two.facts == {"- lives in Ulm", "- has a dog", "- speaks Danish"}
    assert one.text() == two.text()


def test_a_sync_that_brings_nothing_makes_no_version(devices: tuple[Device, Device]) -> None:
    one, two = devices
    one.add("- has a dog")
    one.sync()
    two.sync()
    numbers = [one.store.tip_number(), two.store.tip_number()]
    for device in (one, two, one):
        assert device.sync().numbers == ()
    assert [one.store.tip_number(), two.store.tip_number()] == numbers


def test_what_one_device_reworded_or_removed_does_not_come_back(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    one.add("- has a dog")
    one.sync()
    two.sync()
    one.replace("- has a dog", "- has a dog called Rex")
    one.replace("- likes tea\n", "")
    one.sync()
    two.sync()
    one.sync()
    assert one.facts == two.facts == {"- lives in Ulm", "- has a dog called Rex"}


def test_a_line_that_both_changed_is_kept_twice_and_reported(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    one.replace("- lives in Ulm", "- lives in Bonn")
    two.replace("- lives in Ulm", "- lives in Kiel")
    one.sync()
    result = two.sync()
    assert len(result.conflicts) == 1
    assert "Bonn" in result.conflicts[0]
    assert one.sync().conflicts == ()
    assert one.facts == two.facts == {"- lives in Bonn", "- lives in Kiel", "- likes tea"}


def test_three_devices_agree(devices: tuple[Device, Device], tmp_path: Path) -> None:
    one, two = devices
    three = Device(tmp_path, "three")
    three.write("# Memory\n\n- came later\n")
    one.add("- has a dog")
    two.replace("- likes tea", "- likes green tea")
    for device in (three, two, one, three, two, one):
        device.sync()
    assert one.facts == two.facts == three.facts
    assert one.facts == {"- lives in Ulm", "- likes green tea", "- has a dog", "- came later"}


def test_numbers_stay_when_versions_come_from_elsewhere(devices: tuple[Device, Device]) -> None:
    one, two = devices
    one.add("- has a dog")
    before = one.store.version(1)
    two.add("- speaks Danish")
    two.sync()
    one.sync()
    assert one.store.version(1) == before
    assert [version.number for version in one.store.log()] == [3, 2, 1]


def test_other_scopes_come_along_and_other_files_have_no_say(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    theirs = "people/telegram_7/memory/MEMORY.md"
    for path in (theirs, "evil.sh", "people/x/y/USER.md"):
        place = one.root.place(path)
        put = partial(place.write_bytes, b"- x\n", expected=None)
        store = one.store_of(scope_of(path) or "")
        store.write(path, None, b"- x\n", Change("agent"), put)
    one.sync()
    two.sync()
    assert two.text(theirs) == "- x\n"
    assert two.root.place("evil.sh").stat() is None
    assert two.root.place("people/x").stat() is None


def test_a_friends_changes_have_numbers_and_branches_of_their_own(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    for line in ("- has a dog", "- speaks Danish"):
        one.add(line)
    one.write_for(FRIEND, "- jam\n")
    one.sync()
    result = two.sync()
    assert (result.numbers, result.others) == ((2,), {"people/telegram_7": (1,)})
    assert two.sync() == SyncResult((), result.devices)
    branches = {path.parent.name for path in Path(one.remote).rglob("device-*")}
    assert branches == {"heads", "telegram_7"}


def test_other_branches_of_the_shared_repository_are_not_fetched(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    shared = Repository(Path(one.remote))
    other = shared.store("", {"large.bin": b"of somebody else"}, "other work", one.clock.now())
    shared.set_tip(other, "main")
    shared.close()
    one.add("- has a dog")
    one.sync()
    assert two.sync().devices == (one.store.repository.branch,)
    assert "- has a dog" in two.facts
    with two.store.acquire(), pytest.raises(DamagedRepository):
        two.store.repository.commit(other)


def erase_pin(device: Device) -> None:
    device.replace("- pin is 1234\n", "")
    device.store.rewrite(lambda text: text.replace("- pin is 1234\n", ""))


def test_what_one_device_erased_leaves_the_other_as_well(devices: tuple[Device, Device]) -> None:
    one, two = devices
    one.add("- pin is 1234")
    one.sync()
    two.sync()
    erase_pin(one)
    two.add("- speaks Danish")
    one.sync(forgotten="1234")
    for device in (two, one):
        device.sync()
        assert device.facts == {"- lives in Ulm", "- likes tea", "- speaks Danish"}


def test_what_was_taken_out_after_an_erasure_does_not_come_back(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    two.add("- has a cat")
    two.sync()
    one.sync()
    one.add("- pin is 1234")
    erase_pin(one)
    one.replace("- likes tea\n", "")
    one.sync(forgotten="1234")
    two.sync()
    assert one.facts == two.facts == {"- lives in Ulm", "- has a cat"}


def test_a_home_from_a_backup_overwrites_nothing_that_was_pushed(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    one, two = devices
    backup = tmp_path / "backup"
    shutil.copytree(one.state, backup)
    one.add("- after the backup")
    one.sync()
    shutil.rmtree(one.state)
    shutil.copytree(backup, one.state)
    asyncio.run(one.clock.advance(60.0))
    one.edit(f"{START}- after the restore\n")
    one.sync()
    two.sync()
    assert one.facts == two.facts
    assert {"- after the backup", "- after the restore"} <= one.facts
    assert len(list((tmp_path / "shared.git/refs/heads").iterdir())) == 3


def test_a_home_from_a_backup_that_has_erased_since_loses_nothing(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    one, _ = devices
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    copy = Device(tmp_path, "copy")
    one.add("- has a cat")
    one.sync()
    asyncio.run(copy.clock.advance(60.0))
    copy.add("- has a dog")
    copy.store.rewrite(lambda text: text.replace("Ulm", "U."))
    copy.edit(copy.text().replace("Ulm", "U."))
    copy.sync()
    assert copy.facts >= {"- likes tea", "- has a cat", "- has a dog"}


def test_a_file_that_changes_during_the_merge_is_not_overwritten(
    devices: tuple[Device, Device],
) -> None:
    one, two = devices
    one.add("- has a dog")
    one.sync()

    def edit_first(path: str, expected: str | None, text: str, change: Change) -> int:
        two.edit(f"{START}- by hand\n")
        raise WriteConflict(path)

    with pytest.raises(WriteConflict):
        two.sync(write=edit_first)
    two.sync()
    assert two.facts == {"- lives in Ulm", "- likes tea", "- has a dog", "- by hand"}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("{folder}/nowhere/shared.git", "No such file or directory"),
        ("{folder}/one", "No git repository"),
        ("file://{folder}/one/workspace/memory/MEMORY.md", ""),
        ("http://user:secret@127.0.0.1:9/memory.git", "127.0.0.1"),
        ("ftp://127.0.0.1/memory.git", ""),
        ("git://127.0.0.1/memory.git", "unknown kind of address"),
        ("~nosuch/memory.git", "the user in '~nosuch/memory.git' is unknown"),
    ],
)
def test_a_sync_that_fails_says_what_to_do_and_changes_nothing(
    devices: tuple[Device, Device], tmp_path: Path, address: str, reason: str
) -> None:
    one, _ = devices
    one.remote = address.format(folder=tmp_path)
    before = one.text(), one.store.tip_number()
    with pytest.raises(NanobotError) as caught:
        one.sync()
    assert reason in str(caught.value)
    assert "secret" not in caught.value.for_people()
    assert caught.value.hint
    assert (one.text(), one.store.tip_number()) == before


class StalledPeer:
    """A machine that never answers ssh. `release` lets it hang up."""

    def __init__(self, folder: Path) -> None:
        self._called, self._released = folder / "called", folder / "released"
        for name in (self._called, self._released):
            os.mkfifo(name)
        script = folder / "ssh"
        script.write_text(f"#!/bin/sh\n: > '{self._called}'\nexec cat '{self._released}'\n")
        script.chmod(0o700)

    def wait_for_call(self) -> None:
        self._called.read_bytes()

    def release(self) -> None:
        self._released.write_bytes(b"")


@pytest.fixture
def stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StalledPeer]:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    yield StalledPeer(folder)
    gc.collect()  # dulwich leaves its side of a connection that fails to the collector


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nobody_who_writes_waits_for_a_peer_that_stalls(
    devices: tuple[Device, Device], stalled: StalledPeer
) -> None:
    one, _ = devices
    one.remote = "ssh://somewhere.invalid/memory.git"
    with ThreadPoolExecutor() as pool:
        syncing = pool.submit(one.sync)
        stalled.wait_for_call()
        one.add("- has a dog")
        erasing = pool.submit(one.store.rewrite, lambda text: text.replace("dog", "cat"))
        one.add("- speaks Danish")
        assert one.store.log()[0].number == 3
        stalled.release()
        with pytest.raises(SyncFailed):
            syncing.result()
        assert erasing.result() == 2
    one.remote = devices[1].remote
    one.sync()
    devices[1].sync()
    assert "- speaks Danish" in devices[1].facts


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_transfer_that_takes_too_long_is_given_up_and_says_so(
    devices: tuple[Device, Device], stalled: StalledPeer
) -> None:
    one, _ = devices
    caller = threading.Thread(target=stalled.wait_for_call)
    caller.start()
    with pytest.raises(SyncFailed, match="closed the connection"):
        fetch("ssh://somewhere.invalid/memory.git", one.state / "memory.git", seconds=0.5)
    caller.join()


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_a_repository_made_by_git_serves_as_the_shared_one(tmp_path: Path) -> None:
    shared = tmp_path / "made by git"
    subprocess.run(["git", "init", "-q", "--bare", str(shared)], check=True)
    one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
    one.remote, two.remote = str(shared), f"file://{shared}"
    one.write(START)
    one.sync()
    two.sync()
    assert two.text() == START
    command = ["git", f"--git-dir={shared}", "fsck", "--strict"]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_devices_meet_by_ssh_and_it_is_started_with_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh is a script that runs the other machine's command here. Its options are ssh(1)'s."""
    shared, script = tmp_path / "shared.git", tmp_path / "bin" / "ssh"
    subprocess.run(["git", "init", "-q", "--bare", str(shared)], check=True)
    script.parent.mkdir()
    script.write_text(
        f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/called'\nenv > '{tmp_path}/environ'\n"
        f"pwd > '{tmp_path}/folder'\nfor last; do :; done\nexec sh -c \"$last\"\n"
    )
    script.chmod(0o700)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    monkeypatch.setenv("GIT_SSH_COMMAND", "/nowhere/else")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
    one.remote = two.remote = f"ssh://ada@example.org:2222{shared}"
    one.write(START)
    one.sync()
    two.sync()
    assert two.text() == START
    called = (tmp_path / "called").read_text().splitlines()
    assert all("-oBatchMode=yes" in one and "-x -p 2222" in one for one in called)
    assert any("ada@example.org git-upload-pack" in one for one in called)
    names = {line.partition("=")[0] for line in (tmp_path / "environ").read_text().splitlines()}
    assert "SSH_AUTH_SOCK" in names
    assert not [name for name in names if name.startswith(("GIT_SSH", "PYTHON"))]
    assert (tmp_path / "folder").read_text() == "/\n"
