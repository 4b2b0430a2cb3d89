"""What happens outside, before a command: look, leave a watcher behind, become the sandbox.

Nothing is given up yet, and nothing is done that depends on what a command could have prepared:
in the workspace this only reads names and makes what is missing, and follows no link.

In bubblewrap this program is started once more (`stage`), with the power to mount and nothing else.
What is mounted below the workspace is mounted by that, and not by bubblewrap, which would look up
the paths outside: a command in the background could make them links meanwhile.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import NoReturn

from nanobot.security.confine import folders, kernel, stage
from nanobot.security.confine.spec import DEVICES, Refused, Spec
from nanobot.security.confine.watcher import AutorunWatch, Watcher

FREE_FOLDER = "work/"
"""Made where nothing new can stand beside what is protected."""

_USER = 1_000
"""Who root's commands believe to be: tools do strange things for root."""


def start(spec: Spec, command: Sequence[str], again: Sequence[str]) -> NoReturn:
    """Become the command's sandbox; `again` is the command line of this program inside."""
    if spec.ledger >= 0:
        os.set_inheritable(spec.ledger, False)  # the watcher's alone
    autoruns = None
    if spec.kind != "none":
        _complete(spec)
        autoruns = AutorunWatch(spec)
        spec = spec._replace(held=tuple(autoruns.held()))
    if spec.kind == "landlock":
        spec = _with_own_folder(spec)
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    hears, tells = os.pipe() if spec.kind == "bubblewrap" else (-1, -1)
    _leave_watcher(Watcher(spec, autoruns), hears, tells)
    stage.yield_to_others()
    if spec.kind == "landlock":
        stage.in_landlock(spec, command)
    if spec.kind == "none":
        stage.in_the_open(spec, command)
    if spec.relay:
        spec = spec._replace(relay_descriptor=_connected(spec.relay))
    user = (os.getuid() or _USER, os.getgid() or _USER)
    inside = (*again, str(_file(spec.as_text())), *command)
    told = _bubblewrap_arguments(spec, user, _files(user))
    # Neither arguments nor environment: commands can read those of bubblewrap.
    os.set_inheritable(tells, True)
    line = [
        spec.bubblewrap,
        "--info-fd",
        str(tells),
        "--args",
        str(_file("\0".join(told))),
        "--",
        *inside,
    ]
    try:
        os.execve(line[0], line, {})  # noqa: S606 - what this is for
    except OSError as error:
        raise Refused(f"cannot run {line[0]}: {error.strerror}") from error


def _complete(spec: Spec) -> None:
    """Have everything be there that is protected by its path."""
    root = os.open(spec.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        free = (FREE_FOLDER,) if spec.read_only and spec.kind == "landlock" else ()
        for path in (*spec.read_only, *free):
            folders.ensure(root, path)
    finally:
        os.close(root)


def _with_own_folder(spec: Spec) -> Spec:
    """A private folder in the place of the system's temporary one; the watcher removes it."""
    made = f"{spec.temporary}/nanobot-{os.urandom(8).hex()}"
    home = f"{made}/home"
    os.mkdir(made, 0o700)
    os.mkdir(home, 0o700)
    own = {"TMPDIR": made, "HOME": home}
    return spec._replace(temporary=made, environment={**own, **spec.environment})


def _leave_watcher(watcher: Watcher, told: int, tells: int) -> None:
    """Fork twice, so that the watcher is nobody's child: what this becomes waits for its own.
    `told` and `tells` are the ends of the pipe by which bubblewrap tells it what it started."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        watcher.close()
        if told >= 0:
            os.close(told)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    if tells >= 0:
        os.close(tells)
    os.chdir("/")
    try:
        watcher.watch(told)
    finally:
        os._exit(0)


def _connected(relay: str) -> int:
    import socket

    way = socket.socket(socket.AF_UNIX)
    try:
        way.connect(relay)
    except OSError as error:
        raise Refused(f"there is no way to the network: {error.strerror}") from error
    os.set_inheritable(way.fileno(), True)
    return way.detach()


def _files(user: tuple[int, int]) -> list[tuple[int, str]]:
    """Who is who in there; the system's own would name everybody."""
    texts = {
        "/etc/passwd": f"agent:x:{user[0]}:{user[1]}::{_HOME}:/bin/sh\n",
        "/etc/group": f"agent:x:{user[1]}:\n",
        "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    return [(_file(text), path) for path, text in texts.items()]


def _file(text: str) -> int:
    descriptor = os.memfd_create("file", 0)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


_HOME = "/tmp/home"  # noqa: S108 - in the sandbox's own, empty one
_STANDARD = (("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr"))


def _bubblewrap_arguments(
    spec: Spec, user: tuple[int, int], files: Sequence[tuple[int, str]]
) -> list[str]:
    """What bubblewrap is told, save the command itself. `files` are (descriptor, path) of
    small files that are made up, `user` are the ids that the command believes to have."""
    megabytes = min(spec.limits.file_megabytes, spec.limits.memory_megabytes // 4)
    size = str(max(1, megabytes) * 1024 * 1024)  # what is in them is memory
    made = ["--unshare-user", "--unshare-all", "--die-with-parent"]
    made += ["--new-session", "--hostname", "sandbox"]
    made += ["--uid", str(user[0]), "--gid", str(user[1])]
    made += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    made += ["--proc", "/proc", "--tmpfs", "/dev"]
    for name in DEVICES:
        made += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for target, name in _STANDARD:
        made += ["--symlink", target, f"/dev/{name}"]
    made += ["--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    made += ["--size", size, "--tmpfs", "/tmp", "--dir", _HOME]  # noqa: S108
    for target, path in spec.links:
        made += ["--symlink", target, path]
    for descriptor, path in files:
        made += ["--ro-bind-data", str(descriptor), path]
    for path in (*spec.readable, *spec.borrowed):
        made += ["--ro-bind-try", path, path]
    for tree in spec.trees:
        made += ["--bind", tree, tree]
    return [*made, "--remount-ro", "/", "--chdir", "/"]
