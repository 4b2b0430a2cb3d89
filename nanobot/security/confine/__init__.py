"""The program that shuts commands in: it runs beside nanobot and knows nothing of it.

It uses the standard library alone, for its second half runs inside the sandbox, where nothing else
is. `__main__` runs outside: it looks where repositories are, leaves a watcher behind and becomes
the sandbox. `stage` runs inside, before the command: it protects what must not change, gives up
every power it has and becomes the command. Each command pays for both, so imports are few: values
are named tuples and not dataclasses, whose import alone takes as long as everything here.

What is to be done is passed as JSON in one variable of the environment, and not as arguments, which
everybody on the machine can read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

DEVICES = ("null", "zero", "full", "random", "urandom")
"""The few of /dev that hold nothing."""

RELAY_PORT = 3128
"""Where the relay listens inside, on 127.0.0.1."""

VARIABLE = "NANOBOT_CONFINED"

REFUSAL = "nanobot: the command was not started: "
"""The beginning of a line that says why."""

MEMORY_FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108
"""The folders of a sandbox of bubblewrap that are memory and can be written in."""


class ConfineRefused(Exception):
    """The command cannot be started; `str(error)` says why."""


class Spec(NamedTuple):
    """All paths are absolute, save `read_only` and `held`.

    `readable` and `writable` lie outside the `workspace`, `borrowed` is shown to this program and
    gone before the command starts, `links` are (target, path). `temporary` is where a private
    folder is made that takes the place of the system's temporary one. `bubblewrap` is a program.
    `own_folder`: no person works in the workspace. `strict`: no name with a dot stays there.
    `relay` is the socket that is given a listener inside. `held` is what was there of what no
    command may change (`tree`), as (tree, path in it, kind); `relay_descriptor` is the open way to
    `relay`. `ledger` is a file, open, in which all commands write how much memory they use.

    `processes` counts threads. `memory_megabytes` hold for each process, for all together, and for
    all commands; `file_megabytes` is the longest file, `disk_megabytes` what is left free.
    """

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
    def guarded(self) -> frozenset[str]:
        """What of the workspace the command cannot change, whatever is there."""
        return frozenset(path.rstrip("/") for path in self.read_only)

    def as_text(self) -> str:
        """For the environment."""
        return json.dumps(self)

    @classmethod
    def of_text(cls, text: str) -> Spec:
        """What `as_text` made, with lists for tuples."""
        return cls(*json.loads(text))


def parents(path: str) -> list[str]:
    """The folders above a path: `a` and `a/b` for `a/b/c`."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]
