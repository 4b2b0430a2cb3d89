"""Stays outside beside a command, and clears away what is left of it however it ends.

It is in a session of its own, so that who kills the command does not kill it. It ends the command
where all its processes together take too much, where nanobot is gone, and where a file that it must
not change was replaced: the new one would no longer be protected.

It notices at once what a command, or anybody meanwhile, makes of `autorun`'s list (inotify). A
person can make a repository while a command runs, and it could have its say in that before the
person has typed the next word. So the first sign of one ends the command, be it gone again or not.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

from nanobot.security.confine import Spec, autorun, kernel
from nanobot.security.confine.autorun import Trigger
from nanobot.security.confine.usage import MEGABYTE, Usage

_MADE = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_FOLDER, _OVERFLOW = 0x40000000, 0x4000
_EVENT = struct.Struct("=iIII")
_AT_ONCE = 256 * 1024
_REPLACED = "a protected file was replaced while it ran"
_APPEARED = (
    "{!r} appeared, which programs outside run or obey by themselves (what needs it can be done in"
    " $TMPDIR; settings other than .git can be written with write_file)"
)

_LONGEST = 0.2
"""Seconds for what is known to have happened; where that takes longer, everything is looked at."""

_SHARE = 20
"""Where there are not enough watches, one part of time in so many goes into looking instead."""


class AutorunWatch:
    """Watches where a command can write. Made before it starts; `appeared` is asked while it runs,
    whenever `descriptor` is readable, and from time to time. `known` is what was there."""

    def __init__(self, spec: Spec) -> None:
        self._git, self._guarded = not spec.hide_git, spec.guarded
        self._watched: dict[int, tuple[str, str]] = {}
        self._blind = self._missed = False
        self._look_at = 0.0
        self.descriptor = kernel.inotify()
        self.known = {tree: set(self._survey(tree, "")) for tree in spec.trees}
        self._held = {(tree, path) for tree, path, _ in self.held()}

    def held(self) -> Iterator[tuple[str, str, str]]:
        """What no command may change, as `Spec.held`."""
        for tree, known in self.known.items():
            yield from ((tree, one.path, one.kind) for one in known if one.kind != "late")

    def retire(self) -> Iterator[tuple[str, str]]:
        """Put what is new out of use; says what it was called and is called."""
        for tree, known in self.known.items():
            yield from autorun.retire(tree, known, git=self._git, without=self._guarded)

    def appeared(self) -> str:
        """What ends the command, in words, or nothing."""
        begun = time.monotonic()
        if self._missed or (self._blind and begun >= self._look_at):
            self._missed = False
            for tree in self.known:
                if reason := self._new(tree, ""):
                    return reason
            self._look_at = time.monotonic() + (time.monotonic() - begun) * _SHARE
        until = time.monotonic() + _LONGEST
        for watch, mask, name in self._events():
            if mask & _OVERFLOW or time.monotonic() > until:
                self._missed = True
                return ""
            if watch in self._watched and (
                reason := self._looked_into(*self._watched[watch], name, bool(mask & _FOLDER))
            ):
                return reason
        return ""

    def _looked_into(self, tree: str, folder: str, name: str, is_folder: bool) -> str:
        """What has come up in a folder under a name."""
        kind, path = autorun.kind(folder, name), f"{folder}{name}"
        if path in self._guarded or (tree, path) in self._held:
            return ""
        if kind == "setting" or (kind == "repository" and not self._git):
            return _APPEARED.format(path)
        if name.casefold() in (*autorun.SHAPE, "head") and (reason := self._new(tree, folder)):
            return reason
        return self._new(tree, path) if is_folder else ""

    def _new(self, tree: str, folder: str) -> str:
        known = self.known[tree]
        new = (found for found in self._survey(tree, folder.rstrip("/")) if found not in known)
        return next((_APPEARED.format(found.path) for found in new if found.kind != "late"), "")

    def _survey(self, tree: str, folder: str) -> list[Trigger]:
        def watch(descriptor: int, path: str) -> None:
            try:
                number = kernel.watch(self.descriptor, descriptor, _MADE)
            except OSError:
                self._blind = True
            else:
                self._watched[number] = (tree, path)

        found = autorun.survey(tree, folder, watch, without=self._guarded)
        return [one for one in found if not (self._git and one.kind == "repository")]

    def _events(self) -> Iterator[tuple[int, int, str]]:
        """Of each the number of the watch, what happened, and to which name."""
        events = b""
        with suppress(OSError):
            events = os.read(self.descriptor, _AT_ONCE)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            yield watch, mask, os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length


_QUICK, _SLOW = 0.1, 1.0
_YOUNG = 300
"""Looks at the short interval before one is taken at leisure."""

_LINGER = 5
"""Milliseconds between two rounds of killing."""

_PATIENCE = 1_000
"""Milliseconds to wait for somebody to read what there is to say."""

_BYTES_OF_A_FILE = 16 * 1024
"""For as many bytes a disk is mostly made to hold one file: so much of both is kept free."""


Room = tuple[int, int]
"""What is free of a disk: bytes, and files that it can still hold."""


class Watcher:
    """Made by the process that becomes the command: what that uses, fills and replaces is told from
    how things are before there is a watcher, which may be late."""

    def __init__(self, spec: Spec, autoruns: AutorunWatch | None) -> None:
        self._spec, self._autoruns = spec, autoruns
        self._process, owner = os.getpid(), os.getppid()
        # Descriptors that are readable when the command or nanobot is gone.
        self._gone, self._owner_gone = os.pidfd_open(self._process), os.pidfd_open(owner)
        self._usage = Usage(spec, self._process)
        self._identities, self._free = _identities(spec), _free(spec)

    def close(self) -> None:
        """Leave all of it to the process that watches."""
        os.close(self._gone)
        os.close(self._owner_gone)

    def watch(self, inside: int) -> None:
        """Until the command is gone, then clear up. Says on standard error what went wrong. From
        `inside`, a pipe, comes which process bubblewrap has started as the first one in there; -1
        without bubblewrap."""
        first = _first_inside(inside)
        reason = self._until_the_end()
        _end(self._process)
        if first >= 0:
            _end_inside(first)
        self._usage.end()
        if reason:
            _say(f"stopped: {reason}")
        for old, new in self._autoruns.retire() if self._autoruns else ():
            _say(f"{old!r} was made while this command ran and is now called {new!r}")
        if self._spec.temporary:
            import shutil

            shutil.rmtree(self._spec.temporary, ignore_errors=True)

    def _until_the_end(self) -> str:
        """Why the command is ended, empty where it ended by itself."""
        autoruns, ending, looks = self._autoruns, select.poll(), 0
        ending.register(self._gone, select.POLLIN)
        ending.register(self._owner_gone, select.POLLIN)
        if autoruns and autoruns.descriptor >= 0:
            ending.register(autoruns.descriptor, select.POLLIN)
        while True:
            threads, reason = self._usage.looked_at()
            if reason := reason or self._filled() or self._replaced():
                return reason
            busy = threads > self._spec.limits.processes // 4
            looks += 1
            next_look = time.monotonic() + (_QUICK if busy or looks < _YOUNG else _SLOW)
            while (left := next_look - time.monotonic()) > 0:
                ready = {descriptor for descriptor, _ in ending.poll(left * 1_000)}
                if ready & {self._gone, self._owner_gone}:
                    return "" if self._gone in ready else "nanobot is gone"
                if autoruns and (reason := autoruns.appeared() or self._replaced()):
                    return reason

    def _filled(self) -> str:
        reserve = self._spec.limits.disk_megabytes * MEGABYTE
        kept = reserve, reserve // _BYTES_OF_A_FILE
        disks = zip(_free(self._spec), self._free, strict=False)
        full = any(is_used_up(left, before, kept) for left, before in disks)
        return "the disk is nearly full" if full else ""

    def _replaced(self) -> str:
        return _REPLACED if self._identities != _identities(self._spec) else ""


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


def is_used_up(left: Room, before: Room, reserve: Room) -> bool:
    """Whether less than a reserve is left, and a good part of that was taken since."""
    both = zip(left, before, reserve, strict=True)
    return any(now < kept and had - now > kept // 4 for now, had, kept in both)


def _free(spec: Spec) -> list[Room]:
    """A file system that can have any number of files says that it has none, before and after."""
    found = []
    for path in filter(None, (spec.workspace, spec.temporary)):
        with suppress(OSError):
            disk = os.statvfs(path)
            found.append((disk.f_bavail * disk.f_frsize, disk.f_favail))
    return found


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


def _say(text: str) -> None:
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    with suppress(OSError):
        if any(event & select.POLLOUT for _, event in ready.poll(_PATIENCE)):
            os.write(2, f"nanobot: {text}\n".encode(errors="backslashreplace"))
