"""System calls that Python has no function for."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

SECCOMP = 22
NO_NEW_PRIVILEGES = 38
CHILD_SUBREAPER = 36
DIE_WITH_PARENT = 1
DROP_FROM_BOUNDING_SET = 24
AMBIENT = 47

_NUMBERS = {
    "x86_64": {"capset": 126},
    "aarch64": {"capset": 91},
}
_EVERYWHERE = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
"""Calls as new as these have one number on every machine."""


def call(name: str, *arguments: int | bytes | ctypes.Structure | None) -> int:
    """Make a system call. Structures are passed by their address. Raises `OSError`."""
    number = _EVERYWHERE.get(name)
    if number is None:
        number = _NUMBERS[os.uname().machine][name]
    passed = [_passed(argument) for argument in arguments]
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


def _passed(argument: int | bytes | ctypes.Structure | None) -> object:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    return ctypes.c_void_p(None) if argument is None else ctypes.byref(argument)
