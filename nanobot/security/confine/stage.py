"""The last steps before a command, each of which only takes something away; then the command.

What always holds: if any step fails, the command does not run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from nanobot.security.confine import kernel, landlock, mounts, powers, seccomp
from nanobot.security.confine.layout import Layout, layout
from nanobot.security.confine.spec import Refused, Spec

RELAY_PORT = 3128
"""Where the relay listens inside, on 127.0.0.1."""

_SECRETIVE = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi")
_SECRETIVE_TOO = ("kpagecount", "kpageflags", "kpagecgroup", "vmallocinfo", "slabinfo", "kmsg")
_MANY = 2**31 - 1


def in_namespaces(spec: Spec, command: Sequence[str]) -> NoReturn:
    """Become the command in what bubblewrap made."""
    for tree in spec.trees:
        mounts.hold(tree, _protected(spec, tree))
    for name in (*_SECRETIVE, *_SECRETIVE_TOO):
        mounts.cover(f"/proc/{name}")
    # Where nanobot is root, so is its command to the files of the kernel: /proc/sys is the host's.
    # And /proc/1/mem is bubblewrap's, which no filter holds.
    mounts.freeze("/proc")
    if spec.relay:
        _hand_over_listener(spec.relay_descriptor)
    for path in spec.borrowed:
        with suppress(OSError):  # two of them may be one
            kernel.unmount(path)
    powers.limit(spec.limits, spec.limits.processes)
    powers.give_up_capabilities()
    _become(spec, command, seccomp.COMMON)


def in_landlock(spec: Spec, command: Sequence[str]) -> NoReturn:
    """Become the command, on the system as it is, with a few grants."""
    die, with_parent = kernel.DIE_WITH_PARENT, 9
    kernel.prctl(die, with_parent)
    grants = landlock.Grants()
    grants.readable(spec.readable)
    grants.devices()
    for tree in spec.trees:
        grants.writable(tree, _protected(spec, tree))
    grants.writable(spec.temporary, Layout((), (), ()))
    processes = powers.threads_of_user() + spec.limits.processes if os.getuid() else 0
    powers.limit(spec.limits, processes)
    os.chdir(spec.cwd)
    powers.give_up_capabilities()
    grants.enter()
    rules = (*seccomp.COMMON, *seccomp.ALONE)
    if grants.version < 6:
        rules += seccomp.WITHOUT_SIGNAL_SCOPE
    _become(spec, command, rules)


def in_the_open(spec: Spec, command: Sequence[str]) -> NoReturn:
    """Become the command, with limits and nothing else: the owner's choice."""
    processes = powers.threads_of_user() + spec.limits.processes if os.getuid() else 0
    powers.limit(spec.limits, processes)
    _become(spec, command, ())


def _protected(spec: Spec, tree: str) -> Layout:
    """How to hold fast what is protected in a tree."""
    own = tree == spec.workspace
    locked, hidden = (spec.read_only, spec.hidden) if own else ((), ())
    masked = "" if spec.kind == "landlock" else "repository"
    held = [(path, kind) for where, path, kind in spec.held if where == tree]
    return layout(
        (*locked, *(path for path, kind in held if kind != masked)),
        (*hidden, *(path for path, kind in held if kind == masked)),
    )


def _hand_over_listener(descriptor: int) -> None:
    """Listen in here, and let somebody outside have the listener."""
    import array
    import socket

    with socket.socket() as listener, socket.socket(fileno=descriptor) as way:
        listener.bind(("127.0.0.1", RELAY_PORT))
        listener.listen(64)
        rights = array.array("i", [listener.fileno()]).tobytes()
        way.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        if way.recv(1) != b"+":
            raise Refused("there is no way to the network: its relay is gone")


def _become(spec: Spec, command: Sequence[str], rules: Sequence[seccomp.Rule]) -> NoReturn:
    os.chdir(spec.cwd)
    os.closerange(3, _MANY)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the command
    if rules:
        seccomp.install(rules)
    try:
        os.execvpe(command[0], list(command), spec.environment)  # noqa: S606 - what this is for
    except OSError as error:
        raise Refused(f"cannot run {command[0]}: {error.strerror}") from error
