"""Watcher process outside a sandbox, which cleans up after any end of its command.

It has its own session, so that killing the command does not kill it. It kills the command if all
its processes together use too much, if nanobot is gone, or if a protected file was replaced,
because the new one would be unprotected.

Memory includes the processes, the folders in memory, and the kernel's share: page tables, stacks,
and buffers of sockets and pipes. The kernel does not report the owner of a buffer, so each socket
and open file counts with its default maximum. The filter rejects resources that cannot be counted
(System V segments)."""

from __future__ import annotations

import _thread
import fcntl
import json
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from nanobot.security.confine import MEMORY_FOLDERS, Spec, kernel
from nanobot.security.confine.tree import ENDING, REPLACED, TreeWatch

_QUICK, _SLOW = 0.1, 1.0
_YOUNG = 300
"""Number of quick checks before the interval becomes longer."""

_SWITCH = 0.0005
"""Seconds after which one thread yields to the other."""

_UNCOUNTED = "its resource use can't be measured"

_MOST_NAMED = 20
"""Renamed files that are reported one by one."""

_LINGER = 5
"""Milliseconds between two rounds of killing."""

_WRITE_MILLISECONDS = 1_000
"""Milliseconds to wait for a reader of a report."""

_BYTES_OF_A_FILE = 16 * 1024
"""Disks usually have one inode for this many bytes. Both are kept free in this ratio."""


Room = tuple[int, int]
"""Free space of a disk: bytes and inodes."""


class Watcher:
    """Created by the process that becomes the command. So usage and replacements are measured from
    the state before the watcher started, which may be late."""

    def __init__(self, spec: Spec, triggers: TreeWatch | None) -> None:
        self._spec, self._triggers = spec, triggers
        self._process, owner = os.getpid(), os.getppid()
        # Descriptors that are readable when the command or nanobot is gone.
        self._gone, self._owner_gone = os.pidfd_open(self._process), os.pidfd_open(owner)
        self._usage = ProcessUsage(spec, self._process)
        self._identities, self._free = identify_protected(spec), measure_free_space(spec)

    def close(self) -> None:
        """Close this process's descriptors. The watcher has its own."""
        os.close(self._gone)
        os.close(self._owner_gone)

    def watch(self, inside: int) -> None:
        """Watch until the command is gone, then clean up. Report problems on standard error.
        `inside` is a pipe with the first process inside bubblewrap, or -1."""
        first = open_first_process(inside)
        reason = self._wait_for_end()
        kill_session(self._process)
        if first >= 0:
            # The other processes inside may outlive the command briefly and continue to work.
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(first, signal.SIGKILL)
            gone = select.poll()
            gone.register(first, select.POLLIN)
            gone.poll()
        self._usage.end()
        if reason:
            write_report(f"stopped: {reason}")
        renamed = [*self._triggers.disable_triggers()] if self._triggers else []
        for old, new in renamed[:_MOST_NAMED]:
            write_report(f"{old!r} was created by this command and has been renamed to {new!r}")
        if len(renamed) > _MOST_NAMED:
            write_report(f"{len(renamed) - _MOST_NAMED} more files were renamed")
        if renamed:
            write_report(
                "programs outside the sandbox could run such files. To create them, use write_file"
            )
        if self._spec.temporary:
            import shutil

            shutil.rmtree(self._spec.temporary, ignore_errors=True)

    def _wait_for_end(self) -> str:
        """Return why the command is ended, or an empty text if it ended by itself. Counting takes
        long with many processes, so another thread counts, and new triggers are noticed at once."""
        triggers = self._triggers
        counted, tells = os.pipe()
        ending, reasons = self._build_poll(counted), list[str]()
        sys.setswitchinterval(_SWITCH)
        try:
            _thread.start_new_thread(self._count, (tells, reasons))
        except RuntimeError:  # no other thread can count
            return _UNCOUNTED
        while True:
            ready = {descriptor for descriptor, _ in ending.poll(_SLOW * 1_000)}
            if ready & {self._gone, self._owner_gone}:
                return "" if self._gone in ready else "nanobot has stopped"
            if triggers and (reason := triggers.check_events() or self._check_replacement()):
                return reason
            if counted in ready:
                return [*reasons, _UNCOUNTED][0]

    def _build_poll(self, counted: int) -> select.poll:
        appears = self._triggers.descriptor if self._triggers else -1
        ending = select.poll()
        for descriptor in (self._gone, self._owner_gone, counted, appears):
            if descriptor >= 0:
                ending.register(descriptor, select.POLLIN)
        return ending

    def _count(self, tells: int, reasons: list[str]) -> None:
        """Measure usage until it is too much, then report it by closing a pipe."""
        looks = 0
        try:
            while True:
                threads, reason = self._usage.measure()
                if reason := reason or self._check_disks() or self._check_replacement():
                    reasons.append(reason)
                    return
                busy = threads > self._spec.processes // 4
                looks += 1
                time.sleep(_QUICK if busy or looks < _YOUNG else _SLOW)
        finally:
            os.close(tells)

    def _check_disks(self) -> str:
        reserve = self._spec.disk_megabytes * MEGABYTE
        kept = reserve, reserve // _BYTES_OF_A_FILE
        disks = zip(measure_free_space(self._spec), self._free, strict=False)
        full = any(is_used_up(left, before, kept) for left, before in disks)
        return "the disk is nearly full" if full else ""

    def _check_replacement(self) -> str:
        return REPLACED if self._identities != identify_protected(self._spec) else ""


