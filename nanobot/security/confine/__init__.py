"""The program that confines commands. It runs separately from nanobot and imports nothing else of
it.

It uses only the standard library, because its second half runs inside the sandbox, where nothing
else is available. `__main__` runs outside: it finds repositories, starts a watcher and becomes the
sandbox. `stage` runs inside before the command: it protects files, drops all privileges and becomes
the command. Each command pays for both, so there are few imports: values are named tuples, because
importing dataclasses takes as long as everything here. Their annotations are not texts, which
`NamedTuple` would compile.

The task is JSON in an environment variable, not in arguments, which everyone on the machine can
read."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

DEVICES = ("null", "zero", "full", "random", "urandom")
"""The files of /dev that hold no data."""

RELAY_PORT = 3128
"""Port of the relay inside, on 127.0.0.1."""

VARIABLE = "NANOBOT_CONFINED"

REFUSAL = "nanobot: the command was not started: "
"""Prefix of a line with the reason."""

MEMORY_FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108
"""Writable folders of a bubblewrap sandbox that are in memory."""


class ConfineRefused(Exception):
    """The command cannot be started. `str(error)` is the reason."""


class Spec(NamedTuple):
    """The task. All paths except `read_only` and `held` are absolute.

    `readable` and `writable` are outside the `workspace`, `borrowed` is visible to this program and
    removed before the command starts, `links` are (target, path). In `temporary` a private folder
    replaces the system's temporary one. `bubblewrap` is a program. `own_folder`: no person works in
    the workspace. `strict`: no name with a dot stays there. `relay` is the socket that receives a
    listener inside, `relay_descriptor` its open connection. `held` are the existing files that no
    command may change (`tree`), as (tree, path in it, kind). `ledger` is an open file in which all
    commands write their memory usage.

    `processes` includes threads. `memory_megabytes` limits each process, all together, and all
    commands. `file_megabytes` limits one file, `disk_megabytes` stays free."""

    kind: str
    workspace: str
    cwd: str
    read_only: Sequence[str]
    hide_git: bool
    own_folder: bool
    writable: Sequence[str]
    environment: Mapping[str, str]
    memory_megabytes: int
    processes: int
    file_megabytes: int
    disk_megabytes: int = 512
    readable: Sequence[str] = ()
    borrowed: Sequence[str] = ()
    links: Sequence[tuple[str, str]] = ()
    bubblewrap: str = ""
    temporary: str = ""
    relay: str = ""
    held: Sequence[tuple[str, str, str]] = ()
    relay_descriptor: int = -1
    ledger: int = -1
    strict: bool = False

    @property
    def trees(self) -> tuple[str, ...]:
        """Every folder that the command may write in."""
        return (self.workspace, *self.writable)

    @property
    def read_only_paths(self) -> frozenset[str]:
        """Paths in the workspace that the command cannot change."""
        return frozenset(path.rstrip("/") for path in self.read_only)

    def as_text(self) -> str:
        """Return the text for the environment."""
        return json.dumps(self)

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse the text of `as_text`, with lists for tuples."""
        return cls(*json.loads(text))


def parents(path: str) -> list[str]:
    """Return the folders above a path: `a` and `a/b` for `a/b/c`."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]
