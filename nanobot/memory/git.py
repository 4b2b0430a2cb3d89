"""A bare git repository of small text files, for one writer: a thin layer over dulwich.

Every scope has one: the owner's is `memory.git` in the state folder, the others are below
`versions`. There is no index and no work tree: a commit names the files it changes, all others stay
as in its parent. An object is synced before the ref that points to it, so the repository is whole
after a power cut. Nothing is read from a person's git configuration.

The first commit creates the repository and its folder. dulwich is imported when one is opened."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from nanobot.errors import StorageError
from nanobot.io import FENCE, make_folder, replace_file, sync_folder
from nanobot.memory.version import CommitMessage, scope_of
from nanobot.tasks import pace

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore
    from dulwich.objects import ObjectID, ShaFile
    from dulwich.pack import Pack

AnyObject = TypeVar("AnyObject")
Files = Mapping[str, bytes | None]
"""The new contents of the files that a commit changes, by path. None removes a file."""

_OWNERS, _OTHERS = "memory.git", "versions"
_CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfilemode = false\n"
    b"\tlogAllRefUpdates = false\n\tfsyncObjectFiles = true\n"
)
_AUTHOR = b"Nanobot <nanobot@local>"
_FILE = 0o100644
_LEFTOVERS = ("*.lock", "tmp_pack_*", "*.nanobot-tmp")


def repository_of(state: Path, prefix: str) -> Path:
    """Return the path of the repository of the scope with this prefix, in the folder `state`."""
    return state / _OTHERS / f"{prefix.rstrip('/')}.git" if prefix else state / _OWNERS


def repositories(state: Path) -> dict[str, Path]:
    """Return the repositories of all scopes with versions, by prefix, the owner's first. Blocks."""
    found = {"": state / _OWNERS} if os.path.lexists(state / _OWNERS) else {}
    for path in sorted((state / _OTHERS).glob("*/*.git")):
        prefix = f"{path.parent.name}/{path.stem}/"
        if scope_of(f"{prefix}USER.md") == prefix:
            found[prefix] = path
    return found


class DamagedRepository(StorageError):
    """The repository is damaged. It only serves to look back, so a new one may begin."""


class Commit(Struct, frozen=True):
    """One commit. Ids are hex, `parent` is empty for the first one, `when` is aware."""

    id: str
    parent: str
    tree: str
    when: datetime
    message: str


def build(path: Path, branch: str) -> None:
    """Create an empty repository in the folder `path`, which is empty or does not exist."""
    path.mkdir(mode=0o700, exist_ok=True)
    for folder in ("objects", "objects/pack", "objects/info", "refs", "refs/heads"):
        (path / folder).mkdir(mode=0o700)
    replace_file(path / "config", _CONFIG)
    replace_file(path / "HEAD", f"ref: refs/heads/{branch}\n".encode())
    for folder in ("objects", "refs", ""):
        sync_folder(path / folder)