def kill_session(session: int) -> None:
    """Kill a command's group and all others in its session until the session is empty. A command
    may create groups, but no session if nothing else confines it."""
    groups = {session}
    while groups:
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        groups = find_groups(session)
        if groups:  # some die slowly, more so when blocked on a disk
            select.poll().poll(_LINGER)


def open_first_process(info_fd: int) -> int:
    """Return a descriptor of the sandbox's first process, with which all others end, or -1.
    Bubblewrap reports it before it runs the command."""
    if info_fd < 0:
        return -1
    answer = b""
    while b"}" not in answer and (more := os.read(info_fd, 4_096)):
        answer += more
    os.close(info_fd)
    with suppress(OSError, ValueError, KeyError):
        process = int(json.loads(answer)["child-pid"])
        descriptor = os.pidfd_open(process)
        numbers = read_lines(f"/proc/{process}/status").get("NSpid", "").split()
        if len(numbers) > 1 and numbers[-1] == "1":
            return descriptor
        os.close(descriptor)  # not the first of its namespace: its number was reused
    return -1


def find_groups(session: int) -> set[int]:
    """Return the groups of this session with a live process."""
    found = set()
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if name.isdecimal():
                state, _, group, its_session = (
                    read_text(f"/proc/{name}/stat").rpartition(")")[2].split()[:4]
                )
                if int(its_session) == session and state not in {"Z", "X"}:
                    found.add(int(group))
    return found


