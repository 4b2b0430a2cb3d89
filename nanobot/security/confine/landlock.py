"""Landlock: files that are not granted cannot be opened, made, renamed or removed.

A grant holds for a folder and all below it, and nothing can be taken from it again. So what must be
held fast is left out: folders above it are granted entry by entry, and can take no new ones.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from nanobot.security.confine import DEVICES, Refused, kernel

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE = 1 << 14
_MAKE_DEVICES = 1 << 6 | 1 << 11
_USE_DEVICES = 1 << 15
_OLDEST = 3
"""Earlier ones let any file be cut short (Linux before 6.2)."""

_RIGHTS = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights to files that a version knows; later ones know no more."""

_LOOK = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _USE_DEVICES
_NETWORK, _SCOPES = 0b11, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """What the kernel has of it; 0 where there is none."""
    try:
        return kernel.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def lack(version: int) -> str:
    """Why a version is not used; empty for one that is."""
    needed = "Linux 6.2 or newer, with `landlock` in its lsm list"
    if not version:
        return f"this kernel has no Landlock ({needed})"
    if version < _OLDEST:
        return f"Landlock is too old in this kernel: version {version} of {_OLDEST} ({needed})"
    return ""


class Layout(NamedTuple):
    """What of a folder is held fast while a command may write in it, as paths in it, upper ones
    first. What is `locked` cannot be changed, and what is `hidden` cannot be seen either. All
    folders above are `pinned`: they cannot be renamed or replaced, for whoever moves a folder away
    can put another one, with whatever in it, in its place."""

    pinned: tuple[str, ...]
    locked: tuple[str, ...]
    hidden: tuple[str, ...]

    @classmethod
    def of(cls, locked: Iterable[str], hidden: Iterable[str]) -> Layout:
        """What to hold fast for these. What lies below something hidden needs nothing more, nor
        does what is locked below something locked."""
        out_of_sight = {path.rstrip("/") for path in hidden}
        out_of_sight = {path for path in out_of_sight if not _below(path, out_of_sight)}
        fast = {path.rstrip("/") for path in locked} - out_of_sight
        fast = {path for path in fast if not _below(path, fast | out_of_sight)}
        special = out_of_sight | fast
        above = {folder for path in special for folder in parents(path)} - special
        inner = {folder for folder in above if not _below(folder, fast)}
        return cls(*(tuple(sorted(one)) for one in (inner, fast, out_of_sight)))


def parents(path: str) -> list[str]:
    """The folders above a path: `a` and `a/b` for `a/b/c`."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _below(path: str, tops: set[str]) -> bool:
    return any(parent in tops for parent in parents(path))


class Grants:
    """What a command gets, before it is restricted to that."""

    def __init__(self) -> None:
        self.version = version()
        if problem := lack(self.version):
            raise Refused(problem)
        self._all = _RIGHTS[max(known for known in _RIGHTS if known <= self.version)]
        ruleset = _Ruleset(
            files=self._all,
            network=_NETWORK if self.version >= 4 else 0,
            scopes=_SCOPES if self.version >= 6 else 0,
        )
        size = 8 if self.version < 4 else 16 if self.version < 6 else 24
        self._ruleset = kernel.call("landlock_create_ruleset", ruleset, size, 0)

    def readable(self, paths: Iterable[str]) -> None:
        """Grant to read and to execute these and all below them, as far as they exist."""
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            self._grant(descriptor, _LOOK)

    def devices(self) -> None:
        """Grant those that hold nothing."""
        for name in DEVICES:
            self._grant(os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC), _READ | _WRITE)

    def writable(self, tree: str, layout: Layout) -> None:
        """Grant everything in this folder but to change what the layout holds fast."""
        root = os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if not layout.locked:
            self._grant(root, self._all & ~_MAKE_DEVICES & ~_USE_DEVICES)
            return
        self._grant(os.dup(root), _LOOK)
        kept = {*layout.pinned, *layout.locked}
        for folder in ("", *layout.pinned):
            prefix = f"{folder}/" if folder else ""
            with (
                kernel.closing(
                    kernel.opened(root, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
                ) as listed,
                os.scandir(listed) as entries,
            ):
                names = [entry.name for entry in entries if not entry.is_symlink()]
            for path in (f"{prefix}{name}" for name in names):
                if path not in kept:
                    self._grant_at(root, path, self._all & ~_MAKE_DEVICES & ~_USE_DEVICES)
        for path in layout.locked:  # refuses a link: what it leads to would be another file
            self._grant_at(root, path, _LOOK)
        os.close(root)

    def enter(self) -> None:
        """Be restricted to what was granted, from now on and with all that is started."""
        kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
        kernel.call("landlock_restrict_self", self._ruleset, 0)
        os.close(self._ruleset)

    def _grant_at(self, root: int, path: str, rights: int) -> None:
        with kernel.at(root, path) as (descriptor, _):
            self._grant(os.dup(descriptor), rights)

    def _grant(self, descriptor: int, rights: int) -> None:
        """Closes the descriptor. One that is no file of a disk (a pipe) is passed over."""
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        try:
            beneath = _Beneath(rights=rights & self._all, folder=descriptor)
            kernel.call("landlock_add_rule", self._ruleset, 1, beneath, 0)
        except OSError as error:
            if error.errno != errno.EBADFD:
                raise
        finally:
            os.close(descriptor)
