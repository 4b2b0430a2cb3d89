"""A bare git repository of small text files, for one writer: a thin layer over dulwich.

Objects and refs are written here (temporary file, fsync, rename) and an object before what points
to it, so what a power cut leaves is a whole repository; dulwich knows the formats, reads, packs and
speaks to other repositories. There is no index and no work tree: a commit names the files it
changes, all others stay as in its parent. Nothing is read from a person's git configuration.

The first commit makes the repository and its folder. dulwich is imported when one is opened.
"""

from __future__ import annotations

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

from nanobot.errors import StorageError
from nanobot.io import replace_file, sync_folder

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore
    from dulwich.objects import ObjectID, ShaFile

_CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfilemode = false\n"
    b"\tlogAllRefUpdates = false\n\tfsyncObjectFiles = true\n"
)
_AUTHOR = b"Nanobot <nanobot@local>"
_FILE = 0o100644
_LEFTOVERS = ("*.lock", "tmp_pack_*", "*.nanobot-tmp", "*.new")


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


def build(path: Path, branch: str) -> None:
    """Make an empty repository in the folder `path`, which is empty or is made."""
    path.mkdir(mode=0o700, exist_ok=True)
    for folder in ("objects", "objects/pack", "objects/info", "refs", "refs/heads"):
        (path / folder).mkdir(mode=0o700)
    replace_file(path / "config", _CONFIG)
    replace_file(path / "HEAD", f"ref: refs/heads/{branch}\n".encode())
    for folder in ("objects", "refs", ""):
        sync_folder(path / folder)


