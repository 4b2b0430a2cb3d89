"""Mounts inside the sandbox, by descriptor: what was looked at is what is mounted on, whatever
another process renames meanwhile."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nanobot.security.confine import folders, kernel
from nanobot.security.confine.layout import Layout

_CLONE, _CLOSE_ON_EXEC = 1, os.O_CLOEXEC
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_FROM_EMPTY, _TO_EMPTY = 0x4, 0x40
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 0x1, 0x2, 0x4, 0x8
_HERE = -100


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def hold(tree: str, layout: Layout) -> None:
    """Hold fast what the layout says. Raises `Refused` and `OSError`."""
    root = os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in layout.pinned:
            with folders.at(root, path) as (target, _):
                _clone_onto(target, target, 0)
        for path in layout.locked:
            with folders.at(root, path) as (target, _):
                _clone_onto(target, target, _READ_ONLY)
        for path in layout.hidden:
            with folders.at(root, path) as (target, status):
                _cover(target, stat.S_ISDIR(status.st_mode))
    finally:
        os.close(root)


def cover(path: str) -> None:
    """Put nothing in the place of what stands at an absolute path; where nothing does, it stays so.
    Raises `OSError`."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _cover(descriptor, stat.S_ISDIR(os.fstat(descriptor).st_mode))
        finally:
            os.close(descriptor)


def freeze(path: str) -> None:
    """Make what is mounted at an absolute path, and all that is mounted below, read-only."""
    wanted = _Attributes(set=_READ_ONLY)
    size = ctypes.sizeof(wanted)
    kernel.call("mount_setattr", _HERE, path.encode(), _RECURSIVE, wanted, size)


def _cover(target: int, folder: bool) -> None:
    if not folder:
        with _closing(os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)) as nothing:
            _clone_onto(nothing, target, _READ_ONLY | _NO_DEVICES)
        return
    create, in_kilobytes = 6, b"4"
    with _closing(kernel.call("fsopen", b"tmpfs", 1)) as system:
        kernel.call("fsconfig", system, 1, b"size", in_kilobytes + b"k", 0)
        kernel.call("fsconfig", system, create, None, None, 0)
        flags = _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS
        with _closing(kernel.call("fsmount", system, 1, flags)) as empty:
            _move(empty, target)


def _clone_onto(source: int, target: int, attributes: int) -> None:
    flags = _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH | _RECURSIVE
    with _closing(kernel.call("open_tree", source, b"", flags)) as tree:
        if attributes:
            wanted = _Attributes(set=attributes)
            size = ctypes.sizeof(wanted)
            kernel.call("mount_setattr", tree, b"", _EMPTY_PATH | _RECURSIVE, wanted, size)
        _move(tree, target)


def _move(tree: int, target: int) -> None:
    kernel.call("move_mount", tree, b"", target, b"", _FROM_EMPTY | _TO_EMPTY)


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
