"""Folders that somebody else may be changing meanwhile: no link is ever followed in them.

A `Layout` is what of a folder is held fast while a command may write in it. A path that is `locked`
cannot be changed and one that is `hidden` cannot be seen either. All folders above such a path are
`pinned`: they cannot be renamed or replaced, for whoever moves a folder away can put another one,
with whatever in it, in its place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from nanobot.security.confine import autorun
from nanobot.security.confine.spec import Refused

DEEPEST = 150
"""Folders within folders that are open at the same time, one descriptor for each."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def opened(root: int, path: str) -> int:
    """A descriptor that names what stands at `path` below `root` (O_PATH). Raises `OSError` where
    nothing does, or where there is a link on the way; a link at the end is what is opened."""
    descriptor = os.dup(root)
    for name in path.split("/"):
        try:
            inner = os.open(name, _NAME, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


@contextmanager
def at(root: int, path: str) -> Iterator[tuple[int, os.stat_result]]:
    """What `opened` opens, and its status, for a while. Raises `Refused` for a link."""
    try:
        descriptor = opened(root, path)
    except OSError as error:
        raise Refused(f"cannot protect {path}: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            raise Refused(
                f"{path} is a link, and could not be protected: put what it leads to there"
            )
        yield descriptor, status
    finally:
        os.close(descriptor)


def ensure(root: int, path: str) -> None:
    """Have something stand at `path`, so that nobody else can put something there: an empty folder
    if it ends in `/`, or else an empty file. Raises `Refused`."""
    *above, last = path.rstrip("/").split("/")
    descriptor = os.dup(root)
    try:
        for name in above:
            descriptor = _into(descriptor, name)
        if path.endswith("/"):
            descriptor = _into(descriptor, last)
            return
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(last, flags, 0o600, dir_fd=descriptor))
    except OSError as error:
        raise Refused(f"cannot protect {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _into(folder: int, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
    inner = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return inner


class Trigger(NamedTuple):
    """Something of `autorun`'s list, or a bare repository, by the folder that it is. `mark` changes
    with whatever makes it another one."""

    path: str
    kind: autorun.Kind
    mark: str


Entered = Callable[[int, str], None]
"""Told of each folder before it is listed: its descriptor, and its path with a `/` at the end."""


def survey(
    tree: str,
    start: str = "",
    entered: Entered = lambda _, __: None,
    *,
    without: Collection[str] = (),
) -> list[Trigger]:
    """All that there is of that in the folder `start` of `tree` and below, `without` some paths."""
    found: list[Trigger] = []

    def note(descriptor: int, folder: str, name: str, kind: autorun.Kind) -> str:
        with suppress(FileNotFoundError):
            found.append(_trigger(descriptor, folder, name, kind))
        return name if kind == "late" else ""

    _walk(tree, start, without, entered, note)
    return found


def retire(
    tree: str, known: Collection[Trigger], *, git: bool, without: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Put what is not `known` in `tree` out of use, by another name; says which and what. With
    `git` repositories may be made."""
    renamed: list[tuple[str, str]] = []

    def rename(descriptor: int, folder: str, name: str, kind: autorun.Kind) -> str:
        if kind == "repository" and git:
            return ""
        with suppress(OSError):
            if _trigger(descriptor, folder, name, kind) in known:
                return name if kind == "late" else ""
            new = _renamed(descriptor, name)
            renamed.append((f"{folder}{name}", f"{folder}{new}"))
            return new  # there may be more of it inside
        return ""

    _walk(tree, "", without, lambda _, __: None, rename)
    return renamed


def _trigger(descriptor: int, folder: str, name: str, kind: autorun.Kind) -> Trigger:
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if kind == "repository" and name.casefold() != autorun.GIT:
        return Trigger(folder.rstrip("/") or name, kind, "")
    if kind == "setting" and stat.S_ISLNK(status.st_mode):
        kind = "late"  # what a link leads to cannot be held fast
    mark = {"late": f"{status.st_ino} {status.st_ctime_ns}", "repository": f"{status.st_ino}"}
    return Trigger(f"{folder}{name}", kind, mark.get(kind, ""))


def _renamed(folder: int, name: str) -> str:
    number = 1
    while True:
        new = autorun.unused(name, number)
        try:
            os.stat(new, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
            return new
        number += 1


Met = Callable[[int, str, str, autorun.Kind], str]
"""Told of each thing of that kind: its folder's descriptor and path, its name; returns the name of
the folder to go on in, or nothing."""


def _walk(tree: str, start: str, without: Collection[str], entered: Entered, met: Met) -> None:
    """Go through `start` and all below; what is gone or belongs to somebody else is passed over."""
    waiting = [start]

    def into(descriptor: int, folder: str, depth: int) -> None:
        try:
            with _unlocked(descriptor):
                entered(descriptor, folder)
                with os.scandir(descriptor) as entries:
                    found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
                if head := _head(found):
                    met(descriptor, folder, head, "repository")
                for name, is_folder in found.items():
                    if f"{folder}{name}" in without:
                        continue
                    kind = autorun.kind(folder, name)
                    inner = met(descriptor, folder, name, kind) if kind else name
                    if is_folder and inner and depth == DEEPEST:
                        waiting.append(f"{folder}{inner}")
                    elif is_folder and inner:
                        with suppress(OSError):
                            into(_listable(descriptor, inner), f"{folder}{inner}/", depth + 1)
        finally:
            os.close(descriptor)

    while waiting:
        path = waiting.pop()
        with suppress(OSError):
            into(_reached(tree, path), f"{path}/" if path else "", 0)


def _reached(tree: str, path: str) -> int:
    """Open a folder name by name, whatever modes those on the way have."""
    descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in filter(None, path.split("/")):
        try:
            with _unlocked(descriptor):
                inner = _listable(descriptor, name)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _head(found: dict[str, bool]) -> str:
    """The file by which git knows that a folder with these entries is a repository, if it is."""
    if not autorun.is_repository({name.casefold() for name in found}):
        return ""
    files = (name for name, is_folder in found.items() if not is_folder)
    return next((name for name in files if name.casefold() == "head"), "")


def _listable(parent: int, name: str) -> int:
    """Open a folder, also one that may not be listed: that hides nothing from who owns it."""
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        named = os.open(name, _NAME | os.O_DIRECTORY, dir_fd=parent)
    itself = f"/proc/self/fd/{named}"
    mode = stat.S_IMODE(os.fstat(named).st_mode)
    try:
        os.chmod(itself, mode | stat.S_IRWXU)
        try:
            return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.chmod(itself, mode)
    finally:
        os.close(named)


@contextmanager
def _unlocked(folder: int) -> Iterator[None]:
    """Let a folder's owner look for names in it and change them, for a while."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        yield
        return
    with suppress(OSError):  # somebody else's
        os.fchmod(folder, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        with suppress(OSError):
            os.fchmod(folder, mode)


class Layout(NamedTuple):
    """Paths relative to the folder, upper ones first; the folder itself is in none."""

    pinned: tuple[str, ...]
    locked: tuple[str, ...]
    hidden: tuple[str, ...]


def layout(locked: Iterable[str], hidden: Iterable[str]) -> Layout:
    """What to hold fast for these. What lies below something hidden needs nothing more, nor does
    what is locked below something locked."""
    out_of_sight = _topmost({path.rstrip("/") for path in hidden}, set())
    fast = _topmost({path.rstrip("/") for path in locked}, out_of_sight)
    special = out_of_sight | fast
    above = {folder for path in special for folder in parents(path)}
    inner = {folder for folder in above if folder not in special and not _below(folder, fast)}
    return Layout(_ordered(inner), _ordered(fast), _ordered(out_of_sight))


def parents(path: str) -> list[str]:
    """The folders above a path: `a` and `a/b` for `a/b/c`."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _topmost(paths: set[str], others: set[str]) -> set[str]:
    covering = paths | others
    return {path for path in paths - others if not _below(path, covering)}


def _below(path: str, tops: set[str]) -> bool:
    return any(parent in tops for parent in parents(path))


def _ordered(paths: set[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=lambda path: (path.count("/"), path)))
