"""Stays outside beside a command, and clears away what is left of it however it ends.

It is in a session of its own, so that who kills the command does not kill it. It ends the command
where all its processes together take too much, where nanobot is gone, and where a file that it must
not change was replaced: the new one would no longer be protected.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from nanobot.security.confine.bubblewrap import MEMORY_FOLDERS
from nanobot.security.confine.noticing import Noticing
from nanobot.security.confine.spec import Spec

_QUICK, _SLOW = 0.1, 1.0
_YOUNG = 300
"""Looks at the short interval before one is taken at leisure."""

_LINGER = 5
"""Milliseconds between two rounds of killing."""

_PATIENCE = 1_000
"""Milliseconds to wait for somebody to read what there is to say."""

_MEGABYTE = 1024 * 1024


class Watched(NamedTuple):
    """The command's process and nanobot's, by id and by descriptor (readable when one is gone)."""

    process: int
    process_gone: int
    owner_gone: int


class Tally(NamedTuple):
    """What the processes of a command have together; `memory` in bytes."""

    threads: int
    memory: int
    processes: tuple[int, ...]


def watch(spec: Spec, watched: Watched, noticing: Noticing | None) -> None:
    """Until the command is gone, then clear up. Says on standard error what went wrong."""
    reason = _until_the_end(spec, watched, noticing)
    _end(watched.process)
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


def _until_the_end(spec: Spec, watched: Watched, noticing: Noticing | None) -> str:
    ending = select.poll()
    ending.register(watched.process_gone, select.POLLIN)
    ending.register(watched.owner_gone, select.POLLIN)
    if noticing and noticing.descriptor >= 0:
        ending.register(noticing.descriptor, select.POLLIN)
    identities = _identities(spec)
    free = _free(spec.workspace)
    looks = 0
    while True:
        tally = _tally(watched.process)
        reason = _excess(spec, tally) or _filled(spec, free)
        if not reason and identities != _identities(spec):
            reason = "a protected file was replaced while it ran"
        if reason:
            return reason
        busy = tally.threads > spec.limits.processes // 4
        looks += 1
        interval = _QUICK if busy or looks < _YOUNG else _SLOW
        next_look = time.monotonic() + interval
        while (left := next_look - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in ending.poll(left * 1_000)}
            if ready & {watched.process_gone, watched.owner_gone}:
                return "" if watched.process_gone in ready else "nanobot is gone"
            if noticing and (reason := noticing.appeared()):
                return reason


def _excess(spec: Spec, tally: Tally) -> str:
    limits = spec.limits
    if tally.threads > limits.processes + 4:  # bubblewrap's own
        return f"more than {limits.processes} processes"
    most = limits.memory_megabytes * _MEGABYTE
    in_files = _in_memory_files(tally.processes) if spec.kind == "bubblewrap" else 0
    if tally.memory + in_files > most and _proportional(tally.processes, in_files) > most:
        return f"more than {limits.memory_megabytes} MB of memory"
    return ""


def _filled(spec: Spec, before: int) -> str:
    reserve = spec.limits.disk_megabytes * _MEGABYTE
    left = _free(spec.workspace)
    if left < reserve and before - left > reserve // 4:
        return "the disk is nearly full"
    return ""


def _free(path: str) -> int:
    try:
        disk = os.statvfs(path)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


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


def _tally(process: int) -> Tally:
    threads, memory, processes = 0, 0, []
    for found in _family(process):
        with suppress(OSError, ValueError):
            status = _fields(f"/proc/{found}/status")
            threads += status.get("Threads", 0)
            memory += (status.get("RssAnon", 0) + status.get("RssShmem", 0)) * 1024
            processes.append(found)
    return Tally(threads, memory, tuple(processes))


def _family(process: int) -> Iterator[int]:
    """A process and all that descend from it."""
    waiting = [process]
    while waiting:
        one = waiting.pop()
        yield one
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children", encoding="ascii") as children:
                    waiting += map(int, children.read().split())


def _in_memory_files(processes: tuple[int, ...]) -> int:
    """Bytes of what lies in a sandbox's temporary folders, which are memory, whoever wrote it."""
    for process in reversed(processes):
        with suppress(OSError):
            root = f"/proc/{process}/root"
            if os.path.samestat(os.stat(f"{root}/"), os.stat("/")):
                continue  # bubblewrap's own, outside or not yet inside
            disks = [os.statvfs(f"{root}{path}") for path in MEMORY_FOLDERS]
            return sum((disk.f_blocks - disk.f_bfree) * disk.f_frsize for disk in disks)
    return 0


def _proportional(processes: tuple[int, ...], in_files: int) -> int:
    """Bytes of memory, what is shared counted once, and so what is in files and mapped, too."""
    own = shared = 0
    for process in processes:
        with suppress(OSError, ValueError):
            rollup = _fields(f"/proc/{process}/smaps_rollup")
            own += rollup.get("Pss_Anon", 0) * 1024
            shared += rollup.get("Pss_Shmem", 0) * 1024
    return own + max(shared, in_files)


def _fields(path: str) -> dict[str, int]:
    """The numbers in a file of lines such as `Threads: 4` or `RssAnon: 120 kB`."""
    found = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            first = value.split(maxsplit=1)[:1]
            if first and first[0].isdecimal():
                found[name] = int(first[0])
    return found


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    with suppress(OSError):
        if any(event & select.POLLOUT for _, event in ready.poll(_PATIENCE)):
            os.write(2, f"nanobot: {text}\n".encode(errors="backslashreplace"))
