"""What a process gives up before it becomes the command: capabilities, and resources."""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress

from nanobot.security.confine import kernel
from nanobot.security.confine.spec import Limits, Refused

_MEGABYTE = 1024 * 1024
_OPEN_FILES = 4_096
_VERSION = 0x20080522
_HIGHEST_CAPABILITY = 63
_NICE = 5


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int32))


class _Sets(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint32 * 6),)


def give_up_capabilities() -> None:
    """Have none, and get none back from any program. Raises `Refused` where that cannot be."""
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    with suppress(OSError):  # a kernel without ambient ones
        clear_all = 4
        kernel.prctl(kernel.AMBIENT, clear_all)
    for capability in range(_HIGHEST_CAPABILITY + 1):
        try:
            kernel.prctl(kernel.DROP_FROM_BOUNDING_SET, capability)
        except OSError:
            if os.geteuid() == 0 and _bounded_by(capability):
                raise Refused("capabilities cannot be given up here") from None
    kernel.call("capset", _Header(version=_VERSION), _Sets())


def _bounded_by(capability: int) -> bool:
    read = 23
    try:
        return kernel.prctl(read, capability) == 1
    except OSError:
        return False  # no such capability


def limit(limits: Limits, processes: int) -> None:
    """Limit what each process can use. `processes` are those of this user in this namespace, with
    all their threads, or 0 for no limit of that kind."""
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_DATA, limits.memory_megabytes * _MEGABYTE)
    _set(resource.RLIMIT_FSIZE, limits.file_megabytes * _MEGABYTE)
    _set(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _set(resource.RLIMIT_MSGQUEUE, 0)
    if processes:
        _set(resource.RLIMIT_NPROC, processes)


def yield_to_others() -> None:
    """Be slower than the rest of the machine, and the first to be killed where memory runs out."""
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def _set(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def threads_of_user() -> int:
    """How many threads this user has on the whole machine, as far as can be seen."""
    count = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.isdecimal() and entry.stat().st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count
