"""The home of the other program: where its parts lie, and reading them without ever changing it.

Links are not followed, save where the home or the workspace itself is one; pipes and devices are
never opened. What cannot be read is told about, and the rest goes on.

The home that an import makes: nobody sees it before it is complete.

It is written in a folder of its own beside the target, on the same file system, readable by its
owner only, and then renamed. What a killed import left behind is cleared by the next one.

What lies in the other home, and what becomes of each file: every file is dealt with once, and
stands in the report.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from nanobot.agent.media import FOLDER, MediaStore, kept_name
from nanobot.disk import sync_folder
from nanobot.errors import NanobotError, StorageError
from nanobot.importing.foreign import Fields, NotJson
from nanobot.importing.report import Item, Kind, Outcome, Report
from nanobot.security.paths import write_all
from nanobot.tilde import expanded
from nanobot.upkeep.retention import has_room
from nanobot.upkeep.swap import swap

CONFIG = "config.json"
LARGEST_SETTINGS = 4 << 20
"""Bytes of a configuration or a list of jobs beyond which no person and no agent wrote it."""

OUR_MARKS = ("config.yaml", "state/journal.db")
"""What only a home of ours has."""

_THEIRS = ("workspace", "sessions", "cron", "memory")
_BLOCK = 1 << 20
_LONGEST, _DEEPEST = 3_000, 100
"""Bytes and folders of a path; the new home has to have room for more in front of it."""

FoundKind = Literal["file", "link", "other", "unreadable"]
Root = Literal["home", "workspace"]


@dataclass(frozen=True, slots=True)
class Found:
    """A name somewhere below a root: its `path` within it, and the size of a file in bytes. Of a
    link `detail` says where it points, of what is unreadable why."""

    root: Root
    path: str
    kind: FoundKind
    size: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A home. `workspace` is None where there is none; `whole` is false where the workspace holds
    the home, or much else: then only what nanobot knows is taken from it. `config_problem` says
    why the configuration cannot be used, empty where it can."""

    home: Path
    workspace: Path | None
    whole: bool
    config: Fields
    config_problem: str

    @property
    def inside(self) -> str:
        """The workspace's path within the home, empty where it lies elsewhere."""
        if self.workspace is None or not self.workspace.is_relative_to(self.home):
            return ""
        return self.workspace.relative_to(self.home).as_posix()


def locate(home: Path, workspace: Path | None, target: Path) -> Source:
    """What lies at `home`; a config.json stands for its folder. Raises `NanobotError` where that is
    no home of the other program."""
    if home.is_file() and home.name == CONFIG:
        home = home.parent
    if not home.is_dir():
        raise NanobotError(
            f"there is no folder {home}",
            hint="Name the home to import: `nanobot import FROM`.",
        )
    home = home.resolve()
    has_config = (home / CONFIG).is_file()
    if not has_config:
        _refuse_others(home)
    config, problem = _config(home / CONFIG) if has_config else (Fields({}), "")
    where = _workspace(home, config, workspace)
    whole = where is not None and _holds_little(where, home, target)
    return Source(home, where, whole, config, problem)


