"""A bare git repository of small text files, for one writer: the thin layer over dulwich.

Objects and refs are written here (temporary file, fsync, rename, fsync of the folder) and only then
pointed to, so that what a power cut leaves is a whole repository; dulwich knows the formats, reads,
packs and speaks to other repositories. There is no index and no work tree: a commit names the files
it changes, all others stay as in its parent. Nothing is read from a person's git configuration.

The repository and its folder are made by the first commit. dulwich is imported when one is opened.

Files of a git repository as they come onto the disk: whole, or not at all.

A temporary file, fsync, rename, and for what others point to fsync of the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.disk import sync_folder
from nanobot.errors import StorageError
from nanobot.security.paths import replace

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore
    from dulwich.objects import ObjectID, ShaFile

_CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfilemode = false\n"
    b"\tlogAllRefUpdates = false\n\tfsyncObjectFiles = true\n"
)


def build(path: Path, branch: str) -> None:
    """Make an empty repository in the folder `path`, which is empty or is made."""
    path.mkdir(mode=0o700, exist_ok=True)
    for folder in ("objects", "objects/pack", "objects/info", "refs", "refs/heads"):
        (path / folder).mkdir(mode=0o700)
    write_file(path / "config", _CONFIG)
    write_file(path / "HEAD", f"ref: refs/heads/{branch}\n".encode())
    for folder in ("objects", "refs", ""):
        sync_folder(path / folder)


def blob_id(content: bytes) -> str:
    """The id that git gives this content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file, durably."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        replace(folder, path.name, content, mode, lambda: None)
    finally:
        os.close(folder)


def write_object(path: Path, content: bytes) -> None:
    """Write a file that is never changed. Its name is durable once a later one in this file system
    is: names are journalled in order, and git itself relies on that."""
    temporary = path.with_name(f".{path.name}.nanobot-tmp")
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as file:
        temporary.chmod(0o400)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


@contextmanager
def process_lock(path: Path) -> Iterator[None]:
    """Hold the lock in the file `path`; the system lets go of it when the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise StorageError.of(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


AUTHOR = b"Nanobot <nanobot@local>"
_FILE, _FOLDER = 0o100644, 0o040000


class Damaged(StorageError):
    """The repository is not whole. It holds what is for looking back, so a new one may begin."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit; ids are hex, `parent` is empty for the first one, `when` is aware."""

    id: str
    parent: str
    tree: str
    when: datetime
    message: str


