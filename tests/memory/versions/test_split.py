"""A home in which one repository has the versions of all scopes: each gets its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from nanobot.errors import StorageError
from nanobot.io import locked
from nanobot.memory.git import Draft, Repository
from nanobot.memory.gitstore import GitStore
from nanobot.memory.repositories import repositories
from nanobot.memory.version import Change, CommitMessage, UnknownVersion, scope_of
from nanobot.security.paths import Root
from nanobot.testing.clock import FakeClock

FILE = "memory/MEMORY.md"
FRIEND, GROUP = "people/telegram_7/", "groups/telegram_-9/"
WRITTEN = (
    (FILE, "- tea\n", Change("agent", "the owner's first")),
    (f"{FRIEND}{FILE}", "- jam\n", Change("agent", "a friend's first")),
    (f"{GROUP}USER.md", "# Us\n", Change("you")),
    (FILE, "- tea\n- rye\n", Change("dream", run="one")),
    ("USER.md", "# Me\n", Change("dream", run="one")),
    (f"{FRIEND}{FILE}", "- jam\n- figs\n", Change("consolidate", cursors=(3,))),
    (FILE, "- rye\n", Change("you")),
)
"""What an earlier version of nanobot wrote, in one numbering."""


class OldHome:
    """A home as an earlier version of nanobot left it, and the stores of a new process."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.state = folder / "state"
        self.root = Root(folder / "workspace")
        self.root.create()
        self.repository = Repository(self.state / "memory.git")
        self.repository.create()
        for number, (path, text, change) in enumerate(WRITTEN, 1):
            self.put(path, text)
            self.commit(path, text, self.message(path, change, number))
        self.repository.close()

    def commit(self, path: str, text: str, message: str) -> None:
        parent = self.repository.tip()
        files = {path: text.encode()}
        self.repository.set_tip(self.repository.store(parent, files, message, self.clock.now()))

    def message(self, path: str, change: Change, number: int) -> str:
        return CommitMessage(change, number, scope_of(path) or "").text

    def put(self, path: str, text: str) -> None:
        self.root.place(path).write_bytes(text.encode())

    def of(self, prefix: str = "") -> GitStore:
        return GitStore(self.state, self.root, self.clock, prefix)

    def write(self, prefix: str, text: str) -> int:
        path = f"{prefix}{FILE}"
        before = self.root.place(path).read_bytes(1_000)
        return self.of(prefix).write(
            path, before, text.encode(), Change("agent"), lambda: self.put(path, text)
        )


@pytest.fixture
def home(tmp_path: Path) -> OldHome:
    return OldHome(tmp_path)


def numbers(store: GitStore) -> list[int]:
    return [version.number for version in store.versions() if version.is_in(store.prefix)]


def test_every_version_keeps_the_number_that_people_were_shown(home: OldHome) -> None:
    home.of().split()
    assert numbers(home.of()) == [1, 4, 5, 7]
    assert numbers(home.of(FRIEND)) == [2, 6]
    assert numbers(home.of(GROUP)) == [3]
    for number in (2, 6):
        path, _, change = WRITTEN[number - 1]
        version = home.of(FRIEND).version(number)
        assert (version.change, version.paths) == (change, (path,))
    assert home.of(FRIEND).diff(6).splitlines()[3:] == [" - jam", "+- figs"]
    assert home.of(FRIEND).applied_cursors() == {3}
    for number in (1, 3, 4, 5, 7, 8):
        with pytest.raises(UnknownVersion):
            home.of(FRIEND).version(number)


def test_an_old_change_is_undone_and_gone_back_to_by_its_number(home: OldHome) -> None:
    home.of().split()
    assert home.of(FRIEND).plan_undo(2).texts == {f"{FRIEND}{FILE}": "- figs\n"}
    assert home.of(FRIEND).plan_restore(2).texts == {f"{FRIEND}{FILE}": "- jam\n"}
    assert home.of().plan_undo(5).texts == {FILE: "", "USER.md": ""}  # 4 is of its run
    assert home.of().plan_restore(1).texts == {FILE: "- tea\n", "USER.md": ""}


def test_numbers_go_on_in_each_scope_by_itself(home: OldHome) -> None:
    home.of().split()
    assert [home.write(FRIEND, f"- {n}\n") for n in range(2)] == [7, 8]
    assert [home.write("", f"- {n}\n") for n in range(2)] == [8, 9]
    assert home.write("people/telegram_8/", "- new\n") == 1
    assert numbers(home.of(FRIEND)) == [2, 6, 7, 8]


