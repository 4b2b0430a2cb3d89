"""A bare git repository of small text files, for one writer: a thin layer over dulwich.

An object is synced before the ref that points to it, so what a power cut leaves is a whole
repository. There is no index and no work tree: a commit names the files it changes, all others stay
as in its parent. Nothing is read from a person's git configuration.

The first commit makes the repository and its folder. dulwich is imported when one is opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from nanobot.errors import StorageError
from nanobot.io import FENCE, make_folder, replace_file, storage_errors, sync_folder
from nanobot.tasks import paced

if TYPE_CHECKING:
    from dulwich.object_store import BaseObjectStore, DiskObjectStore, MemoryObjectStore
    from dulwich.objects import Commit as GitCommit
    from dulwich.objects import ObjectID

AnyObject = TypeVar("AnyObject")

_CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfilemode = false\n"
    b"\tlogAllRefUpdates = false\n\tfsyncObjectFiles = true\n"
)
_AUTHOR = b"Nanobot <nanobot@local>"
_FILE = 0o100644
_PACK_BYTES = 256 * 1024
_LEFTOVERS = ("*.lock", "tmp_pack_*", "*.nanobot-tmp", "*.new")


PACK_EVERY = 500
"""After so many commits the loose objects become one file."""


class Damaged(StorageError):
    """The repository is not whole. It holds what is for looking back, so a new one may begin."""


class Commit(Struct, frozen=True):
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

    Raises `StorageError`, or `Damaged` for what is missing or broken.
    """

    _is_durable = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new, self._old = (path.with_name(f"{path.name}.{kind}") for kind in ("new", "old"))

    @property
    def branch(self) -> str:
        """The name of this device's own branch."""
        absent = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with self.translated(), suppress(*absent):
            head = (self.path / "HEAD").read_bytes()
            if match := re.fullmatch(rb"ref: refs/heads/([\w.-]+)\s*", head):
                return match[1].decode()
        raise self._damaged("HEAD names no branch")

    def create(self) -> None:
        """Make it where there is none, in one step, with a branch of a random name."""
        if os.path.lexists(self.path):
            return
        with self.translated():
            make_folder(self.path.parent)
            shutil.rmtree(self._new, ignore_errors=True)
            build(self._new, new_branch())
            self._new.rename(self.path)
            sync_folder(self.path.parent)

    def tip(self, branch: str = "") -> str:
        """The newest commit of a branch (this device's own one), empty for none."""
        if not os.path.lexists(self.path):
            return ""
        with self.translated(), suppress(FileNotFoundError):
            tip = (self.path / "refs/heads" / (branch or self.branch)).read_bytes()
            return tip.decode("utf-8", "replace").strip()
        return ""

    def set_tip(self, commit: str, branch: str = "") -> None:
        """Let a branch (this device's own one) end at `commit`."""
        self.write_file(f"refs/heads/{branch or self.branch}", f"{commit}\n".encode())

    def commit(self, identity: str) -> Commit:
        """The commit of that id."""
        from dulwich.objects import Commit as GitCommit

        found = self._get(identity, GitCommit)
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

    def branches(self) -> list[str]:
        """The names of all branches, in order."""
        with self.translated():
            return sorted(path.name for path in (self.path / "refs/heads").iterdir())

    def changes(
        self, commits: Iterable[Commit], tree: str = ""
    ) -> Iterator[tuple[Commit, dict[str, str]]]:
        """Each of these commits, which follow one another, with what it changed (see `changed`);
        `tree` is that of the commit before them."""
        for commit in paced(commits):
            yield commit, dict(self.changed(tree, commit.tree))
            tree = commit.tree

    def history(self, branch: str = "") -> Iterator[tuple[Commit, dict[str, bytes | None]]]:
        """All commits of a branch (this device's own one), oldest first, each with the files that
        it changed; None for one that went."""
        commits = list(paced(self.chain(self.tip(branch))))
        for commit, blobs in self.changes(reversed(commits)):
            contents = {path: self.content(id) if id else None for path, id in blobs.items()}
            yield commit, contents

    def changed(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        """The paths in which two trees differ, each with the id of its later content, empty where
        the file is gone; an empty id of a tree is an empty tree."""
        from dulwich.diff_tree import tree_changes

        old, new = (_object_id(tree) if tree else None for tree in (before, after))
        with self.translated():
            for change in tree_changes(self.objects, old, new):
                entry = change.new or change.old
                if entry is not None and entry.path is not None:
                    path = entry.path.decode("utf-8", "surrogateescape")
                    yield path, change.new.sha.decode() if change.new and change.new.sha else ""

    def content(self, blob: str) -> bytes:
        """The bytes of a file's content."""
        from dulwich.objects import Blob

        return self._get(blob, Blob).data

    def store(
        self, parent: str, files: Mapping[str, bytes | None], message: str, when: datetime
    ) -> str:
        """Write a commit that changes these files (None: one that is there goes); no branch moves
        yet."""
        from dulwich.object_store import commit_tree_changes
        from dulwich.objects import Blob, Tree

        base = self.commit(parent).tree if parent else ""
        changes: list[tuple[bytes, int | None, ObjectID | None]] = []
        with self.translated():
            for path, content in files.items():
                name = path.encode("utf-8", "surrogateescape")
                if content is None:
                    changes.append((name, None, None))
                    continue
                blob = Blob.from_string(content)
                self.objects.add_object(blob)
                changes.append((name, _FILE, blob.id))
            tree = _object_id(base) if base else Tree()
            changed = commit_tree_changes(self.objects, tree, changes)
            commit = _new_commit(changed, parent, message, when)
            self.objects.add_object(commit)
        return commit.id.decode()

    def pack(self) -> None:
        """Put the loose objects into one file."""
        with self.translated():
            self.disk.pack_loose_objects()

    def rewrite(
        self, redact_message: Callable[[str], str], redact_content: Callable[[bytes], bytes]
    ) -> int:
        """Put all commits of this device's branch through these; return how many changed.

        The new repository is built beside the old one and put in its place.
        """
        changed, parent = 0, ""
        with self.translated():
            shutil.rmtree(self._new, ignore_errors=True)
            new = Draft(self._new, self.branch)
        for commit, contents in self.history():
            message = redact_message(commit.message)
            files = {path: text and redact_content(text) for path, text in contents.items()}
            parent = new.store(parent, files, message, commit.when)
            changed += (message, files) != (commit.message, contents)
        new.finish({self.branch: parent})
        self.close()
        with self.translated():
            os.sync()
            FENCE.wait()
            self.path.rename(self._old)
        self.finish_rewrite()
        return changed

    def finish_rewrite(self) -> None:
        """Complete a replacement that was under way, or forget one that never got that far."""
        with storage_errors(self.path):
            if self._old.exists() and not self.path.exists():  # the new one was complete before
                (self._new if self._new.exists() else self._old).rename(self.path)
                sync_folder(self.path.parent)
            for rest in (self._old, self._new):
                if rest.exists():
                    shutil.rmtree(rest)
                    sync_folder(self.path.parent)

    def remove_leftovers(self) -> None:
        """Remove what a process that died left half done."""
        with self.translated():
            for pattern in _LEFTOVERS:
                for path in self.path.rglob(pattern):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close open files; the next access opens them again."""
        if "disk" in self.__dict__:
            self.disk.close()
            del self.disk

    def write_file(self, name: str, content: bytes) -> None:
        """Replace a file of the repository itself, durably."""
        with self.translated():
            replace_file(self.path / name, content)

    @property
    def objects(self) -> BaseObjectStore:
        """What is stored, as dulwich sees it."""
        return self.disk

    @cached_property
    def disk(self) -> DiskObjectStore:
        """What of it is on the disk."""
        from dulwich.file import SharedPerm
        from dulwich.object_store import DiskObjectStore

        mine = SharedPerm(0o600, replace=True)
        return DiskObjectStore(
            self.path / "objects", fsync_object_files=self._is_durable, shared_perm=mine
        )

    def _get(self, identity: str, kind: type[AnyObject]) -> AnyObject:
        with self.translated(identity):
            found = self.objects[_object_id(identity)]
            if not isinstance(found, kind):
                raise self._damaged(f"{identity} is no {kind.__name__}")
            return found

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(
            self.path,
            f"it is damaged ({reason})",
            hint="Restart nanobot: that folder is set aside then if its newest version is damaged, "
            "and new versions begin. Otherwise move it away. Memory itself is untouched.",
        )

    @contextmanager
    def translated(self, identity: str = "a part") -> Iterator[None]:
        """Raise errors of dulwich and of the disk within as errors of this repository."""
        try:
            yield
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        except Exception as error:
            # dulwich is loaded only now: most starts find nothing to do here.
            from dulwich.errors import ChecksumMismatch, FileFormatException, ObjectMissing
            from dulwich.file import FileLocked

            if isinstance(error, FileLocked):
                raise StorageError(self.path, "a lock was left", hint="Restart nanobot.") from error
            own = (ChecksumMismatch, FileFormatException, ObjectMissing)
            if isinstance(
                error, (*own, AssertionError, EOFError, KeyError, ValueError, zlib.error)
            ):
                raise self._damaged(f"{identity} is missing or broken") from error
            raise


class Draft(Repository):
    """A new repository in the folder `path`, for a history that another one has. Nothing is synced
    to the disk, and what is stored waits in memory to be written many at once: a file for each
    object would take many times as long."""

    _is_durable = False

    def __init__(self, path: Path, branch: str) -> None:
        build(path, branch)
        super().__init__(path)
        self._size = 0

    @property
    def objects(self) -> BaseObjectStore:
        """What waits, and what is on the disk."""
        from dulwich.object_store import OverlayObjectStore

        return OverlayObjectStore([self._waiting, self.disk], self._waiting)

    @cached_property
    def _waiting(self) -> MemoryObjectStore:
        from dulwich.object_store import MemoryObjectStore

        return MemoryObjectStore()

    def store(
        self, parent: str, files: Mapping[str, bytes | None], message: str, when: datetime
    ) -> str:
        """Write a commit."""
        commit = super().store(parent, files, message, when)
        self._size += len(message) + sum(map(len, filter(None, files.values())))
        if self._size > _PACK_BYTES:
            self.pack()
        return commit

    def pack(self) -> None:
        """Put what waits into one file."""
        with self.translated():
            self.disk.add_objects([(self._waiting[one], None) for one in self._waiting])
        self.close()
        del self._waiting
        self._size = 0

    def finish(self, tips: Mapping[str, str]) -> None:
        """Write what waits, and let the branches end at these commits."""
        self.pack()
        for branch, tip in tips.items():
            self.set_tip(tip, branch)


def _new_commit(tree: ObjectID, parent: str, message: str, when: datetime) -> GitCommit:
    from dulwich.objects import Commit as GitCommit

    commit = GitCommit()
    commit.tree = tree
    commit.parents = [_object_id(parent)] if parent else []
    commit.author = commit.committer = _AUTHOR
    commit.author_time = commit.commit_time = int(when.timestamp())
    offset = int((when.utcoffset() or timedelta()).total_seconds())
    commit.author_timezone = commit.commit_timezone = offset // 60 * 60
    commit.encoding = b"UTF-8"
    commit.message = message.encode("utf-8", "backslashreplace")
    return commit


def new_branch() -> str:
    """A name for the branch of a device."""
    return f"device-{secrets.token_hex(4)}"


def _object_id(identity: str) -> ObjectID:
    from dulwich.objects import ObjectID

    return ObjectID(identity.encode())
