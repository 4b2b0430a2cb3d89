"""The last steps before a command. Each step only removes privileges.

Invariant: if any step fails, the command does not run. Mounts use descriptors, so the checked file
is the mounted one, even if another process renames it.

With Landlock, files without a grant cannot be opened, created, renamed or removed. A grant covers a
folder and everything below it, without exceptions. So protected files get no grant: the folders
above them are granted entry by entry, and can't have new entries."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from nanobot.security.confine import (
    DEVICES,
    RELAY_PORT,
    ConfineRefused,
    Spec,
    kernel,
    parents,
    seccomp,
)
from nanobot.security.confine.kernel import closing

_SECRETIVE = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi")
_SECRETIVE_TOO = ("kpagecount", "kpageflags", "kpagecgroup", "vmallocinfo", "slabinfo", "kmsg")
_MANY = 2**31 - 1


def in_namespaces(spec: Spec, command: Sequence[str]) -> NoReturn:
    """Become the command inside bubblewrap's namespaces."""
    for tree in spec.trees:
        mount_layout(tree, build_layout(spec, tree))
    for name in (*_SECRETIVE, *_SECRETIVE_TOO):
        hide_path(f"/proc/{name}")
    # If nanobot is root, its command is root for the host's /proc/sys. And /proc/1/mem belongs to
    # bubblewrap, which has no filter.
    restrict_mount(_HERE, b"/proc", _READ_ONLY)
    if spec.relay:
        hand_over_listener(spec.relay_descriptor)
    for path in spec.borrowed:
        with suppress(OSError):  # two may be the same
            kernel.unmount(path)
    limit_resources(spec, spec.processes)
    drop_capabilities()
    become(spec, command, seccomp.COMMON)


def in_landlock(spec: Spec, command: Sequence[str]) -> NoReturn:
    """Become the command on the system as it is, with a few grants."""
    die, with_parent = kernel.DIE_WITH_PARENT, 9
    kernel.prctl(die, with_parent)
    grants = Grants()
    grants.readable(spec.readable)
    grants.devices()
    for tree in spec.trees:
        grants.writable(tree, build_layout(spec, tree))
    grants.writable(spec.temporary, Layout((), (), ()))
    limit_resources_of_user(spec)
    os.chdir(spec.cwd)
    drop_capabilities()
    grants.enter()
    rules = (*seccomp.COMMON, *seccomp.ALONE)
    if grants.version < 6:
        rules += seccomp.WITHOUT_SIGNAL_SCOPE
    become(spec, command, rules)


def in_the_open(spec: Spec, command: Sequence[str]) -> NoReturn:
    """Become the command with limits only, by the owner's choice."""
    limit_resources_of_user(spec)
    become(spec, command, ())


def build_layout(spec: Spec, tree: str) -> Layout:
    """Return the layout of the protected files in a tree."""
    locked = set(spec.read_only if tree == spec.workspace else ())
    hidden: set[str] = set()
    for where, path, kind in spec.held:
        if where == tree:
            masked = kind == "repository" and spec.kind == "bubblewrap"
            (hidden if masked else locked).add(path)
    return Layout.of(locked, hidden)


def hand_over_listener(descriptor: int) -> None:
    """Listen here and pass the listener to the relay outside."""
    import array
    import socket

    with socket.socket() as listener, socket.socket(fileno=descriptor) as way:
        listener.bind(("127.0.0.1", RELAY_PORT))
        listener.listen(64)
        rights = array.array("i", [listener.fileno()]).tobytes()
        way.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        if way.recv(1) != b"+":
            raise ConfineRefused("the network is unavailable: its relay has stopped")


def become(spec: Spec, command: Sequence[str], rules: Sequence[seccomp.Rule]) -> NoReturn:
    os.chdir(spec.cwd)
    os.closerange(3, _MANY)
    signal.signal(
        signal.SIGPIPE, signal.SIG_DFL
    )  # Python ignores it, and the command would inherit that
    if rules:
        seccomp.install(rules)
    try:
        os.execvpe(command[0], list(command), spec.environment)  # noqa: S606 - what this is for
    except OSError as error:
        raise ConfineRefused(f"cannot run {command[0]}: {error.strerror}") from error


_CLONE, _CLOSE_ON_EXEC = 1, os.O_CLOEXEC
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_FROM_EMPTY, _TO_EMPTY = 0x4, 0x40
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 0x1, 0x2, 0x4, 0x8
_HERE = -100


