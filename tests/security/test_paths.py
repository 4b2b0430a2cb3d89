"""Access to workspace files: allowed paths, and all forbidden ones."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.errors import NanobotError, PathRefused, StorageError, ToolError, WriteConflict
from nanobot.io import lstate_of, replace_in
from nanobot.security.paths import Root, Roots

CANARY = b"canary: never to be read"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a workspace, next to files that no tool may see."""
    (tmp_path / "workspace" / "notes").mkdir(parents=True)
    (tmp_path / "workspace" / "notes" / "a.txt").write_bytes(b"hello")
    (tmp_path / "secrets.env").write_bytes(CANARY)
    return tmp_path


@pytest.fixture
def root(home: Path) -> Root:
    return Root(home / "workspace")


def find_refusal(root: Root, path: str) -> str:
    with pytest.raises(PathRefused) as caught:
        root.place(path).read_bytes(1000)
    return str(caught.value)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_read_and_what_is_missing_is_none(root: Root) -> None:
    assert root.place("notes/a.txt").read_bytes(100) == b"hello"
    assert root.place("./notes//../notes/a.txt").read_bytes(100) == b"hello"
    assert root.place("notes/b.txt").read_bytes(100) is None
    assert root.place("nowhere/b.txt").read_bytes(100) is None
    assert root.place("nowhere/b.txt").stat() is None


@pytest.mark.parametrize(
    "path",
    [
        "../secrets.env",
        "notes/../../secrets.env",
        "notes/../../../../../../etc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "~/secrets.env",
        "~",
        "..",
        "",
        "a\0b",
        "\ud800",
        "x" * 256,
        "x/" * 3000,
    ],
)
def test_paths_that_lead_out_or_name_nothing_are_refused(root: Root, path: str) -> None:
    with pytest.raises(PathRefused):
        root.place(path)


ODD = ["repo/git~1/config", "repo/.git./config", "repo/.g\u200cit/config", ".git::$DATA"]
"""Names that are `.git` for git on some file systems."""


@pytest.mark.parametrize(
    "path", [".git", ".git/config", "repo/.git/hooks/x", "repo/.GIT/config", *ODD]
)
def test_a_repository_inside_the_workspace_is_masked(root: Root, path: str) -> None:
    (root.path / "repo" / ".git").mkdir(parents=True)
    with pytest.raises(PathRefused, match=r"\.git"):
        root.place(path)
    assert root.place("repo").entries() == []
    assert [place.relative for place, _ in root.place("repo").walk_tree(100)] == []


def test_a_link_to_a_file_outside_is_never_followed(home: Path, root: Root) -> None:
    (root.path / "link").symlink_to(home / "secrets.env")
    assert "link" in find_refusal(root, "link")
    with pytest.raises(PathRefused):
        root.place("link").write_bytes(b"x")
    with pytest.raises(PathRefused):
        root.place("link").remove()
    assert (home / "secrets.env").read_bytes() == CANARY


def test_a_link_to_a_folder_is_never_entered_at_any_depth(home: Path, root: Root) -> None:
    (root.path / "notes" / "out").symlink_to(home)
    (root.path / "proc").symlink_to("/proc/self")
    find_refusal(root, "notes/out/secrets.env")
    find_refusal(root, "proc/environ")
    find_refusal(root, "proc/cwd/x")
    with pytest.raises(PathRefused):
        root.place("notes/out/new.txt").write_bytes(b"x")
    with pytest.raises(PathRefused):
        root.place("notes/out").entries()
    assert names_in(home) == ["secrets.env", "workspace"]
    assert "notes/out/secrets.env" not in [p.relative for p, _ in root.place(".").walk_tree(100)]


def test_a_link_to_inside_the_workspace_is_refused_too(root: Root) -> None:
    (root.path / "same").symlink_to("notes/a.txt")
    find_refusal(root, "same")


def test_a_hard_link_to_a_file_outside_is_neither_read_nor_replaced(home: Path, root: Root) -> None:
    os.link(home / "secrets.env", root.path / "twin")
    assert "hard links" in find_refusal(root, "twin")
    with pytest.raises(PathRefused):
        root.place("twin").write_bytes(b"x")
    assert (root.path / "twin").read_bytes() == CANARY