def blob_id(content: bytes) -> str:
    """The id that git gives this content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Repository:
    """The repository in the folder `path`. Callers see to it that there is one writer.

    What is written while it is not `durable` has to be packed before it is relied on. Raises
    `StorageError`, or `Damaged` for what is missing or broken.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable

    @property
    def exists(self) -> bool:
        """Whether anything was committed here."""
        return (self.path / "HEAD").exists()

    @property
    def branch(self) -> str:
        """The name of this device's own branch."""
        with self._translated():
            head = self.read_file("HEAD").decode("utf-8", "replace")
        branch = head.removeprefix("ref: refs/heads/").strip()
        if not re.fullmatch(r"[\w.-]+", branch, re.ASCII):
            raise self._damaged("HEAD names no branch")
        return branch

    def check(self) -> None:
        """Raise `Damaged` where something stands here that is no repository."""
        if os.path.lexists(self.path) and not self.exists:
            raise self._damaged("it has no HEAD")

    def create(self) -> None:
        """Make it where there is none, in one step, with a branch of a random name."""
        if self.exists:
            return
        self.check()
        with self._translated():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            building = self.path.with_name(f"{self.path.name}.new")
            shutil.rmtree(building, ignore_errors=True)
            build(building, f"device-{secrets.token_hex(4)}")
            building.rename(self.path)
            sync_folder(self.path.parent)

    def tip(self, branch: str = "") -> str:
        """The newest commit of a branch (this device's own one), empty for none."""
        with self._translated(), suppress(FileNotFoundError):
            if self.exists:
                tip = self.read_file(f"refs/heads/{branch or self.branch}")
                return tip.decode("utf-8", "replace").strip()
        return ""

    def set_tip(self, commit: str, branch: str = "") -> None:
        """Let a branch (this device's own one) end at `commit`."""
        self.write_file(f"refs/heads/{branch or self.branch}", f"{commit}\n".encode())

    def set_own_branch(self, branch: str) -> None:
        """Let this device's own branch be another one."""
        self.write_file("HEAD", f"ref: refs/heads/{branch}\n".encode())

    def commit(self, identity: str) -> Commit:
        """The commit of that id."""
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
        return dict(self.changed("", tree))

    def changed(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        """The paths in which two trees differ, each with the id of its later content, empty where
        the file is gone; an empty id of a tree is an empty tree."""
        from dulwich.diff_tree import tree_changes

        old, new = (_object_id(tree) if tree else None for tree in (before, after))
        with self._translated():
            for change in tree_changes(self.objects, old, new):
                entry = change.new or change.old
                if entry is not None and entry.path is not None:
                    identity = change.new.sha if change.new else None
                    path = entry.path.decode("utf-8", "surrogateescape")
                    yield path, identity.decode() if identity else ""

    def content(self, blob: str) -> bytes:
        """The bytes of a file's content."""
        from dulwich.objects import Blob

        found = self._get(blob)
        if not isinstance(found, Blob):
            raise self._damaged(f"{blob} is no file")
        return found.data

    def store(
        self, parent: str, files: Mapping[str, bytes | None], message: str, when: datetime
    ) -> str:
        """Write a commit that changes these files (None: they go); no branch moves yet."""
        from dulwich.object_store import (
            MemoryObjectStore,
            OverlayObjectStore,
            commit_tree_changes,
        )
        from dulwich.objects import Blob, Tree
        from dulwich.objects import Commit as GitCommit

        base = self.commit(parent).tree if parent else ""
        present = self.files(base) if None in files.values() else {}
        made = MemoryObjectStore()
        changes: list[tuple[bytes, int | None, ObjectID | None]] = []
        for path, content in files.items():
            name = path.encode("utf-8", "surrogateescape")
            if content is not None:
                blob = Blob.from_string(content)
                made.add_object(blob)
                changes.append((name, _FILE, blob.id))
            elif path in present:
                changes.append((name, None, None))
        commit = GitCommit()
        with self._translated():
            store = OverlayObjectStore([made, self.objects], made)
            commit.tree = commit_tree_changes(store, _object_id(base) if base else Tree(), changes)
        commit.parents = [_object_id(parent)] if parent else []
        commit.author = commit.committer = _AUTHOR
        commit.author_time = commit.commit_time = int(when.timestamp())
        offset = int((when.utcoffset() or timedelta()).total_seconds())
        commit.author_timezone = commit.commit_timezone = offset // 60 * 60
        commit.encoding = b"UTF-8"
        commit.message = message.encode("utf-8", "backslashreplace")
        with self._translated():
            for identity in made:
                self._write_object(made[identity])
            self._write_object(commit)
        return commit.id.decode()

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
        with self._translated():
            for pattern in _LEFTOVERS:
                for path in self.path.rglob(pattern):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of open files; what is asked next opens them again."""
        if "objects" in self.__dict__:
            self.objects.close()
            del self.objects

    def read_file(self, name: str) -> bytes:
        """A file of the repository itself; raises `FileNotFoundError`."""
        return (self.path / name).read_bytes()

    def write_file(self, name: str, content: bytes) -> None:
        """Replace a file of the repository itself, durably."""
        with self._translated():
            replace_file(self.path / name, content)

    @cached_property
    def objects(self) -> DiskObjectStore:
        """What is stored, as dulwich sees it."""
        from dulwich.object_store import DiskObjectStore

        return DiskObjectStore(self.path / "objects", fsync_object_files=True)

    def _get(self, identity: str) -> ShaFile:
        with self._translated(identity):
            return self.objects[_object_id(identity)]

    def _write_object(self, found: ShaFile) -> None:
        """Write a file that is never changed. Its name is durable once a later one in this file
        system is: names are journalled in order, and git itself relies on that."""
        path = self._loose(found.id.decode())
        if path.exists():
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = path.with_name(f".{path.name}.nanobot-tmp")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            temporary.chmod(0o400)
            file.write(found.as_legacy_object())
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.rename(path)

    def _loose(self, identity: str) -> Path:
        return self.path / "objects" / identity[:2] / identity[2:]

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(
            self.path,
            f"it is damaged ({reason})",
            hint="Restart nanobot: that folder is set aside then if its newest version is damaged, "
            "and new versions begin. Otherwise move it away. Memory itself is untouched.",
        )

    @contextmanager
    def _translated(self, identity: str = "a part") -> Iterator[None]:
        from dulwich.errors import ChecksumMismatch, FileFormatException, ObjectMissing

        try:
            yield
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        except (
            AssertionError,
            ChecksumMismatch,
            EOFError,
            FileFormatException,
            KeyError,
            ObjectMissing,
            ValueError,
            zlib.error,
        ) as error:
            raise self._damaged(f"{identity} is missing or broken") from error


def _object_id(identity: str) -> ObjectID:
    from dulwich.objects import ObjectID

    return ObjectID(identity.encode())