def mount_layout(tree: str, layout: Layout) -> None:
    """Mount the files of the layout read-only. A missing file is skipped. If it reappears, the
    command is ended. Raise `ConfineRefused` and `OSError`."""
    with closing(os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        for path in (*layout.pinned, *layout.locked):
            with suppress(FileNotFoundError), kernel.at(root, path) as (target, _):
                mount_clone(target, target, _READ_ONLY if path in layout.locked else 0)
        for path in layout.hidden:
            with suppress(FileNotFoundError), kernel.at(root, path) as (target, status):
                mount_empty(target, stat.S_ISDIR(status.st_mode))


def hide_path(path: str) -> None:
    """Mount something empty on an absolute path, if it exists. Raise `OSError`."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError), closing(os.open(path, flags)) as target:
        mount_empty(target, stat.S_ISDIR(os.fstat(target).st_mode))


def mount_empty(target: int, folder: bool) -> None:
    if not folder:
        with closing(os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)) as nothing:
            mount_clone(nothing, target, _READ_ONLY | _NO_DEVICES)
        return
    create, in_kilobytes = 6, b"4"
    with closing(kernel.call("fsopen", b"tmpfs", 1)) as system:
        kernel.call("fsconfig", system, 1, b"size", in_kilobytes + b"k", 0)
        kernel.call("fsconfig", system, create, None, None, 0)
        flags = _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS
        with closing(kernel.call("fsmount", system, 1, flags)) as empty:
            move_mount(empty, target)


def mount_clone(source: int, target: int, attributes: int) -> None:
    flags = _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH | _RECURSIVE
    with closing(kernel.call("open_tree", source, b"", flags)) as tree:
        if attributes:
            restrict_mount(tree, b"", attributes)
        move_mount(tree, target)


def restrict_mount(folder: int, path: bytes, attributes: int) -> None:
    """Set attributes of a mount and of all mounts below it."""
    wanted = struct.pack("=4Q", attributes, 0, 0, 0)  # mount_attr
    flags = _EMPTY_PATH | _RECURSIVE
    kernel.call("mount_setattr", folder, path, flags, wanted, len(wanted))


def move_mount(tree: int, target: int) -> None:
    kernel.call("move_mount", tree, b"", target, b"", _FROM_EMPTY | _TO_EMPTY)


_MEGABYTE = 1024 * 1024
_OPEN_FILES = 4_096
_CAPABILITY_VERSION = 0x20080522
_HIGHEST_CAPABILITY = 63
_NICE = 5


def drop_capabilities() -> None:
    """Drop all capabilities for this process and its programs. Raise `ConfineRefused` if that is
    impossible."""
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    with suppress(OSError):  # a kernel without ambient capabilities
        clear_all = 4
        kernel.prctl(kernel.AMBIENT, clear_all)
    for capability in range(_HIGHEST_CAPABILITY + 1):
        try:
            kernel.prctl(kernel.DROP_FROM_BOUNDING_SET, capability)
        except OSError:
            if os.geteuid() == 0 and is_in_bounding_set(capability):
                raise ConfineRefused("capabilities can't be dropped here") from None
    header, nothing = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
    kernel.call("capset", header, nothing)


def is_in_bounding_set(capability: int) -> bool:
    read = 23
    try:
        return kernel.prctl(read, capability) == 1
    except OSError:
        return False  # no such capability


def limit_resources(spec: Spec, processes: int | None) -> None:
    """Limit each process. `processes` counts this user's threads in this namespace (None: no
    limit)."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: spec.memory_megabytes * _MEGABYTE,
        resource.RLIMIT_FSIZE: spec.file_megabytes * _MEGABYTE,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NPROC: processes,
    }
    for kind, most in wanted.items():
        _, hard = resource.getrlimit(kind)
        if most is not None:
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (allowed, allowed))


def limit_resources_of_user(spec: Spec) -> None:
    """Limit processes without a namespace: all visible threads of this user on the machine count as
    well. The kernel has no such limit for root."""
    count = 0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    limit_resources(spec, count + spec.processes if os.getuid() else None)


def lower_priority() -> None:
    """Lower the CPU priority, and be the first to be killed when memory runs out."""
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE = 1 << 14
_MAKE_DEVICES = 1 << 6 | 1 << 11
_USE_DEVICES = 1 << 15
_OLDEST = 3
"""Earlier versions allow truncating any file (Linux before 6.2)."""