def blob_id(content: bytes) -> str:
    """Return git's id for this content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def new_branch() -> str:
    """Return a random name for the branch of a device."""
    return f"device-{secrets.token_hex(4)}"


class Repository:
    """The repository in the folder `path`. Callers ensure that there is one writer.

    Raises `StorageError`, or `DamagedRepository` if an object or a ref is missing or broken."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Create it in one step, with a branch of a random name, unless it exists."""
        if os.path.lexists(self.path):
            return
        with self._translate_errors():
            make_folder(self.path.parent)
            new = self.path.with_name(f"{self.path.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            build(new, new_branch())
            new.rename(self.path)
            sync_folder(self.path.parent)

    @property
    def branch(self) -> str:
        """The name of this device's own branch."""
        absent = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with self._translate_errors(), suppress(*absent):
            head = (self.path / "HEAD").read_bytes()
            if match := re.fullmatch(rb"ref: refs/heads/([\w.-]+)\s*", head):
                return match[1].decode()
        raise self._describe_damage("HEAD has no branch")

    def rename_branch(self, name: str) -> None:
        """Rename this device's own branch."""
        old = self.branch
        self.set_tip(self.tip(), name)
        with self._translate_errors():
            replace_file(self.path / "HEAD", f"ref: refs/heads/{name}\n".encode())
        self.remove_branch(old)

    def branches(self) -> list[str]:
        with self._translate_errors():
            return sorted(path.name for path in (self.path / "refs/heads").iterdir())

    def tip(self, branch: str = "") -> str:
        """Return the newest commit of a branch (this device's by default), or ""."""
        if not os.path.lexists(self.path):
            return ""
        name = f"refs/heads/{branch or self.branch}"
        with self._translate_errors(), suppress(FileNotFoundError, NotADirectoryError):
            return (self.path / name).read_bytes().decode("utf-8", "replace").strip()
        with self._translate_errors(), suppress(FileNotFoundError, NotADirectoryError):
            # A person's `git gc` moves refs there.
            packed = (self.path / "packed-refs").read_text("utf-8", "replace")
            if found := re.search(rf"^([0-9a-f]+) {re.escape(name)}$", packed, re.MULTILINE):
                return found[1]
        return ""

    def set_tip(self, commit: str, branch: str = "") -> None:
        """Let a branch (this device's by default) end at `commit`."""
        with self._translate_errors():
            name = branch or self.branch
            replace_file(self.path / "refs/heads" / name, f"{commit}\n".encode())

    def remove_branch(self, name: str) -> None:
        with self._translate_errors():
            FENCE.wait()
            (self.path / "refs/heads" / name).unlink(missing_ok=True)

    def commit(self, identity: str) -> Commit:
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
        """Yield `tip` and its ancestors, newest first."""
        while tip:
            found = self.commit(tip)
            yield found
            tip = found.parent

    def files(self, commit: str | Commit) -> dict[str, str]:
        """Return the files after a commit, each with the id of its content. An empty id has no
        files."""
        if not commit:
            return {}
        from dulwich.object_store import iter_tree_contents

        tree = (self.commit(commit) if isinstance(commit, str) else commit).tree
        with self._translate_errors(tree):
            return {
                one.path.decode("utf-8", "surrogateescape"): one.sha.decode()
                for one in iter_tree_contents(self._objects, _object_id(tree))
                if one.path is not None and one.sha is not None
            }

    def content(self, blob: str) -> bytes:
        """Return the content of a file by its id, or b"" for an empty id."""
        from dulwich.objects import Blob

        return self._get(blob, Blob).data if blob else b""

    def store(self, parent: str, files: Files, message: str, when: datetime) -> str:
        """Write a commit that changes these files and return its id. No branch moves yet."""
        from dulwich.object_store import commit_tree_changes
        from dulwich.objects import Blob, Tree
        from dulwich.objects import Commit as GitCommit

        changes: list[tuple[bytes, int | None, ObjectID | None]] = []
        with self._translate_errors():
            for path, content in files.items():
                name = path.encode("utf-8", "surrogateescape")
                if content is None:
                    changes.append((name, None, None))
                    continue
                blob = Blob.from_string(content)
                self._objects.add_object(blob)
                changes.append((name, _FILE, blob.id))
            base = _object_id(self.commit(parent).tree) if parent else Tree()
            commit = GitCommit()
            commit.tree = commit_tree_changes(self._objects, base, changes)
            commit.parents = [_object_id(parent)] if parent else []
            commit.author = commit.committer = _AUTHOR
            commit.author_time = commit.commit_time = int(when.timestamp())
            offset = int((when.utcoffset() or timedelta()).total_seconds())
            commit.author_timezone = commit.commit_timezone = offset // 60 * 60
            commit.encoding = b"UTF-8"
            commit.message = message.encode("utf-8", "backslashreplace")
            self._objects.add_object(commit)
        return commit.id.decode()

    def pack(self) -> None:
        with self._translate_errors():
            self._objects.pack_loose_objects()

    def rewrite(
        self, redact_message: Callable[[str], str], redact_content: Callable[[bytes], bytes]
    ) -> int:
        """Redact all commits of this device's branch and return how many changed. Everything else
        is deleted, including other branches and all old objects.

        The branch moves once the new history is stored. After a crash it has the old history or the
        new one, and doing it again deletes the rest of the old one."""
        changed, parent, before = 0, "", dict[str, str]()
        commits = list(pace(self.chain(self.tip())))
        with self._translate_errors():
            self._objects.fsync_object_files = False  # one sync at the end is far faster
            for commit in pace(reversed(commits)):
                now = self.files(commit)
                old = {
                    path: self.content(now[path]) if path in now else None
                    for path in find_changed_paths(before, now)
                }
                new = {path: text and redact_content(text) for path, text in old.items()}
                message = redact_message(commit.message)
                parent, before = self.store(parent, new, message, commit.when), now
                changed += (message, new) != (commit.message, old)
            os.sync()
            self.close()
            self._keep_only(parent)
        return changed

    def _keep_only(self, tip: str) -> None:
        """Let this device's branch end at `tip`, and delete everything that does not belong to
        it."""
        from dulwich.gc import find_unreachable_objects
        from dulwich.refs import DiskRefsContainer

        own = self.path / "refs/heads" / self.branch
        self.set_tip(tip)
        for path in [self.path / "packed-refs", *(self.path / "refs").rglob("*")]:
            if path.is_file() and path != own:
                FENCE.wait()
                path.unlink()
        gone = find_unreachable_objects(self._objects, DiskRefsContainer(self.path))
        FENCE.wait()
        self._objects.repack(exclude=gone)

    def remove_leftovers(self) -> None:
        """Remove locks and temporary files of a process that died."""
        with self._translate_errors():
            for pattern in _LEFTOVERS:
                for path in self.path.rglob(pattern):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close open files; the next access opens them again."""
        if "_objects" in self.__dict__:
            self._objects.close()
            del self._objects

    @cached_property
    def _objects(self) -> DiskObjectStore:
        from dulwich.file import SharedPerm
        from dulwich.object_store import DiskObjectStore

        class Objects(DiskObjectStore):
            """Syncs the names of new files too, which dulwich leaves to the file system."""

            def add_object(self, obj: ShaFile) -> None:
                folder = Path(self.path, obj.id[:2].decode())
                is_new = not folder.exists()
                super().add_object(obj)
                if self.fsync_object_files:
                    sync_folder(folder)
                    if is_new:
                        sync_folder(folder.parent)

            def add_objects(self, *args: Any, **kwargs: Any) -> Pack | None:
                pack = super().add_objects(*args, **kwargs)
                sync_folder(Path(self.pack_dir))  # before the packed objects are deleted
                return pack

        mine = SharedPerm(0o600, replace=True)
        return Objects(self.path / "objects", fsync_object_files=True, shared_perm=mine)

    def _get(self, identity: str, kind: type[AnyObject]) -> AnyObject:
        with self._translate_errors(identity):
            found = self._objects[_object_id(identity)]
            if not isinstance(found, kind):
                raise self._describe_damage(f"{identity} is not a {kind.__name__}")
            return found

    def _describe_damage(self, reason: str) -> DamagedRepository:
        return DamagedRepository(
            self.path,
            f"it is damaged ({reason})",
            hint=(
                "Restart nanobot. If the newest version is damaged, nanobot sets the folder aside "
                "and starts a new one. Otherwise, move the folder away. Memory itself is not "
                "affected."
            ),
        )

    @contextmanager
    def _translate_errors(self, identity: str = "an object") -> Iterator[None]:
        """Convert errors of dulwich and the disk to errors of this repository."""
        try:
            yield
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        except (AssertionError, EOFError, KeyError, ValueError, zlib.error) as error:
            raise self._describe_damage(f"{identity} is missing or broken") from error
        except Exception as error:
            # Loaded only now, because most starts have nothing to do here.
            from dulwich.errors import ChecksumMismatch, FileFormatException, ObjectMissing

            if isinstance(error, (ChecksumMismatch, FileFormatException, ObjectMissing)):
                raise self._describe_damage(f"{identity} is missing or broken") from error
            raise


class NewestVersion(Struct, frozen=True):
    """Number and time of the newest version, and the number of files."""

    number: int
    when: datetime
    files: int


def read_newest(path: Path) -> NewestVersion | None:
    """Return the newest version of a repository after reading all its files, or None. Changes
    nothing. Raise `StorageError` if something is damaged."""
    with closing(Repository(path)) as repository:
        if not (tip := repository.tip()):
            return None
        newest, files = repository.commit(tip), repository.files(tip)
        for blob in set(files.values()):
            repository.content(blob)
        return NewestVersion(CommitMessage.parse(newest.message).number, newest.when, len(files))


def find_changed_paths(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the paths in which the files of two commits differ, in order."""
    return sorted(path for path in before.keys() | now if before.get(path) != now.get(path))


def _object_id(identity: str) -> ObjectID:
    from dulwich.objects import ObjectID

    return ObjectID(identity.encode())
