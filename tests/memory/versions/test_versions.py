"""Versions of the long-term files, in a real repository next to a real workspace."""

from __future__ import annotations

import asyncio
import errno
import gc
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from nanobot.errors import NanobotError, StorageError, WriteConflict
from nanobot.memory.gitstore import GitStore
from nanobot.memory.line_changes import Operation
from nanobot.memory.version import Change, CommitMessage
from nanobot.security.paths import Root
from nanobot.testing.clock import FakeClock

FILE = "memory/MEMORY.md"
THEIRS = "people/telegram_7/memory/MEMORY.md"


class Home:
    """A workspace and its versions. `new` returns the store of a new process."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.root = Root(folder / "workspace")
        self.root.create()
        self.state = folder / "state"
        self.repository = self.state / "memory.git"
        self.store = self.new()
        self.theirs = self.new("people/telegram_7/")

    def new(self, prefix: str = "") -> GitStore:
        return GitStore(self.state, self.root, self.clock, prefix)

    def edit(self, text: str, path: str = FILE) -> None:
        self.root.place(path).write_bytes(text.encode())

    def text(self, path: str = FILE) -> str:
        return (self.root.place(path).read_bytes(100_000) or b"").decode()

    def write(self, text: str, change: Change | None = None, path: str = FILE) -> int:
        place = self.root.place(path)
        before = place.read_bytes(100_000)
        change = change or Change("agent")
        put = partial(place.write_bytes, text.encode(), expected=before)
        store = self.theirs if path.startswith(self.theirs.prefix) else self.store
        return store.write(path, before, text.encode(), change, put)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def kill_during(home: Home, text: str, put: Callable[[], None], path: str = FILE) -> None:
    """Write in a process that ends while the file is being written, without cleaning up."""

    def write() -> None:
        before = home.root.place(path).read_bytes(100_000)

        def put_and_die() -> None:
            put()
            os._exit(9)

        store = home.new("" if path == FILE else home.theirs.prefix)
        store.write(path, before, text.encode(), Change("dream", "learned"), put_and_die)

    child = multiprocessing.get_context("fork").Process(target=write)
    child.start()
    child.join()
    assert child.exitcode == 9


def test_a_write_is_a_version_that_says_who_why_and_on_what_evidence(home: Home) -> None:
    step = Operation(new="- likes tea", section="# Memory", cursor=42)
    change = Change("dream", "learned a thing", "telegram:1", "t1", (41, 42), (step,))
    number = home.write("# Memory\n\n- likes tea\n", change)
    version = home.new().version(number)
    assert (version.author, version.summary, version.paths) == ("dream", change.summary, (FILE,))
    assert version.change == change
    assert version.when == home.clock.now()
    assert "+- likes tea" in home.store.diff(number)


def test_each_scope_has_numbers_of_its_own(home: Home) -> None:
    written = [home.write(f"- {n}\n", path=path) for n, path in enumerate([FILE, THEIRS] * 2)]
    assert [*written, home.write("- c\n")] == [1, 1, 2, 2, 3]
    assert [version.number for version in home.new().log()] == [3, 2, 1]
    assert [version.number for version in home.theirs.log()] == [2, 1]
    assert [version.number for version in home.store.log(limit=1)] == [3]
    for number, store in ((0, home.store), (4, home.store), (0, home.theirs), (3, home.theirs)):
        with pytest.raises(NanobotError, match="there is no version"):
            store.version(number)


def test_a_change_is_shown_and_undone_in_its_own_scope_only(home: Home) -> None:
    number = home.write("- theirs\n", path=THEIRS)
    with pytest.raises(NanobotError, match="there is no version"):
        home.store.diff(number)
    assert "+- theirs" in home.theirs.diff(number)


def test_a_hand_edit_is_the_persons_and_comes_before_the_agents_write(home: Home) -> None:
    home.write("- a\n")
    home.edit("- a\n- by hand\n")
    home.edit("# Me\n", "USER.md")
    home.write("- a\n- by hand\n- c\n")
    assert [version.author for version in home.store.log()] == ["agent", "you", "agent"]
    assert "by hand" not in home.store.diff(home.store.log()[0].number).replace(" - by hand", "")


def test_hand_edits_are_recorded_once_and_deletions_too(home: Home) -> None:
    assert home.store.record_hand_edits() == 0
    assert not home.repository.exists()
    home.edit("- a\n")
    assert home.store.record_hand_edits() == 1
    assert home.store.record_hand_edits() == 0
    home.root.place(FILE).remove()
    assert home.store.record_hand_edits() == 2


def test_a_refused_write_leaves_no_version(home: Home) -> None:
    home.write("- a\n")

    def refuse() -> None:
        raise WriteConflict(FILE)

    with pytest.raises(WriteConflict):
        home.store.write(FILE, b"- a\n", b"- b\n", Change("agent"), refuse)
    assert len(home.store.log()) == 1
    assert home.write("- c\n") == 2


def test_a_change_that_fails_after_the_file_was_written_has_its_version(home: Home) -> None:
    def write_and_fail() -> None:
        home.edit("- b\n")
        raise StorageError(FILE, "the folder was not synced")

    with pytest.raises(StorageError):
        home.store.write(FILE, None, b"- b\n", Change("agent"), write_and_fail)
    assert [version.author for version in home.store.log()] == ["agent"]


def test_killed_after_the_file_was_written_the_change_is_its_authors(home: Home) -> None:
    home.write("- a\n")
    kill_during(home, "- a\n- b\n", lambda: home.edit("- a\n- b\n"))
    store = home.new()
    assert [version.author for version in store.log()] == ["dream", "agent"]


def test_killed_before_the_file_was_written_there_is_no_version(home: Home) -> None:
    home.write("- a\n")
    kill_during(home, "- a\n- b\n", lambda: None)
    store = home.new()
    assert len(store.log()) == 1
    home.edit("- a\n- mine\n")
    assert store.record_hand_edits() == 2


def test_killed_and_then_edited_by_hand_the_change_is_the_persons(home: Home) -> None:
    kill_during(home, "- b\n", lambda: home.edit("- b\n"))
    home.edit("- b\n- mine\n")
    store = home.new()
    store.record_hand_edits()
    assert [version.author for version in store.log()] == ["start"]


def test_locks_and_temporary_files_of_the_dead_do_not_stop_anybody(home: Home) -> None:
    home.write("- a\n")
    branch = next((home.repository / "refs/heads").iterdir())
    branch.with_name(f"{branch.name}.lock").touch()
    (home.repository / "objects/pack/tmp_pack_1").write_bytes(b"half")
    home.store = home.new()
    assert home.write("- b\n") == 2
    assert not list(home.repository.rglob("*.lock"))
    assert not list(home.repository.rglob("tmp_pack_*"))


def test_lineage_tells_what_each_version_made_of_a_file_newest_first(home: Home) -> None:
    home.write("- a\n")
    home.write("x", path="USER.md")
    home.write("- b\n")
    found = [(shot.version.number, shot.before, shot.after) for shot in home.store.lineage(FILE)]
    assert found == [(3, "- a\n", "- b\n"), (1, "", "- a\n")]


def test_applied_cursors_are_those_of_the_scope_even_where_no_line_changed(home: Home) -> None:
    home.write("- a\n", Change("consolidate", cursors=(1, 2)))
    home.write("- a\n", Change("consolidate", cursors=(3,)))
    home.write("- a\n", Change("consolidate", cursors=(9,)), THEIRS)
    home.write("- a\n", Change("consolidate", cursors=(10,)), THEIRS)
    assert home.new().find_applied_cursors() == {1, 2, 3}
    assert home.theirs.find_applied_cursors() == {9, 10}
    assert home.write("- a\n") == 0


def test_a_change_is_taken_back_and_what_came_later_stays(home: Home) -> None:
    home.write("# M\n\n- a\n")
    number = home.write("# M\n\n- a\n- wrong\n")
    home.edit("# M\n\n- a\n- wrong\n- by hand\n")
    revert = home.store.plan_undo(number)
    assert revert.texts == {FILE: "# M\n\n- a\n- by hand\n"}
    assert revert.expected == {FILE: "# M\n\n- a\n- wrong\n- by hand\n"}
    assert revert.conflicts == ()
    restored = home.write(revert.texts[FILE], Change("restore", f"took back version {number}"))
    home.edit(home.text() + "- and more\n")
    again = home.store.plan_undo(restored)
    assert sorted(again.texts[FILE].split()) == sorted(
        ["#", "M", "-", "a", "-", "wrong", "-", "by", "hand", "-", "and", "more"]
    )


def test_what_cannot_be_taken_back_is_named_and_the_file_left_alone(home: Home) -> None:
    home.write("- a\n")
    number = home.write("- a\n- likes green tea\n")
    home.edit("- a\n- likes black tea\n")
    revert = home.store.plan_undo(number)
    assert revert.texts == {}
    assert "likes black tea" in revert.conflicts[0]


def test_the_first_version_holds_the_files_as_they_stood_and_is_nobodys(home: Home) -> None:
    home.edit("# Me\n", "USER.md")
    home.edit("- a\n")
    home.write("- a\n- b\n")
    home.edit("- a\n- b\n- c\n")
    home.store.record_hand_edits()
    told = [(one.author, one.summary, one.paths) for one in reversed(home.store.log())]
    assert told[0] == ("start", "initial files", ("USER.md", FILE))
    assert [author for author, _, _ in told] == ["start", "agent", "you"]
    assert told[2] == ("you", "added: c", (FILE,))


def test_erasing_leaves_numbers_dates_and_authors_and_none_of_the_words(home: Home) -> None:
    home.write("- a\n")
    secret = Operation(new="- pin is 1234", section="# M")
    home.write("- a\n- pin is 1234\n", Change("dream", "the pin is 1234", operations=(secret,)))
    home.edit("- a\n")
    home.store.record_hand_edits()
    asyncio.run(home.clock.advance(60.0))
    home.write("- a\n- c\n")
    before = home.store.log()
    changed = home.store.rewrite(
        lambda text: text.replace("- pin is 1234\n", "").replace("1234", "…")
    )
    assert changed == 2  # the second has the fact, and the third removes it
    for store in (home.store, home.new()):
        after = store.log()
        kept = [(version.number, version.when, version.author) for version in after]
        assert kept == [(version.number, version.when, version.author) for version in before]
        assert [version.paths for version in after] == [(FILE,), (), (), (FILE,)]
        assert after[2].summary == "the pin is …"
    assert home.write("- d\n") == 5
    assert not [
        path for path in home.repository.parent.iterdir() if path.suffix in {".new", ".old"}
    ]
    if shutil.which("git"):
        assert "1234" not in git(home, "log", "-p", "--all")
        assert git(home, "fsck", "--unreachable", "--no-reflogs").strip() == ""


def test_who_does_not_hold_a_scope_reads_it_and_finishes_nothing_in_it(home: Home) -> None:
    """Another worker of a team may be in the middle of it."""
    home.write("- a\n", path=THEIRS)
    kill_during(home, "- b\n", partial(home.edit, "- b\n", THEIRS), THEIRS)
    prefix = home.theirs.prefix
    other = GitStore(home.state, home.root, home.clock, prefix, is_held=lambda: False)
    assert [version.summary for version in other.log()] == [""]
    assert [version.summary for version in home.new(prefix).log()] == ["learned", ""]


def test_an_erasure_that_died_in_the_middle_can_be_made_again(home: Home) -> None:
    home.write("- pin is 1234\n")
    home.write("- a\n")

    def erase(die_at: str) -> None:
        def redact(text: str) -> str:
            if text == die_at:
                os._exit(9)
            return text.replace("1234", "…")

        home.new().rewrite(redact)

    child = multiprocessing.get_context("fork").Process(target=erase, args=("- a\n",))
    child.start()
    child.join()
    assert child.exitcode == 9
    home.store = home.new()
    assert "1234" in home.store.diff(1)
    erase("nothing")
    assert "1234" not in home.store.diff(1)
    assert home.write("- b\n") == 3
    if shutil.which("git"):
        assert git(home, "fsck", "--unreachable", "--no-reflogs").strip() == ""


def test_a_damaged_repository_says_what_to_do(home: Home) -> None:
    home.write("- a\n")
    for path in (home.repository / "objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"rot")
    with pytest.raises(StorageError) as caught:
        home.store.log()
    assert "Restart nanobot" in caught.value.hint
    home.store = home.new()
    assert home.write("- a\n- b\n") == 2
    assert [path.name for path in home.repository.parent.glob("memory.git.damaged-*")]
    assert [version.author for version in home.store.log()] == ["agent", "start"]


def test_damage_in_one_scope_is_set_aside_by_the_next_process_and_concerns_no_other(
    home: Home,
) -> None:
    for path in (FILE, THEIRS):
        home.write("- a\n", path=path)
    theirs = home.theirs.repository.path
    for file in (theirs / "objects").glob("??/*"):
        file.chmod(0o600)
        file.write_bytes(b"rot")
    home.theirs = home.new(home.theirs.prefix)
    assert home.write("- a\n- b\n", path=THEIRS) == 2
    assert [version.author for version in home.theirs.log()] == ["agent", "start"]
    assert len(list(theirs.parent.glob("telegram_7.git.damaged-*"))) == 1
    assert home.write("- a\n- b\n") == 2
    assert [version.author for version in home.store.log()] == ["agent", "agent"]


@pytest.mark.parametrize("kind", ["a file", "an empty folder", "a link to nowhere"])
def test_what_is_no_repository_is_set_aside(home: Home, kind: str) -> None:
    home.repository.parent.mkdir()
    match kind:
        case "a file":
            home.repository.write_text("no repository")
        case "an empty folder":
            home.repository.mkdir()
        case _:
            home.repository.symlink_to("nowhere")
    assert home.write("- a\n") == 1
    assert [path.name for path in home.repository.parent.glob("memory.git.damaged-*")]


def test_a_repository_of_the_persons_own_is_left_alone(home: Home) -> None:
    theirs = home.root.path / ".git"
    theirs.mkdir()
    (theirs / "HEAD").write_text("ref: refs/heads/main\n")
    home.write("- a\n")
    assert [path.name for path in theirs.iterdir()] == ["HEAD"]
    assert home.repository.stat().st_mode & 0o777 == 0o700


def test_many_versions_are_packed_and_read_as_before(home: Home) -> None:
    for number in range(1, 26):
        home.write(f"- {number}\n", Change("consolidate", cursors=(number,)))
        if number % 10 == 0:
            home.store.repository.pack()
    assert len(list((home.repository / "objects/pack").glob("*.pack"))) == 2
    store = home.new()
    assert [version.number for version in store.log(limit=2)] == [25, 24]
    assert store.diff(2).splitlines()[3:5] == ["-- 1", "+- 2"]
    assert store.find_applied_cursors() == set(range(1, 26))


def test_a_message_has_the_whole_change_and_of_a_broken_one_the_subject_is_left() -> None:
    step = Operation("- old \n line", "- new \u2028", "## S", 42)
    change = Change("dream", "learned", "s", "t", (7,), (step,), "run", {"device-00000001": 3})
    message = CommitMessage(change, 12)
    assert CommitMessage.parse(message.text) == message
    broken = "[Dream] learned\n\nVersion: 12\nChange: {"
    assert CommitMessage.parse(broken) == CommitMessage(Change("dream", "learned"), 12)
    assert CommitMessage.parse("by hand").change == Change("you", "by hand")


def test_importing_versions_does_not_load_the_git_library() -> None:
    code = "import sys, nanobot.memory.gitstore; sys.exit('dulwich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def git(home: Home, *arguments: str) -> str:
    command = ["git", f"--git-dir={home.repository}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_git_reads_the_repository(home: Home) -> None:
    home.edit("# Me\n", "USER.md")
    home.write("- naïve 茶\n", Change("consolidate", "learned", cursors=(7,)))
    assert git(home, "log", "--format=%an <%ae> %s") == (
        "Nanobot <nanobot@local> [Consolidate] learned\n"
        "Nanobot <nanobot@local> [Start] initial files\n"
    )
    assert git(home, "show", f"HEAD:{FILE}") == "- naïve 茶\n"
    assert git(home, "log", "-1", "--format=%(trailers:key=Version,valueonly)").strip() == "2"
    assert git(home, "fsck", "--strict").strip() == ""


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_a_commit_made_with_git_counts_in_the_numbers(home: Home) -> None:
    home.write("- a\n")
    who = ("-c", "user.name=Me", "-c", "user.email=me@localhost")
    made = git(home, *who, "commit-tree", "-p", "HEAD", "-m", "mine\n\nan apple", "HEAD^{tree}")
    git(home, "update-ref", "HEAD", made.strip())
    assert home.store.tip_number() == 2
    assert home.write("- b\n") == 3
    assert [version.number for version in home.new().versions()] == [1, 2, 3]
    assert home.store.rewrite(lambda text: text.replace("apple", "…")) == 1
    assert "apple" not in git(home, "log", "--all")
    assert [version.number for version in home.new().versions()] == [1, 2, 3]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_erasing_reaches_lines_that_were_added_to_the_message_of_a_version(home: Home) -> None:
    home.write("- a\n")
    added = 'Version: 2\nOperation: {"new": "- an apple"}\n\nabout an apple'
    who = ("-c", "user.name=Me", "-c", "user.email=me@localhost")
    message = f"[Dream] learned something\n\n{added}"
    made = git(home, *who, "commit-tree", "-p", "HEAD", "-m", message, "HEAD^{tree}")
    git(home, "update-ref", "HEAD", made.strip())
    assert home.store.rewrite(lambda text: text.replace("apple", "…")) == 1
    assert "apple" not in git(home, "log", "--all")
    found = home.new().version(2)
    assert (found.author, found.summary) == ("dream", "learned something")


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_versions_go_on_after_git_packed_them(home: Home) -> None:
    home.write("- apple\n")
    git(home, "gc", "-q")
    home.store = home.new()
    assert [version.number for version in home.store.log()] == [1]
    assert home.write("- b\n") == 2
    assert [version.number for version in home.new().log()] == [2, 1]
    home.store.rewrite(lambda text: text.replace("apple", "…"))
    assert "apple" not in git(home, "log", "-p", "--all")


def test_lineage_reads_through_any_number_of_versions(home: Home) -> None:
    for number in range(6):
        home.write(f"- {number}\n")
        home.write(f"- {number}\n", path="USER.md")
    (home.root.path / FILE).unlink()
    home.store.record_hand_edits()
    shots = list(home.store.lineage(FILE))
    assert [shot.version.number for shot in shots] == [13, *range(11, 0, -2)]
    assert (shots[0].before, shots[0].after) == ("- 5\n", "")
    assert all(one.before == other.after for one, other in pairwise(shots))
    assert shots[-1].before == ""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_a_disk_that_refused_the_same_change_can_be_made_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("- a\n")

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError):
        home.write("- b\n", Change("agent", "once"))
    assert not list(home.repository.rglob("objects/*/*.lock"))
    gc.collect()  # dulwich leaves the file that it could not write to the collector
    monkeypatch.undo()
    assert home.write("- b\n", Change("agent", "again")) == 2