def test_a_file_that_is_replaced_while_it_is_read_is_read(root: Root) -> None:
    place = root.place("notes/a.txt")
    place.write_bytes(b"0")
    with ThreadPoolExecutor(1) as other:
        replacing = [other.submit(place.write_bytes, b"1") for _ in range(300)]
        while not replacing[-1].done():
            assert place.read_bytes(1) in (b"0", b"1")
        for replaced in replacing:
            replaced.result()


def test_pipes_sockets_and_devices_are_refused_without_blocking(root: Root) -> None:
    os.mkfifo(root.path / "pipe")
    find_refusal(root, "pipe")
    with pytest.raises(PathRefused):
        root.place("pipe").write_bytes(b"x")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(root.path, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        find_refusal(root, "socket")


def test_a_folder_is_no_file_and_a_file_no_folder(root: Root) -> None:
    assert "folder" in find_refusal(root, "notes")
    assert "folder" in find_refusal(root, ".")
    assert "not a folder" in find_refusal(root, "notes/a.txt/b")
    with pytest.raises(PathRefused):
        root.place("notes").write_bytes(b"x")
    with pytest.raises(PathRefused):
        root.place("notes").remove()
    with pytest.raises(PathRefused):
        root.place(".").remove()


def test_more_than_the_limit_is_not_read(root: Root) -> None:
    with pytest.raises(ToolError, match="too large"):
        root.place("notes/a.txt").read_bytes(4)
    assert root.place("notes/a.txt").read_bytes(5) == b"hello"


def test_absolute_paths_are_taken_inside_a_root_only(home: Path) -> None:
    (home / "spill").mkdir()
    (home / "spill" / "s.txt").write_bytes(b"spilled")
    roots = Roots((Root(home / "workspace"), Root(home / "spill", writable=False, name="spill")))
    assert roots.place(f"{home}/workspace/notes/a.txt").read_bytes(100) == b"hello"
    assert roots.place(f"{home}/spill/s.txt").read_bytes(100) == b"spilled"
    assert roots.place(f"{home}/workspace").relative == "."
    for path in (f"{home}/secrets.env", f"{home}/workspace/../secrets.env", f"{home}/workspace2/x"):
        with pytest.raises(PathRefused, match="outside"):
            roots.place(path)
    with pytest.raises(PathRefused, match="read-only"):
        roots.place(f"{home}/spill/s.txt").write_bytes(b"x")


def test_a_root_reached_through_a_link_of_its_owner_works(home: Path) -> None:
    (home / "alias").symlink_to("workspace")
    roots = Roots((Root(home / "alias"),))
    assert roots.place("notes/a.txt").read_bytes(100) == b"hello"
    assert roots.place(f"{home}/alias/notes/a.txt").read_bytes(100) == b"hello"
    assert roots.place(f"{home}/workspace/notes/a.txt").read_bytes(100) == b"hello"


def test_a_write_makes_folders_and_keeps_the_mode_of_what_it_replaces(root: Root) -> None:
    root.place("new/deep/x.sh").write_bytes(b"1")
    file = root.path / "new" / "deep" / "x.sh"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.chmod(0o755)
    root.place("new/deep/x.sh").write_bytes(b"2")
    assert file.read_bytes() == b"2"
    assert file.stat().st_mode & 0o777 == 0o755
    assert names_in(file.parent) == ["x.sh"]


def test_a_write_based_on_something_else_changes_nothing(root: Root) -> None:
    place = root.place("notes/a.txt")
    for expected in (None, b"", b"hell", b"hullo", b"hello!"):
        with pytest.raises(WriteConflict):
            place.write_bytes(b"new", expected=expected)
    with pytest.raises(WriteConflict):
        root.place("notes/b.txt").write_bytes(b"new", expected=b"old")
    with pytest.raises(WriteConflict):
        place.remove(expected=b"other")
    assert place.read_bytes(100) == b"hello"
    assert names_in(root.path / "notes") == ["a.txt"]
    place.write_bytes(b"new", expected=b"hello")
    root.place("notes/b.txt").write_bytes(b"", expected=None)
    assert names_in(root.path / "notes") == ["a.txt", "b.txt"]


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Limit files of this process to `room` bytes, so that writes fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file_and_no_remains(root: Root) -> None:
    with full_disk(1000), pytest.raises(StorageError):
        root.place("notes/a.txt").write_bytes(b"x" * 5000)
    assert names_in(root.path / "notes") == ["a.txt"]
    assert (root.path / "notes" / "a.txt").read_bytes() == b"hello"


def test_what_a_crash_left_behind_is_cleared_by_the_next_write(root: Root) -> None:
    folder = os.open(root.path / "notes", os.O_RDONLY)
    seen: list[str] = []
    try:
        replace_in(folder, "a.txt", b"1", 0o600, lambda: seen.extend(names_in(root.path / "notes")))
    finally:
        os.close(folder)
    [temporary] = set(seen) - {"a.txt"}
    (root.path / "notes" / temporary).write_bytes(b"torn")
    root.place("notes/a.txt").write_bytes(b"second")
    assert names_in(root.path / "notes") == ["a.txt"]


def test_a_missing_root_is_a_storage_error_not_a_crash(home: Path) -> None:
    with pytest.raises(StorageError):
        Root(home / "gone").place("x").write_bytes(b"x")
    with pytest.raises(StorageError):
        Root(home / "gone").place(".").entries()


def test_names_that_are_not_utf8_are_listed_read_and_written(root: Root) -> None:
    (Path(os.fsdecode(os.fsencode(root.path) + b"/caf\xe9.txt"))).write_bytes(b"coffee")
    [entry] = [entry for entry in root.place(".").entries() if entry.kind == "file"]
    place = root.place(entry.name)
    assert place.label == "caf\\udce9.txt"
    assert place.read_bytes(100) == b"coffee"
    place.write_bytes(b"tea", expected=b"coffee")
    assert place.read_bytes(100) == b"tea"


def test_names_with_control_characters_are_shown_on_one_line(root: Root) -> None:
    assert root.place("a\nb\x1b[31m").label == "a\\nb\\x1b[31m"


def test_a_folder_lists_folders_first_and_a_walk_is_bounded(root: Root) -> None:
    root.place("b.txt").write_bytes(b"12")
    root.place("a.txt").write_bytes(b"1")
    (root.path / "zlink").symlink_to("a.txt")
    entries = root.place(".").entries()
    assert [(e.name, e.kind, e.size) for e in entries if e.kind != "link"][1:] == [
        ("a.txt", "file", 1),
        ("b.txt", "file", 2),
    ]
    assert [e.name for e in entries] == ["notes", "a.txt", "b.txt", "zlink"]
    assert [p.relative for p, _ in root.place(".").walk_tree(100)][-1] == "notes/a.txt"
    assert len(list(root.place(".").walk_tree(2))) == 2


def test_a_fingerprint_changes_with_the_file(root: Root) -> None:
    assert lstate_of(f"{root.path}/x") is None
    before = lstate_of(f"{root.path}/notes/a.txt")
    assert before == lstate_of(f"{root.path}/notes/a.txt")
    root.place("notes/a.txt").write_bytes(b"other words")
    assert lstate_of(f"{root.path}/notes/a.txt") != before


PIECES = st.sampled_from(
    ["..", ".", "", "/", "notes", "a.txt", "link", "out", "twin", "secrets.env", "workspace",
     "~", ".git", "\0", "\udce9", "\ud800", "proc", "self", "x" * 300, "\n", "HOME"]
)  # fmt: skip
PATHS = st.one_of(st.lists(PIECES, max_size=8).map("/".join), st.text(max_size=40))


@given(path=PATHS)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_path_whatever_opens_anything_outside(home: Path, path: str) -> None:
    workspace = home / "workspace"
    for name, target in (("link", home / "secrets.env"), ("out", home), ("proc", Path("/proc"))):
        if not (workspace / name).is_symlink():
            (workspace / name).symlink_to(target)
    if not (workspace / "twin").exists():
        os.link(home / "secrets.env", workspace / "twin")
    path = path.replace("HOME", str(home))
    roots = Roots((Root(workspace),))
    try:
        place = roots.place(path)
        assert b"canary" not in (place.read_bytes(10_000) or b"")
        place.write_bytes(b"written")
    except NanobotError:
        pass
    assert (home / "secrets.env").read_bytes() == CANARY
    assert names_in(home) == ["secrets.env", "workspace"]