def walk(folder: Path, root: Root, skip: Callable[[str], bool]) -> Iterator[Found]:
    """Everything below `folder`, folders themselves left out, save the paths that `skip` names."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(folder / prefix) as entries:
                for entry in entries:
                    path = f"{prefix}{entry.name}"
                    if skip(path):
                        continue
                    if len(os.fsencode(path)) > _LONGEST or path.count("/") > _DEEPEST:
                        yield Found(root, path, "unreadable", detail="its path is too long")
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{path}/")
                    else:
                        yield _leaf(root, path, entry)
        except OSError as error:
            yield Found(root, prefix.rstrip("/") or ".", "unreadable", detail=reason(error))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file for reading. Raises `OSError`, also where it is anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOATIME
    try:
        descriptor = os.open(path, flags)
    except PermissionError:  # O_NOATIME is for the owner of the file
        descriptor = os.open(path, flags & ~os.O_NOATIME)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is no regular file")
        yield file


def read_small(path: Path, limit: int = LARGEST_SETTINGS) -> bytes:
    """A file of at most `limit` bytes. Raises `OSError`, also where it is larger."""
    with opened(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(0, f"it is larger than {limit >> 20} MiB")
    return content


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """The content of a file, piece by piece. Raises `OSError`."""
    while block := file.read(_BLOCK):
        yield block


def reason(error: OSError) -> str:
    """What went wrong, in a few words."""
    if error.errno == errno.ELOOP:
        return "it is a link, and links are not followed"
    return (error.strerror or str(error)).lower()


def _refuse_others(home: Path) -> None:
    if any((home / name).exists() for name in OUR_MARKS):
        raise NanobotError(
            f"{home} is a home of this nanobot already",
            hint="Name the home of the other program: `nanobot import FROM`.",
        )
    if not any((home / name).is_dir() for name in _THEIRS):
        raise NanobotError(
            f"{home} is no home of HKUDS/nanobot: it has no {CONFIG} and no workspace",
            hint="Name the folder that holds them: `nanobot import FROM`.",
        )


def _config(path: Path) -> tuple[Fields, str]:
    try:
        return Fields.read(read_small(path)), ""
    except NotJson as error:
        return Fields({}), str(error)
    except OSError as error:
        return Fields({}), f"it cannot be read: {reason(error)}"


def _workspace(home: Path, config: Fields, chosen: Path | None) -> Path | None:
    """The workspace: the one chosen, else what the configuration names. A home that was moved keeps
    its old path in there, so one within the home at hand is preferred."""
    if chosen is not None:
        if not chosen.is_dir():
            raise NanobotError(f"there is no folder {chosen}")
        return chosen.resolve()
    named = config.inner("agents", "defaults").text("workspace") or "~/.nanobot/workspace"
    _, mark, within = named.partition("/.nanobot/")
    moved = [home / within, home / "workspace"] if mark else []
    candidates = [*moved, _expanded(named), home / "workspace"]
    found = next((path for path in candidates if path.is_dir()), None)
    return found.resolve() if found else None


def _expanded(named: str) -> Path:
    try:
        return expanded(named).absolute()
    except NanobotError:  # a user that this machine does not have
        return Path(named).absolute()


def _holds_little(workspace: Path, home: Path, target: Path) -> bool:
    """Whether all of a workspace can be copied: not where it holds one of the homes, or is the
    person's own folder."""
    target = target.resolve()
    if workspace in (Path("/"), Path.home().resolve()):
        return False
    return not home.is_relative_to(workspace) and not target.is_relative_to(workspace)


def _leaf(root: Root, path: str, entry: os.DirEntry[str]) -> Found:
    try:
        if entry.is_symlink():
            return Found(root, path, "link", detail=str(Path(entry.path).readlink()))
        if entry.is_file(follow_symlinks=False):
            return Found(root, path, "file", entry.stat(follow_symlinks=False).st_size)
    except OSError as error:
        return Found(root, path, "unreadable", detail=reason(error))
    return Found(root, path, "other", detail="it is no regular file")


