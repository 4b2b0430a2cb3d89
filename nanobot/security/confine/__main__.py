"""`python -E -s -S FOLDER start COMMAND…` outside, then `… stage DESCRIPTOR COMMAND…` inside.

The outside part checks files, starts a watcher and becomes the sandbox. It keeps its privileges,
and nothing it does depends on files that a command could have prepared: in the workspace it only
reads names, creates missing files, and follows no link.

In bubblewrap this program is started again (`stage`), with only the privilege to mount. It makes
the mounts below the workspace itself. Bubblewrap would look up the paths outside, where a
background command could replace them with links."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))

from nanobot.security.confine import (  # noqa: E402
    DEVICES,
    REFUSAL,
    VARIABLE,
    ConfineRefused,
    Spec,
    kernel,
    stage,
)
from nanobot.security.confine.tree import TreeWatch  # noqa: E402
from nanobot.security.confine.watcher import Watcher  # noqa: E402

NOT_STARTED = 125

FREE_FOLDER = "work/"
"""Created because no new files are possible next to protected files."""

_USER = 1_000
"""User id inside for commands of root, because tools behave differently for root."""


def main(step: str, rest: list[str]) -> NoReturn:
    """Become another program, or exit. Never returns."""
    try:
        if step == "start":
            start(Spec.of_text(os.environ.pop(VARIABLE)), rest)
        with open(int(rest[0]), encoding="utf-8") as file:
            spec = Spec.of_text(file.read())
        stage.in_namespaces(spec, rest[1:])
    except (ConfineRefused, OSError) as error:
        sys.stderr.write(f"{REFUSAL}{error}\n")
    sys.stderr.flush()
    os._exit(NOT_STARTED)


def start(spec: Spec, command: Sequence[str]) -> NoReturn:
    if spec.ledger >= 0:
        os.set_inheritable(spec.ledger, False)  # only for the watcher
    triggers = None
    if spec.kind != "none":
        create_protected(spec)
        triggers = TreeWatch(spec)
        spec = spec._replace(held=(*triggers.list_held(), *triggers.list_linked()))
    if spec.kind == "landlock":  # a private temporary folder
        made = f"{spec.temporary}/nanobot-{os.urandom(8).hex()}"
        os.mkdir(made, 0o700)
        os.mkdir(f"{made}/home", 0o700)
        own = {"TMPDIR": made, "HOME": f"{made}/home"}
        spec = spec._replace(temporary=made, environment={**own, **spec.environment})
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    info_read, info_write = os.pipe() if spec.kind == "bubblewrap" else (-1, -1)
    fork_watcher(Watcher(spec, triggers), info_read, info_write)
    stage.lower_priority()
    if spec.kind == "landlock":
        stage.in_landlock(spec, command)
    if spec.kind == "none":
        stage.in_the_open(spec, command)
    if spec.relay:
        spec = spec._replace(relay_descriptor=connect_relay(spec.relay))
    inside = (
        sys.executable,
        "-E",
        "-s",
        "-S",
        FOLDER,
        "stage",
        str(make_memory_file(spec.as_text())),
    )
    arguments_fd = str(make_memory_file("\0".join(build_bubblewrap_arguments(spec))))
    os.set_inheritable(info_write, True)
    # Commands can read bubblewrap's arguments and environment, so use neither.
    line = [spec.bubblewrap, "--info-fd", str(info_write), "--args", arguments_fd, "--"]
    line += [*inside, *command]
    try:
        os.execve(line[0], line, {})  # noqa: S606 - what this is for
    except OSError as error:
        raise ConfineRefused(f"cannot run {line[0]}: {error.strerror}") from error


def create_protected(spec: Spec) -> None:
    """Create the missing protected paths, so that no one else can: an empty folder for a path that
    ends in `/`, otherwise an empty file."""
    free = (FREE_FOLDER,) if spec.read_only and spec.kind == "landlock" else ()
    with kernel.closing(os.open(spec.workspace, os.O_PATH | os.O_DIRECTORY)) as root:
        for path in (*spec.read_only, *free):
            try:
                create_path(root, path)
            except OSError as error:
                raise ConfineRefused(f"cannot protect {path}: {error.strerror}") from error


def create_path(root: int, path: str) -> None:
    *above, last = path.split("/")
    for count in range(len(above) + 1):
        folder = kernel.open_below(root, "/".join(above[:count]) or ".", os.O_PATH | os.O_DIRECTORY)
        with kernel.closing(folder), suppress(FileExistsError):
            if count < len(above):
                os.mkdir(above[count], 0o700, dir_fd=folder)
            elif last:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(last, flags, 0o600, dir_fd=folder))


def fork_watcher(watcher: Watcher, info_read: int, info_write: int) -> None:
    """Fork twice, so that the watcher is not a child of this process, which later waits for its
    children. `info_read` and `info_write` are the ends of the pipe on which bubblewrap reports its
    child."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        watcher.close()
        if info_read >= 0:
            os.close(info_read)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    if info_write >= 0:
        os.close(info_write)
    os.chdir("/")
    try:
        watcher.watch(info_read)
    finally:
        os._exit(0)


def connect_relay(relay: str) -> int:
    import socket

    way = socket.socket(socket.AF_UNIX)
    try:
        way.connect(relay)
    except OSError as error:
        raise ConfineRefused(f"the network is unavailable: {error.strerror}") from error
    os.set_inheritable(way.fileno(), True)
    return way.detach()


def make_memory_file(text: str) -> int:
    descriptor = os.memfd_create("file", 0)
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


_HOME = "/tmp/home"  # noqa: S108 - in the sandbox's own, empty one


def build_bubblewrap_arguments(spec: Spec) -> list[str]:
    """Return bubblewrap's arguments without the command."""
    user, group = os.getuid() or _USER, os.getgid() or _USER
    megabytes = min(spec.file_megabytes, spec.memory_megabytes // 4)
    size = str(max(1, megabytes) * 1024 * 1024)  # these folders are in memory
    made = ["--unshare-user", "--unshare-all", "--die-with-parent"]
    made += ["--new-session", "--hostname", "sandbox", "--uid", str(user), "--gid", str(group)]
    made += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    made += ["--proc", "/proc", "--tmpfs", "/dev"]
    for name in DEVICES:
        made += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    made += ["--symlink", "/proc/self/fd", "/dev/fd"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        made += ["--symlink", f"fd/{number}", f"/dev/{name}"]
    made += ["--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    made += ["--size", size, "--tmpfs", "/tmp", "--dir", _HOME]  # noqa: S108
    for target, path in spec.links:
        made += ["--symlink", target, path]
    # Own user and host files, because the system's would list everyone.
    for path, text in (
        ("/etc/passwd", f"agent:x:{user}:{group}::{_HOME}:/bin/sh\n"),
        ("/etc/group", f"agent:x:{group}:\n"),
        ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ):
        made += ["--ro-bind-data", str(make_memory_file(text)), path]
    for path in (*spec.readable, *spec.borrowed):
        made += ["--ro-bind-try", path, path]
    for tree in spec.trees:
        made += ["--bind", tree, tree]
    return [*made, "--remount-ro", "/", "--chdir", "/"]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
