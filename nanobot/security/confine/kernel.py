"""System calls that Python has no function for, and opening files without following links."""

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
"""Calls as new as these have one number on every machine."""


def call(name: str, *arguments: int | bytes | None) -> int:
    """Make a system call. Texts and structures are bytes, passed by their address. Raises
    `OSError`."""
    number = _CAPSET[os.uname().machine] if name == "capset" else _NUMBERS[name]
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *passed), name)


def prctl(option: int, *arguments: int) -> int:
    """`prctl(2)`. Raises `OSError`."""
    passed = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(ctypes.c_int(option), *passed), f"prctl {option}")


def unmount(path: str) -> None:
    """Take away what is mounted at `path`, now for names and later for what is in use."""
    detach = 2
    _checked(_libc.umount2(os.fsencode(path), detach), path)


def inotify() -> int:
    """A descriptor that tells of what happens in watched folders; -1 where there are too many."""
    return int(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


def watch(inotify: int, folder: int, events: int) -> int:
    """Have `inotify` tell of `events` in an open folder; the number of this watch. Raises
    `OSError`."""
    path = b"/proc/self/fd/%d" % folder
    return _checked(_libc.inotify_add_watch(inotify, path, events), "inotify_add_watch")


def is_memory(path: str) -> bool:
    """Whether files at `path` lie in memory (tmpfs)."""
    answer, tmpfs = ctypes.create_string_buffer(512), 0x01021994
    failed = _libc.statfs(os.fsencode(path), answer)
    return not failed and ctypes.c_long.from_buffer(answer).value == tmpfs


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


_NO_LINKS, _BENEATH = 0x04, 0x08
_NAMES_AT_ONCE = 15
"""So many names of the greatest length are one path that the kernel takes."""


def opened(root: int, path: str, flags: int = os.O_PATH) -> int:
    """Open what stands at `path` below the folder `root`, however deep. Raises `OSError` where
    nothing does, or where there is a link on the way; with O_PATH a link at the end is opened."""
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
    """What `opened` opens (O_PATH), and its status, for a while. Raises `ConfineRefused` for a
    link, and `FileNotFoundError`."""
    try:
        descriptor = opened(root, path)
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
    """Closes it in the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