RESERVE = 64 << 20
"""Bytes that are to stay free on the disk."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewHome:
    """A home at `folder`. With none everything is read and nothing is written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._store = MediaStore(folder / "media") if folder else None

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write a new file. Raises `StorageError`, and `OSError` where reading `pieces` does."""
        if self._folder is None:
            for _ in pieces:
                pass
            return
        target = self._folder / path
        try:
            _make(target.parent, self._folder)
            descriptor = os.open(target, _CREATE, 0o600)
        except OSError as error:
            raise StorageError.of(target, error) from error
        try:
            for piece in pieces:
                _fill(descriptor, piece, target)
            _fill(descriptor, b"", target)
        finally:
            os.close(descriptor)

    def copy(self, path: str, file: BinaryIO) -> None:
        """Write a new file that holds what `file` does. Raises as `write` does."""
        if self._folder is None:
            return
        self.write(path, blocks(file))
        if os.fstat(file.fileno()).st_mode & stat.S_IXUSR:
            (self._folder / path).chmod(0o700)

    def remove(self, path: str) -> None:
        """Take back a file that was written, or begun."""
        if self._folder is not None:
            (self._folder / path).unlink(missing_ok=True)

    def media(self, file: BinaryIO, name: str) -> str:
        """Keep a file that came with a message; its path in the new home. Raises as `write`."""
        data = file.read()
        kept = self._store.put(data, "", name) if self._store else kept_name(data, "", name)
        return f"{FOLDER}/{kept}"


class Staging:
    """The folder in which a home for `target` is made; one import at a time."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = target.with_name(f".{target.name}.importing")
        self._lock = -1

    def __enter__(self) -> Staging:
        """Make it, empty. Raises `NanobotError`."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(self._lock, 0o700)  # which only its owner may
            for left in self.folder.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        except BlockingIOError:
            os.close(self._lock)
            raise NanobotError(
                f"another import into {self._target} is at work", hint="Wait until it is done."
            ) from None
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def expect_room(self, needed: int) -> None:
        """Raise `NanobotError` where the disk has no room for `needed` bytes."""
        if not has_room(self.folder, needed + RESERVE):
            raise NanobotError(
                f"{self.folder.parent} has no room for {needed + RESERVE >> 20:,} MiB",
                hint="Free some space, or import into another disk with --to.",
            )

    def put_in_place(self, aside: Path | None) -> None:
        """Let what was made be the home, durably. What stands there goes to `aside`; without one it
        is nothing, or an empty folder. Raises `StorageError`: all is as before then."""
        os.sync()  # thousands of files, which must be there when their folder gets its name
        try:
            if aside is None:
                self.folder.rename(self._target)
            else:
                swap(self.folder, self._target, aside)
            sync_folder(self._target.parent)
        except OSError as error:
            raise StorageError.of(self._target, error) from error


def _make(folder: Path, top: Path) -> None:
    """`mkdir -p` below `top`, for nobody else's eyes."""
    if folder != top and not folder.is_dir():
        _make(folder.parent, top)
        folder.mkdir(mode=0o700)


def _fill(descriptor: int, piece: bytes, target: Path) -> None:
    """Add to a file; make what was added durable where that is nothing more."""
    try:
        write_all(descriptor, piece)
        if not piece:
            os.fsync(descriptor)
    except OSError as error:
        raise StorageError.of(target, error) from error


KNOWN = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")
WORKSPACE_ID = ".nanobot/workspace-id"
_PARTS = (*KNOWN, "memory", "skills", "sessions", "cron", "prompts")
_CHANGED = "it changed while it was read: stop the other program, and import again"


