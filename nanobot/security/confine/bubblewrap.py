"""How bubblewrap is asked for a world with little in it. Pure.

In it this program is started once more (`stage`), with the power to mount and nothing else. What is
mounted below the workspace is mounted by that, and not by bubblewrap, which would look up the paths
outside: a command in the background could make them links meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.security.confine.spec import Spec

HOME = "/tmp/home"  # noqa: S108 - in the sandbox's own, empty one
MEMORY_FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108
"""The folders that are memory and can be written in."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
_STANDARD = (("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr"))


def arguments(spec: Spec, user: tuple[int, int], files: Sequence[tuple[int, str]]) -> list[str]:
    """What bubblewrap is told, save the command itself. `files` are (descriptor, path) of
    small files that are made up, `user` are the ids that the command believes to have."""
    megabytes = min(spec.limits.file_megabytes, spec.limits.memory_megabytes // 4)
    size = str(max(1, megabytes) * 1024 * 1024)  # what is in them is memory
    made = ["--unshare-user", "--unshare-all", "--die-with-parent"]
    made += ["--new-session", "--hostname", "sandbox"]
    made += ["--uid", str(user[0]), "--gid", str(user[1])]
    made += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    made += ["--proc", "/proc", "--tmpfs", "/dev"]
    for name in _DEVICES:
        made += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for target, name in _STANDARD:
        made += ["--symlink", target, f"/dev/{name}"]
    made += ["--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    made += ["--size", size, "--tmpfs", "/tmp", "--dir", HOME]  # noqa: S108
    for target, path in spec.links:
        made += ["--symlink", target, path]
    for descriptor, path in files:
        made += ["--ro-bind-data", str(descriptor), path]
    for path in (*spec.readable, *spec.borrowed):
        made += ["--ro-bind-try", path, path]
    for tree in spec.trees:
        made += ["--bind", tree, tree]
    return [*made, "--remount-ro", "/", "--chdir", "/"]
