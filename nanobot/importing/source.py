"""The home of the other program: where its parts lie, and reading them without ever changing it.

Links are not followed, save where the home or the workspace itself is one; pipes and devices are
never opened. What cannot be read is told about, and the rest goes on.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from nanobot.errors import NanobotError
from nanobot.importing.foreign import Fields, NotJson
from nanobot.tilde import expanded

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