def test_the_owners_repository_stays_as_it_is(home: OldHome) -> None:
    whole = Path(home.repository.path)
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    home.of().split()
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_whoever_is_first_to_write_finds_the_split_done(home: OldHome) -> None:
    assert home.write(FRIEND, "- quince\n") == 7
    assert numbers(home.of(GROUP)) == [3]


def test_what_was_edited_or_cut_short_before_the_split_has_its_author(home: OldHome) -> None:
    path, text = f"{FRIEND}{FILE}", "- jam\n- figs\n- quince\n"
    intent = {
        "path": path,
        "before": sha256(b"- jam\n- figs\n").hexdigest(),
        "after": sha256(text.encode()).hexdigest(),
        "parent": home.repository.tip(),
        "message": home.message(path, Change("dream", "learned quince"), 8),
        "when": home.clock.now().isoformat(),
    }
    home.repository.write_file("intent.json", json.dumps(intent).encode())
    home.put(path, text)
    home.put(f"{GROUP}USER.md", "# Us\n\n- by hand\n")
    home.of().split()
    assert home.of(FRIEND).version(8).summary == "learned quince"
    assert home.of(FRIEND).record_hand_edits() == ()
    assert home.of(GROUP).record_hand_edits() == (4,)
    assert home.of(GROUP).version(4).author == "you"


def test_killed_at_any_step_it_begins_again_and_loses_nothing(tmp_path: Path) -> None:
    def die_at(last: int, home: OldHome) -> None:
        count = 0

        def step(event: str, _: object) -> None:
            nonlocal count
            count += event in {"open", "os.rename", "os.mkdir", "shutil.rmtree"}
            if count == last:
                os._exit(9)

        store = home.of()
        sys.addaudithook(step)
        store.split()

    for last in range(5, 10_000, 9):
        home = OldHome(tmp_path / str(last))
        child = multiprocessing.get_context("fork").Process(target=die_at, args=(last, home))
        child.start()
        child.join()
        home.of().split()
        found = [numbers(home.of(prefix)) for prefix in ("", FRIEND, GROUP)]
        assert found == [[1, 4, 5, 7], [2, 6], [3]]
        assert not list(home.state.glob("versions.new*"))
        if child.exitcode == 0:
            return
    pytest.fail("the split never came to its end")


def test_a_disk_that_refuses_the_split_keeps_nothing_of_it_and_it_is_made_later(
    home: OldHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError(home.state, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "finish", refuse)
        for work in (home.of().split, home.of(FRIEND).versions):
            with pytest.raises(StorageError):
                work()
            assert not list(home.state.glob("versions*/"))
        assert home.write("", "- still written\n") == 8
    assert numbers(home.of(FRIEND)) == [2, 6]


def test_where_an_old_version_is_damaged_the_other_scopes_begin_anew(home: OldHome) -> None:
    first = next(iter(reversed(list(home.repository.chain(home.repository.tip())))))
    home.repository.close()
    path = home.repository.path / "objects" / first.id[:2] / first.id[2:]
    path.chmod(0o600)
    path.write_bytes(b"rot")
    home.of().split()
    assert home.of(FRIEND).record_hand_edits() == (1,)
    assert home.of(FRIEND).version(1).author == "start"
    assert home.write("", "- still written\n") == 8


def test_what_is_no_scope_gets_no_repository(home: OldHome) -> None:
    change = Change("agent", cursors=(1,))
    for path, scope in (("people/../x/USER.md", "people/../x/"), ("evil.sh", "../")):
        home.commit(path, "x\n", CommitMessage(change, 8, scope).text)
    home.repository.close()
    home.of().split()
    assert set(repositories(home.state)) == {"", FRIEND, GROUP}
    assert not list(home.state.rglob("x.git"))


def test_scopes_do_not_wait_for_each_other_and_a_backup_waits_for_all(home: OldHome) -> None:
    with home.of(FRIEND).locked():
        assert home.write("", "- written meanwhile\n") == 8
        assert home.write(GROUP, "- as well\n") == 4
        with pytest.raises(BlockingIOError), locked(home.state / "versions.lock"):
            pass
    with locked(home.state / "versions.lock"):
        pass


def test_a_scope_has_no_repository_before_its_first_version(home: OldHome) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for number in range(50):
        store = home.of(f"people/telegram_1{number}/")
        assert store.log() == []
        assert store.record_hand_edits() == ()
    assert set(repositories(home.state)) == {"", FRIEND, GROUP}
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