class Gathering:
    """Reads all names at once. `report.originals` is the folder of untouched copies in the new
    home."""

    def __init__(self, source: Source, new: NewHome, report: Report) -> None:
        self._source, self._report = source, report
        self.new = new
        places = {self._path(found): found for found in self._everything()}
        self._left = {(found.root, found.path): found for found in places.values()}

    def get(self, root: Root, path: str) -> Found | None:
        """A plain file that was not dealt with yet."""
        found = self._left.get((root, path))
        return found if found is not None and found.kind == "file" else None

    def below(self, root: Root, folder: str = "") -> list[Found]:
        """What was not dealt with yet of a root, or of a folder in it."""
        prefix = f"{folder}/" if folder else ""
        found = (f for f in self._left.values() if f.root == root and f.path.startswith(prefix))
        return sorted(found, key=lambda one: one.path)

    def opened(self, found: Found) -> AbstractContextManager[BinaryIO]:
        """A file, for reading. Raises `OSError`."""
        return opened(self._path(found))

    def read(self, found: Found | None, limit: int) -> bytes:
        """A small file's content; empty where there is none. Raises `OSError`."""
        return read_small(self._path(found), limit) if found is not None else b""

    def take(self, kind: Kind, found: Found, target: str) -> None:
        """Copy a file to `target`."""
        self._copy(kind, found, "taken", target, target)

    def keep(self, kind: Kind, found: Found, note: str = "") -> None:
        """Copy a file to the originals; what is none is left."""
        if found.kind == "file":
            self._copy(kind, found, "kept", self._original(found), note=note)
        elif found.kind == "link":
            self.leave(kind, found, f"a link to {found.detail}, which was not followed")
        else:
            self.leave(kind, found, found.detail)

    def convert(
        self, kind: Kind, found: Found, target: str, note: str = "", count: int = 0
    ) -> None:
        """Note that a file's content is at `target` in another form, and copy it to the originals.
        Without a target it is only kept."""
        if target:
            self._copy(kind, found, "converted", self._original(found), target, note, count)
        else:
            self.keep(kind, found, note)

    def leave(self, kind: Kind, found: Found, why: str) -> None:
        """Note that something is not copied."""
        self.done(kind, found, "left", "", why)

    def done(
        self,
        kind: Kind,
        found: Found,
        outcome: Outcome,
        target: str,
        note: str = "",
        count: int = 0,
    ) -> None:
        """Note what became of something."""
        del self._left[found.root, found.path]
        item = Item(kind, self.shown(found), outcome, target, note, found.size, count)
        self._report.items.append(item)

    def write(self, target: str, content: bytes) -> None:
        """Write a file that is new."""
        self.new.write(target, [content])

    def stream(
        self,
        kind: Kind,
        found: Found,
        target: str,
        conversion: Callable[[BinaryIO], Iterable[bytes]],
    ) -> bool:
        """Write what becomes of a file; that it is dealt with is still to be said. False where it
        cannot be read, and is left."""
        try:
            with self.opened(found) as file:
                self.new.write(target, conversion(file))
        except OSError as error:
            self.new.remove(target)
            self.leave(kind, found, f"it cannot be read: {reason(error)}")
            return False
        return True

    def shown(self, found: Found) -> str:
        """The path of a file for people: within the home where it is in there."""
        if found.root == "home":
            return found.path
        inside = self._source.inside
        return f"{inside}/{found.path}" if inside else str(self._path(found))

    def _copy(
        self,
        kind: Kind,
        found: Found,
        outcome: Outcome,
        copy: str,
        target: str = "",
        note: str = "",
        count: int = 0,
    ) -> None:
        try:
            with self.opened(found) as file:
                before = os.fstat(file.fileno())
                self.new.copy(copy, file)
                after = os.fstat(file.fileno())
        except OSError as error:
            self.new.remove(copy)
            self.leave(kind, found, f"it cannot be read: {reason(error)}")
            return
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            self._report.ask(f"{self.shown(found)}: {_CHANGED}.")
        self.done(kind, found, outcome, target or copy, note, count)

    def _original(self, found: Found) -> str:
        if found.root == "workspace" and self._source.inside:
            return f"{self._report.originals}/home/{self._source.inside}/{found.path}"
        return f"{self._report.originals}/{found.root}/{found.path}"

    def _path(self, found: Found) -> Path:
        base = self._source.home if found.root == "home" else self._source.workspace
        assert base is not None  # nothing was found in a workspace that is not there
        return base / found.path

    def _everything(self) -> Iterator[Found]:
        """What comes twice, as the workspace holds the home, is the workspace's."""
        source = self._source
        yield from walk(source.home, "home", lambda path: source.whole and path == source.inside)
        if source.workspace is not None:
            skip = (lambda _: False) if source.whole else _is_no_part
            yield from walk(source.workspace, "workspace", skip)


def _is_no_part(path: str) -> bool:
    """Whether something in a workspace is not nanobot's own."""
    return path.partition("/")[0] not in _PARTS and path not in (".nanobot", WORKSPACE_ID)
