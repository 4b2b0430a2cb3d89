"""Folders that somebody else may be changing meanwhile: no link is ever followed in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nanobot.security.confine.spec import Refused

MASKED = ".git"
DEEPEST = 150
"""Folders within folders that are looked through; one descriptor is open for each."""

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


def repositories(tree: str) -> Iterator[str]:
    """The paths in `tree` of all repositories, in the order in which they are found: what is called
    `.git`, and folders that git takes for one though they are called otherwise."""
    found: list[str] = []
    with suppress(OSError):
        _walk(_open(tree), "", 0, lambda _, folder, name: found.append(_shown(folder, name)))
    yield from found


def retire(tree: str, known: set[str]) -> list[tuple[str, str]]:
    """Put each repository in `tree` that is not `known` out of use, by another name for its `.git`
    (`dot-git`) or its `HEAD` (`dot-HEAD`); says which and what."""
    renamed: list[tuple[str, str]] = []

    def rename(descriptor: int, folder: str, name: str) -> None:
        if _shown(folder, name) in known:
            return
        with suppress(OSError):
            renamed.append((f"{folder}{name}", f"{folder}{_renamed(descriptor, name)}"))

    with suppress(OSError):
        _walk(_open(tree), "", 0, rename)
    return renamed


def _shown(folder: str, name: str) -> str:
    """What is to be masked: a whole folder where `name` is its HEAD, save for the tree itself."""
    return f"{folder}{name}" if name.casefold() == MASKED else folder.rstrip("/") or name


def _renamed(folder: int, name: str) -> str:
    number = 1
    while True:
        new = f"dot-{name.lstrip('.')}" + (f"-{number}" if number > 1 else "")
        new = new.lower() if name.casefold() == MASKED else new
        try:
            os.stat(new, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
            return new
        number += 1


def _open(tree: str) -> int:
    return os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _walk(descriptor: int, folder: str, depth: int, visit: Callable[[int, str, str], None]) -> None:
    """Call `visit` with what makes a repository in this folder and below; closes the descriptor."""
    try:
        with _unlocked(descriptor):
            with os.scandir(descriptor) as entries:
                found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            if head := _head(found):
                visit(descriptor, folder, head)
            for name, is_folder in found.items():
                if name.casefold() == MASKED:
                    visit(descriptor, folder, name)
                elif is_folder and depth < DEEPEST:
                    with suppress(OSError):
                        inner = _listable(descriptor, name)
                        _walk(inner, f"{folder}{name}/", depth + 1, visit)
    finally:
        os.close(descriptor)


def _head(found: dict[str, bool]) -> str:
    """The file by which git knows that a folder with these entries is a repository, if it is."""
    names = {name.casefold() for name in found}
    if not ({"objects", "refs"} <= names or "commondir" in names):
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