class Repository:
    """The repository in the folder `path`. Callers see to it that there is one writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._branch = ""
        self._tips: dict[str, str] = {}

    @property
    def exists(self) -> bool:
        """Whether anything was committed here."""
        return (self.path / "HEAD").exists()

    @property
    def branch(self) -> str:
        """The name of this device's own branch."""
        if not self._branch:
            with self._translated():
                head = self.read_file("HEAD").decode("utf-8", "replace")
            self._branch = head.removeprefix("ref: refs/heads/").strip()
            if not re.fullmatch(r"[\w.-]+", self._branch, re.ASCII):
                self._branch = ""
                raise self._damaged("HEAD names no branch")
        return self._branch

    def check(self) -> None:
        """Raise `Damaged` where something stands here that is no repository."""
        if os.path.lexists(self.path) and not self.exists:
            raise self._damaged("it has no HEAD")

    def create(self, branch: str = "") -> None:
        """Make it where there is none, in one step; an empty `branch` gets a name by chance."""
        if self.exists:
            return
        with self._translated():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            building = self.path.with_name(f"{self.path.name}.new")
            shutil.rmtree(building, ignore_errors=True)
            build(building, branch or f"device-{secrets.token_hex(4)}")
            if os.path.lexists(self.path):
                raise self._damaged("it has no HEAD")
            building.rename(self.path)
            self._tips = {}
            sync_folder(self.path.parent)

    def tip(self, branch: str = "") -> str:
        """The newest commit of a branch (this device's own one), empty for none."""
        if branch not in self._tips:
            self._tips[branch] = self._read_tip(branch) if self.exists else ""
        return self._tips[branch]

    def set_tip(self, commit: str, branch: str = "") -> None:
        """Let a branch (this device's own one) end at `commit`."""
        self.write_file(f"refs/heads/{branch or self.branch}", f"{commit}\n".encode())
        self._tips = {}

    def set_own_branch(self, branch: str) -> None:
        """Let this device's own branch be another one."""
        self.write_file("HEAD", f"ref: refs/heads/{branch}\n".encode())
        self._branch, self._tips = branch, {}

    def commit(self, identity: str) -> Commit:
        """The commit of that id. Raises `StorageError` where it is none or damaged."""
        from dulwich.objects import Commit as GitCommit

        found = self._get(identity)
        if not isinstance(found, GitCommit):
            raise self._damaged(f"{identity} is no commit")
        zone = timezone(timedelta(seconds=found.commit_timezone))
        return Commit(
            identity,
            found.parents[0].decode() if found.parents else "",
            found.tree.decode(),
            datetime.fromtimestamp(found.commit_time, zone),
            found.message.decode("utf-8", "replace"),
        )

    def chain(self, tip: str) -> Iterator[Commit]:
        """`tip` and what it came from, newest first."""
        while tip:
            found = self.commit(tip)
            yield found
            tip = found.parent

    def files(self, tree: str) -> dict[str, str]:
        """The paths in a tree, each with the id of its content."""
        return dict(self._walk(tree, "")) if tree else {}

    def changed(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        """The paths in which two trees differ, each with the id of its later content, empty where
        the file is gone; an empty id of a tree is an empty tree."""
        old = self._entries(before) if before else {}
        new = self._entries(after) if after else {}
        nothing = (0, "")
        for name in sorted(old.keys() | new.keys()):
            one, other = old.get(name, nothing), new.get(name, nothing)
            if one == other:
                continue
            folders = [identity if mode == _FOLDER else "" for mode, identity in (one, other)]
            if any(folders):
                inside = self.changed(folders[0], folders[1])
                yield from ((f"{name}/{path}", blob) for path, blob in inside)
            if any(mode == _FILE for mode, _ in (one, other)):
                yield name, other[1] if other[0] == _FILE else ""

    def content(self, blob: str) -> bytes:
        """The bytes of a file's content."""
        from dulwich.objects import Blob

        found = self._get(blob)
        if not isinstance(found, Blob):
            raise self._damaged(f"{blob} is no file")
        return found.data

    def read(self, tree: str, path: str) -> bytes | None:
        """The content of a file in a tree, None where there is none."""
        for name in path.split("/"):
            tree = self._entries(tree).get(name, (0, ""))[1] if tree else ""
        return self.content(tree) if tree else None

    def store(
        self, parent: str, files: Mapping[str, bytes | None], message: str, when: datetime
    ) -> str:
        """Write a commit that changes these files (None: they go); no branch moves yet."""
        objects: list[ShaFile] = []
        base = self.commit(parent).tree if parent else ""
        commit = make_commit(parent, self.tree_with(base, files, objects), message, when)
        for found in (*objects, commit):
            self._write_object(found)
        return commit.id.decode()

    def tree_with(
        self, tree: str, files: Mapping[str, bytes | None], objects: list[ShaFile]
    ) -> str:
        """The id of `tree` with these files changed; what is new is added to `objects`."""
        from dulwich.objects import Blob, ObjectID, Tree

        entries = self._entries(tree) if tree else {}
        inner: dict[str, dict[str, bytes | None]] = {}
        for path, content in files.items():
            name, _, rest = path.partition("/")
            if rest:
                inner.setdefault(name, {})[rest] = content
            elif content is None:
                entries.pop(name, None)
            else:
                blob = Blob.from_string(content)
                objects.append(blob)
                entries[name] = (_FILE, blob.id.decode())
        for name, changed in inner.items():
            subtree = self.tree_with(entries.get(name, (0, ""))[1], changed, objects)
            entries[name] = (_FOLDER, subtree)
            if not self._new_entries(subtree, objects):
                del entries[name]
        made = Tree()
        for name, (mode, identity) in entries.items():
            made.add(name.encode("utf-8", "surrogateescape"), mode, ObjectID(identity.encode()))
        objects.append(made)
        return made.id.decode()

    def pack(self) -> None:
        """Put the loose objects into one file; in memory is one at a time."""
        from dulwich.pack import full_unpacked_object

        with self._translated():
            loose = [
                path.parent.name + path.name
                for folder in (self.path / "objects").iterdir()
                if len(folder.name) == 2
                for path in folder.iterdir()
                if len(path.name) == 38
            ]
            objects = (full_unpacked_object(self._get(identity)) for identity in loose)
            self.objects.add_pack_data(len(loose), objects)
            sync_folder(self.path / "objects/pack")
            for identity in loose:
                self._loose(identity).unlink()

    def set_aside(self, stamp: str) -> Path:
        """Move the repository to `<name>.damaged-<stamp>`; the next commit makes a new one."""
        self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        with self._translated():
            self.path.rename(aside)
            sync_folder(self.path.parent)
        return aside

    def heal(self) -> None:
        """Remove what a process that died left half done."""
        leftovers = ("*.lock", "tmp_pack_*", "*.nanobot-tmp")
        with self._translated():
            for pattern in leftovers:
                for path in self.path.rglob(pattern):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of open files and of what was read; what is asked next reads again."""
        if "objects" in self.__dict__:
            self.objects.close()
            del self.objects
        self._branch, self._tips = "", {}

    def read_file(self, name: str) -> bytes:
        """A file of the repository itself; raises `FileNotFoundError`."""
        return (self.path / name).read_bytes()

    def write_file(self, name: str, content: bytes) -> None:
        """Replace a file of the repository itself, durably."""
        path = self.path / name
        with self._translated():
            write_file(path, content)

    @cached_property
    def objects(self) -> DiskObjectStore:
        """What is stored, as dulwich sees it."""
        from dulwich.object_store import DiskObjectStore

        return DiskObjectStore(self.path / "objects", fsync_object_files=True)

    def _read_tip(self, branch: str) -> str:
        with self._translated(), suppress(FileNotFoundError):
            tip = self.read_file(f"refs/heads/{branch or self.branch}")
            return tip.decode("utf-8", "replace").strip()
        return ""

    def _write_object(self, found: ShaFile) -> None:
        identity = found.id.decode()
        path = self._loose(identity)
        if path.exists():
            return
        with self._translated():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_object(path, found.as_legacy_object())

    def _new_entries(self, tree: str, objects: list[ShaFile]) -> bool:
        made = next((found for found in reversed(objects) if found.id.decode() == tree), None)
        return bool(made.as_raw_string()) if made else True

    def _entries(self, tree: str) -> dict[str, tuple[int, str]]:
        from dulwich.objects import Tree

        found = self._get(tree)
        if not isinstance(found, Tree):
            raise self._damaged(f"{tree} is no folder")
        return {
            entry.path.decode("utf-8", "surrogateescape"): (entry.mode, entry.sha.decode())
            for entry in found.items()
        }

    def _walk(self, tree: str, prefix: str) -> Iterator[tuple[str, str]]:
        for name, (mode, identity) in self._entries(tree).items():
            if mode == _FOLDER:
                yield from self._walk(identity, f"{prefix}{name}/")
            else:
                yield prefix + name, identity

    def _loose(self, identity: str) -> Path:
        return self.path / "objects" / identity[:2] / identity[2:]

    def _get(self, identity: str) -> ShaFile:
        from dulwich.errors import ChecksumMismatch, FileFormatException, ObjectMissing
        from dulwich.objects import ShaFile

        try:
            with suppress(FileNotFoundError):
                return ShaFile.from_path(str(self._loose(identity)), _object_id(identity))
            return self.objects[_object_id(identity)]
        except (KeyError, ValueError, ChecksumMismatch, FileFormatException) as error:
            raise self._damaged(f"{identity} is missing or broken") from error
        except (ObjectMissing, AssertionError, zlib.error, EOFError) as error:
            raise self._damaged(f"{identity} cannot be read") from error
        except OSError as error:
            raise StorageError.of(self.path, error) from error

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(
            self.path,
            f"it is damaged ({reason})",
            hint="Restart nanobot: that folder is set aside then, and new versions begin. Memory "
            "itself is untouched.",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError.of(self.path, error) from error


def make_commit(parent: str, tree: str, message: str, when: datetime) -> ShaFile:
    """The commit object; it is not written anywhere yet."""
    from dulwich.objects import Commit as GitCommit

    offset = when.utcoffset() or timedelta()
    made = GitCommit()
    made.tree = _object_id(tree)
    made.parents = [_object_id(parent)] if parent else []
    made.author = made.committer = AUTHOR
    made.author_time = made.commit_time = int(when.timestamp())
    made.author_timezone = made.commit_timezone = int(offset.total_seconds()) // 60 * 60
    made.encoding = b"UTF-8"
    made.message = message.encode("utf-8", "backslashreplace")
    return made


def _object_id(identity: str) -> ObjectID:
    from dulwich.objects import ObjectID

    return ObjectID(identity.encode())