def is_used_up(left: Room, before: Room, reserve: Room) -> bool:
    """Check whether less than a reserve is left, and the command took a good part of it."""
    both = zip(left, before, reserve, strict=True)
    return any(now < kept and had - now > kept // 4 for now, had, kept in both)


def measure_free_space(spec: Spec) -> list[Room]:
    """Return the free space of the disks. A file system without inode limit reports 0 each time."""
    found = []
    for path in filter(None, (spec.workspace, spec.temporary)):
        with suppress(OSError):
            disk = os.statvfs(path)
            found.append((disk.f_bavail * disk.f_frsize, disk.f_favail))
    return found


def identify_protected(spec: Spec) -> tuple[tuple[int, int], ...]:
    """Return the identities of the protected files. Landlock protects any file at the path."""
    if spec.kind != "bubblewrap":
        return ()
    found = []
    own = sorted(f"{spec.workspace}/{path}" for path in spec.read_only_paths)
    held = (f"{tree}/{path}" for tree, path, kind in spec.held if kind in ENDING)
    for path in (*own, *held):
        with suppress(OSError):
            status = os.lstat(path)
            found.append((status.st_dev, status.st_ino))
    return tuple(found)


def write_report(text: str) -> None:
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    with suppress(OSError):
        if any(event & select.POLLOUT for _, event in ready.poll(_WRITE_MILLISECONDS)):
            os.write(2, f"nanobot: {text}\n".encode(errors="backslashreplace"))


MEGABYTE = 1024 * 1024

_STACK, _FILE, _NAME = 16 * 1024, 4 * 1024, 1024
"""Kernel bytes for a thread, an open file (one end of a pipe) and a file in memory."""

_SEGMENT = "/dev/zero (deleted)"
"""Name in a process's maps of shared memory without a file."""

_ENTRY = struct.Struct("=qq")
_ENTRIES = 64


class Tally(NamedTuple):
    """Total usage of a command's processes. `memory` is in bytes."""

    threads: int
    memory: int
    files: int
    processes: tuple[int, ...]


class ProcessUsage:
    """Measures the usage of a command whose first process is `process`."""

    def __init__(self, spec: Spec, process: int) -> None:
        self._spec, self._process = spec, process
        self._most = spec.memory_megabytes * MEGABYTE
        self._buffer = 2 * int(read_text("/proc/sys/net/core/wmem_default"))
        self._tcp, self._shared = read_tcp_memory(), read_shared_memory()
        in_memory = spec.temporary and kernel.is_memory(spec.temporary)
        self._in_temporary = measure_files_in_memory(spec.temporary) if in_memory else -1

    def measure(self) -> tuple[int, str]:
        """Return the number of threads, and the reason to end the command, if any."""
        spec, tally = self._spec, tally_processes(self._process)
        memory = self._measure_memory(tally)
        if tally.threads > spec.processes + 4:  # bubblewrap's own
            return tally.threads, f"more than {spec.processes} processes"
        if memory > self._most:
            return tally.threads, f"more than {spec.memory_megabytes} MB of memory"
        all_of_them = self._record(memory)
        if sum(all_of_them) > self._most and memory == max(all_of_them):
            return tally.threads, (
                f"all commands together used more than {spec.memory_megabytes} MB of memory, "
                "and this one used the most"
            )
        return tally.threads, ""

    def end(self) -> None:
        self._record(0)

    def _measure_memory(self, tally: Tally) -> int:
        """Return the bytes in use. They are exact only near the limit, because that takes long."""
        kept = tally.files * _FILE + tally.threads * _STACK
        in_files = 0
        if self._spec.kind == "bubblewrap":
            sockets, tcp, in_files = measure_namespace(tally.processes)
            kept += sockets * self._buffer + (max(0, read_tcp_memory() - self._tcp) if tcp else 0)
        else:
            kept += count_sockets(tally.processes) * self._buffer
        if self._in_temporary >= 0:
            in_files = max(0, measure_files_in_memory(self._spec.temporary) - self._in_temporary)
        shared = max(0, read_shared_memory() - self._shared)
        if tally.memory + in_files + kept + shared <= self._most:
            return tally.memory + in_files + kept
        if any(maps_a_segment(process) for process in tally.processes):
            in_files = max(in_files, shared)
        return measure_proportional(tally.processes, in_files) + kept

    def _record(self, memory: int) -> list[int]:
        """Record this command's usage and return that of all. An entry is a watcher's process and
        bytes; it is free when that process is gone."""
        me, ledger = os.getpid(), self._spec.ledger
        if ledger < 0:
            return []
        fcntl.lockf(ledger, fcntl.LOCK_EX)
        try:
            entries = list(_ENTRY.iter_unpack(os.pread(ledger, _ENTRY.size * _ENTRIES, 0)))
            others = {
                at: (process, held)
                for at, (process, held) in enumerate(entries)
                if process not in (0, me) and os.path.exists(f"/proc/{process}/exe")  # no zombie
            }
            free = next(at for at in range(_ENTRIES + 1) if at not in others)
            mine = next((at for at, one in enumerate(entries) if one[0] == me), free)
            os.pwrite(ledger, _ENTRY.pack(me, memory), mine * _ENTRY.size)
        finally:
            fcntl.lockf(ledger, fcntl.LOCK_UN)
        return [memory, *(held for _, held in others.values())]


def tally_processes(process: int) -> Tally:
    threads, memory, files, processes = 0, 0, 0, []
    for found in walk_descendants(process):
        with suppress(OSError, ValueError):
            status = read_numbers(f"/proc/{found}/status")
            threads += status.get("Threads", 0)
            kept = (status.get(name, 0) for name in ("RssAnon", "RssShmem", "VmPTE"))
            memory += sum(kept) * 1024
            processes.append(found)
            files += len(os.listdir(f"/proc/{found}/fd"))
    return Tally(threads, memory, files, tuple(processes))


def walk_descendants(process: int) -> Iterator[int]:
    waiting = [process]
    while waiting:
        one = waiting.pop()
        yield one
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                children = read_text(f"/proc/{one}/task/{thread}/children")
                waiting += map(int, children.split())


def measure_files_in_memory(folder: str) -> int:
    disk = os.statvfs(folder)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * _NAME


def measure_namespace(processes: tuple[int, ...]) -> tuple[int, bool, int]:
    """Return the number of sockets in a sandbox (including those in transit), whether any is TCP,
    and the bytes in its temporary folders, which are memory."""
    for process in reversed(processes):
        inside = f"/proc/{process}"
        with suppress(OSError, ValueError, IndexError):
            if os.path.samestat(os.stat(f"{inside}/root/"), os.stat("/")):
                continue  # bubblewrap's own process outside
            lines = read_lines(f"{inside}/net/sockstat")
            in_files = sum(
                measure_files_in_memory(f"{inside}/root{path}") for path in MEMORY_FOLDERS
            )
            return int(lines["sockets"].split()[1]), int(lines["TCP"].split()[1]) > 0, in_files
    return 0, False, 0


def count_sockets(processes: tuple[int, ...]) -> int:
    """Return the number of open sockets of these processes."""
    found = set()
    for process in processes:
        with suppress(OSError), os.scandir(f"/proc/{process}/fd") as files:
            for file in files:
                with suppress(OSError):
                    found.add(os.readlink(file.path))
    return sum(one.startswith("socket:") for one in found)


def maps_a_segment(process: int) -> bool:
    with suppress(OSError):
        return any(
            line.endswith(_SEGMENT) for line in read_text(f"/proc/{process}/maps").splitlines()
        )
    return False


def measure_proportional(processes: tuple[int, ...], in_files: int) -> int:
    """Return the bytes of memory. Shared memory counts once, including mapped files in memory."""
    own = shared = 0
    for process in processes:
        with suppress(OSError, ValueError):
            own += read_numbers(f"/proc/{process}/status").get("VmPTE", 0) * 1024
            rollup = read_numbers(f"/proc/{process}/smaps_rollup")
            own += rollup.get("Pss_Anon", 0) * 1024
            shared += rollup.get("Pss_Shmem", 0) * 1024
    return own + max(shared, in_files)


def read_shared_memory() -> int:
    """Return the bytes of shared memory and files in memory, system-wide."""
    return read_numbers("/proc/meminfo").get("Shmem", 0) * 1024


def read_tcp_memory() -> int:
    """Return the bytes in TCP buffers, system-wide."""
    pages = read_lines("/proc/net/sockstat").get("TCP", "mem 0").split()[-1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_lines(path: str) -> dict[str, str]:
    """Parse a file of lines such as `Threads: 4`."""
    parts = (line.partition(":") for line in read_text(path).splitlines())
    return {name: value.strip() for name, _, value in parts}


def read_numbers(path: str) -> dict[str, int]:
    """Parse the numbers in a file of lines such as `Threads: 4` or `RssAnon: 120 kB`."""
    values = ((name, value.split(maxsplit=1)[:1]) for name, value in read_lines(path).items())
    return {name: int(first[0]) for name, first in values if first and first[0].isdecimal()}