_RIGHTS = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All file rights of a version. Later versions have no more."""

_LOOK = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _USE_DEVICES
_NETWORK, _SCOPES = 0b11, 0b11


def landlock_version() -> int:
    """Return the kernel's Landlock version, or 0."""
    try:
        return kernel.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def landlock_lack(version: int) -> str:
    """Return why a version is unusable, or an empty text."""
    needed = "Linux 6.2 or newer, with `landlock` in its lsm list"
    if not version:
        return f"this kernel does not support Landlock (required: {needed})"
    if version < _OLDEST:
        return (
            f"this kernel's Landlock version is {version}, but at least {_OLDEST} is required "
            f"({needed})"
        )
    return ""


class Layout(NamedTuple):
    """The protected paths in a writable folder, upper ones first. `locked` paths cannot be changed,
    `hidden` ones not even be seen. All folders above are `pinned`: if a command could rename or
    replace them, it could put another folder in their place."""

    pinned: tuple[str, ...]
    locked: tuple[str, ...]
    hidden: tuple[str, ...]

    @classmethod
    def of(cls, locked: Iterable[str], hidden: Iterable[str]) -> Layout:
        """Return the minimal layout. Paths below hidden ones need nothing more, nor do locked paths
        below locked ones."""
        out_of_sight = {path.rstrip("/") for path in hidden}
        out_of_sight = remove_nested(out_of_sight, out_of_sight)
        fast = {path.rstrip("/") for path in locked} - out_of_sight
        fast = remove_nested(fast, fast | out_of_sight)
        special = out_of_sight | fast
        above = {folder for path in special for folder in parents(path)} - special
        return cls(
            *(tuple(sorted(one)) for one in (remove_nested(above, fast), fast, out_of_sight))
        )


def remove_nested(paths: set[str], tops: set[str]) -> set[str]:
    return {path for path in paths if tops.isdisjoint(parents(path))}


class Grants:
    """Landlock grants of a command, collected before the restriction."""

    def __init__(self) -> None:
        self.version = landlock_version()
        if problem := landlock_lack(self.version):
            raise ConfineRefused(problem)
        self._all = _RIGHTS[max(known for known in _RIGHTS if known <= self.version)]
        words = 1 if self.version < 4 else 2 if self.version < 6 else 3
        ruleset = struct.pack(f"={words}Q", *(self._all, _NETWORK, _SCOPES)[:words])
        self._ruleset = kernel.call("landlock_create_ruleset", ruleset, len(ruleset), 0)

    def readable(self, paths: Iterable[str]) -> None:
        """Grant reading and executing the existing paths and everything below."""
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            self._grant(descriptor, _LOOK)

    def devices(self) -> None:
        for name in DEVICES:
            self._grant(os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC), _READ | _WRITE)

    def writable(self, tree: str, layout: Layout) -> None:
        """Grant everything in this folder except changes to the layout's protected paths."""
        root = os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if not layout.locked:
            self._grant(root, self._all & ~_MAKE_DEVICES & ~_USE_DEVICES)
            return
        self._grant(os.dup(root), _LOOK)
        kept = {*layout.pinned, *layout.locked}
        for folder in ("", *layout.pinned):
            paths = list[str]()
            with (
                suppress(FileNotFoundError),
                kernel.closing(
                    kernel.open_below(root, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
                ) as listed,
                os.scandir(listed) as entries,
            ):
                names = [entry.name for entry in entries if not entry.is_symlink()]
                paths = [os.path.join(folder, name) for name in names]
            for path in set(paths) - kept:
                self._grant_at(root, path, self._all & ~_MAKE_DEVICES & ~_USE_DEVICES)
        for path in layout.locked:  # refuses a link, whose target would be another file
            self._grant_at(root, path, _LOOK)
        os.close(root)

    def enter(self) -> None:
        """Restrict this process and its children to the grants from now on."""
        kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
        kernel.call("landlock_restrict_self", self._ruleset, 0)
        os.close(self._ruleset)

    def _grant_at(self, root: int, path: str, rights: int) -> None:
        with suppress(FileNotFoundError), kernel.at(root, path) as (descriptor, _):
            self._grant(os.dup(descriptor), rights)

    def _grant(self, descriptor: int, rights: int) -> None:
        """Grant rights and close the descriptor. Skip a file that is not on disk (a pipe)."""
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        try:
            beneath = struct.pack("=Qi", rights & self._all, descriptor)
            kernel.call("landlock_add_rule", self._ruleset, 1, beneath, 0)
        except OSError as error:
            if error.errno != errno.EBADFD:
                raise
        finally:
            os.close(descriptor)
