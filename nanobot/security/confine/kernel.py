"""System calls without a Python function, and opening files without following links."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from nanobot.security.confine import ConfineRefused

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

SECCOMP = 22
NO_NEW_PRIVILEGES = 38
CHILD_SUBREAPER = 36
DIE_WITH_PARENT = 1
DROP_FROM_BOUNDING_SET = 24
AMBIENT = 47

_CAPSET = {"x86_64": 126, "aarch64": 91}
_NUMBERS = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
"""Recent calls have the same number on every machine."""


def call(name: str, *arguments: int | bytes | None) -> int:
    """Make a system call. Texts and structures are bytes, passed by address. Raise `OSError`."""
    number = _CAPSET[os.uname().machine] if name == "capset" else _NUMBERS[name]
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *passed), name)


def prctl(option: int, *arguments: int) -> int:
    """Call `prctl(2)`. Raise `OSError`."""
    passed = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _check(_libc.prctl(ctypes.c_int(option), *passed), f"prctl {option}")


def unmount(path: str) -> None:
    """Unmount `path` lazily: its names at once, and open files when they are closed."""
    detach = 2
    _check(_libc.umount2(os.fsencode(path), detach), path)


def inotify() -> int:
    """Return an inotify descriptor, or -1 if there are too many."""
    return int(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


def watch(inotify: int, folder: int, events: int) -> int:
    """Watch an open folder for `events` and return the number of the watch. Raise `OSError`."""
    path = b"/proc/self/fd/%d" % folder
    return _check(_libc.inotify_add_watch(inotify, path, events), "inotify_add_watch")


def is_memory(path: str) -> bool:
    """Check whether files at `path` are in memory (tmpfs)."""
    answer, tmpfs = ctypes.create_string_buffer(512), 0x01021994
    failed = _libc.statfs(os.fsencode(path), answer)
    return not failed and ctypes.c_long.from_buffer(answer).value == tmpfs


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


_NO_LINKS, _BENEATH = 0x04, 0x08
_NAMES_AT_ONCE = 15
"""This many names of maximum length fit one kernel path."""


def open_below(root: int, path: str, flags: int = os.O_PATH) -> int:
    """Open `path` below the folder `root`, at any depth. Raise `OSError` if it is missing or a
    folder on the way is a link. With O_PATH, a final link itself is opened."""
    descriptor, names = os.dup(root), path.split("/")
    for start in range(0, len(names), _NAMES_AT_ONCE):
        is_last = start + _NAMES_AT_ONCE >= len(names)
        wanted = (flags if is_last else os.O_PATH) | os.O_NOFOLLOW | os.O_CLOEXEC
        how = struct.pack("=3Q", wanted, 0, _NO_LINKS | _BENEATH)  # open_how
        piece = os.fsencode("/".join(names[start : start + _NAMES_AT_ONCE]))
        try:
            inner = call("openat2", descriptor, piece, how, len(how))
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


@contextmanager
def at(root: int, path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Yield a descriptor (O_PATH) of `path` and its status. Raise `ConfineRefused` for a link, and
    `FileNotFoundError`."""
    try:
        descriptor = open_below(root, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfineRefused(f"cannot protect {path}: {error.strerror}") from error
    with closing(descriptor):
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            raise ConfineRefused(
                f"{path} is a link, which can't be protected. Replace it with its target"
            )
        yield descriptor, status


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close the descriptor at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
