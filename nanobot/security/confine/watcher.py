"""Stays outside beside a command, and clears away what is left of it however it ends.

It is in a session of its own, so that who kills the command does not kill it. It ends the command
where all its processes together take too much, where nanobot is gone, and where a file that it must
not change was replaced: the new one would no longer be protected.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from contextlib import suppress
from typing import NamedTuple

from nanobot.security.confine.noticing import Noticing
from nanobot.security.confine.spec import Spec
from nanobot.security.confine.usage import MEGABYTE, Usage

_QUICK, _SLOW = 0.1, 1.0
_YOUNG = 300
"""Looks at the short interval before one is taken at leisure."""

_LINGER = 5
"""Milliseconds between two rounds of killing."""

_PATIENCE = 1_000
"""Milliseconds to wait for somebody to read what there is to say."""

_BYTES_OF_A_FILE = 16 * 1024
"""For as many bytes a disk is mostly made to hold one file: so much of both is kept free."""


class Room(NamedTuple):
    """What is free of a disk: bytes, and files that it can still hold."""

    bytes: int
    files: int

    def is_used_up(self, before: Room, reserve: Room) -> bool:
        """Whether less than a reserve is left, and a good part of that was taken since."""
        both = zip(self, before, reserve, strict=True)
        return any(left < kept and had - left > kept // 4 for left, had, kept in both)


class Watched(NamedTuple):
    """The command's process and nanobot's, by id and by descriptor (readable when one is gone).
    From `inside`, a pipe, comes which process bubblewrap has started as the first one in there; -1
    without bubblewrap."""

    process: int
    process_gone: int
    owner_gone: int
    inside: int = -1


class Before(NamedTuple):
    """How things are before a command starts. What it uses, fills and replaces is told from that,
    so it is taken before there is a watcher, which may be late."""

    usage: Usage
    identities: tuple[tuple[int, int], ...]
    free: list[Room]

    @classmethod
    def of(cls, spec: Spec) -> Before:
        """Called by the process that becomes the command."""
        return cls(Usage(spec, os.getpid()), _identities(spec), _free(spec))


def watch(spec: Spec, watched: Watched, noticing: Noticing | None, before: Before) -> None:
    """Until the command is gone, then clear up. Says on standard error what went wrong."""
    usage = before.usage
    first = _first_inside(watched.inside)
    reason = _until_the_end(spec, watched, noticing, before)
    _end(watched.process)
    if first >= 0:
        _end_inside(first)
    usage.end()
    if reason:
        _say(f"stopped: {reason}")
    for old, new in noticing.retire() if noticing else ():
        _say(f"{old!r} was made while this command ran and is now called {new!r}")
    if spec.temporary:
        _remove(spec.temporary)


def _end(session: int) -> None:
    """Kill a command's group, and all others in its session, until there are none: a command may
    make groups, and where nothing else holds it, it can make no session."""
    groups = {session}
    while groups:
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        groups = _groups(session)
        if groups:  # some take a moment to die, and what hangs in a disk takes longer
            select.poll().poll(_LINGER)


def _first_inside(told: int) -> int:
    """A descriptor of the first process in the sandbox, with which all others in there end; -1
    where there is none, or none any more. Bubblewrap tells before it runs the command."""
    if told < 0:
        return -1
    answer = b""
    while b"}" not in answer and (more := os.read(told, 4_096)):
        answer += more
    os.close(told)
    with suppress(OSError, ValueError, KeyError):
        process = int(json.loads(answer)["child-pid"])
        descriptor = os.pidfd_open(process)
        if _is_first(process):
            return descriptor
        os.close(descriptor)
    return -1


def _is_first(process: int) -> bool:
    """Whether it is the first of its namespace; else the number is somebody else's by now."""
    with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
        numbers = next((line.split() for line in file if line.startswith("NSpid:")), [])
    return len(numbers) > 2 and numbers[-1] == "1"


def _end_inside(first: int) -> None:
    """Kill the first process of a sandbox; it is gone when all others in there are. They may
    outlive the command by a moment, in which they would go on working."""
    with suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(first, signal.SIGKILL)
    gone = select.poll()
    gone.register(first, select.POLLIN)
    gone.poll()


def _groups(session: int) -> set[int]:
    """The groups in which somebody of this session is alive."""
    found = set()
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if name.isdecimal():
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, _, group, its_session = file.read().rpartition(")")[2].split()[:4]
                if int(its_session) == session and state not in {"Z", "X"}:
                    found.add(int(group))
    return found


def _until_the_end(spec: Spec, watched: Watched, noticing: Noticing | None, before: Before) -> str:
    ending = select.poll()
    ending.register(watched.process_gone, select.POLLIN)
    ending.register(watched.owner_gone, select.POLLIN)
    if noticing and noticing.descriptor >= 0:
        ending.register(noticing.descriptor, select.POLLIN)
    looks = 0
    while True:
        threads, reason = before.usage.looked_at()
        reason = reason or _filled(spec, before.free)
        if not reason and before.identities != _identities(spec):
            reason = "a protected file was replaced while it ran"
        if reason:
            return reason
        busy = threads > spec.limits.processes // 4
        looks += 1
        interval = _QUICK if busy or looks < _YOUNG else _SLOW
        next_look = time.monotonic() + interval
        while (left := next_look - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in ending.poll(left * 1_000)}
            if ready & {watched.process_gone, watched.owner_gone}:
                return "" if watched.process_gone in ready else "nanobot is gone"
            if noticing and (reason := noticing.appeared()):
                return reason


def _filled(spec: Spec, before: list[Room]) -> str:
    reserve = spec.limits.disk_megabytes * MEGABYTE
    kept = Room(reserve, reserve // _BYTES_OF_A_FILE)
    now = _free(spec)
    filled = any(left.is_used_up(had, kept) for left, had in zip(now, before, strict=True))
    return "the disk is nearly full" if filled else ""


def _free(spec: Spec) -> list[Room]:
    return [_room(path) for path in (spec.workspace, spec.temporary) if path]


def _room(path: str) -> Room:
    """A file system that can have any number of files says that it has none, before and after."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return Room(0, 0)
    return Room(disk.f_bavail * disk.f_frsize, disk.f_favail)


def _identities(spec: Spec) -> tuple[tuple[int, int], ...]:
    """Which files and folders the protected paths are. Landlock protects whatever is there."""
    if spec.kind != "bubblewrap":
        return ()
    found = []
    own = sorted(f"{spec.workspace}/{path}" for path in spec.guarded)
    for path in (*own, *(f"{tree}/{path}" for tree, path, _ in spec.held)):
        with suppress(OSError):
            status = os.lstat(path)
            found.append((status.st_dev, status.st_ino))
    return tuple(found)


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    with suppress(OSError):
        if any(event & select.POLLOUT for _, event in ready.poll(_PATIENCE)):
            os.write(2, f"nanobot: {text}\n".encode(errors="backslashreplace"))
