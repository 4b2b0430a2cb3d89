"""What a command may touch, and what starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from nanobot.errors import ToolError

Kind = Literal["bubblewrap", "landlock", "none"]


class SandboxRefused(ToolError):
    """This sandbox cannot run a command in this way; nothing was started."""


@dataclass(frozen=True, slots=True)
class Confined:
    """The little that a command gets. All paths are absolute, save those of `read_only` and
    `hidden`.

    `workspace` exists and is shown at its own path; with `writable` it is all that can be written.
    `read_only` are paths below the workspace that cannot be changed, `hidden` ones that cannot be
    seen either. They need not exist; one that ends in `/` is a folder then. `hide_git` does the
    same to every `.git` in what can be written, and what a command makes of that name is called
    `dot-git` when it ends. `extra_read_only` and `writable` lie elsewhere.

    `network`: `relay` gives HTTP through a proxy that the other end of the relay decides about.
    `environment` is added to a small fixed one. `memory_megabytes` hold for each process, for all
    together, and for all commands that write what they use into one `ledger` (an open file; -1 for
    none). `processes` counts threads as well, `file_megabytes` is the longest file. `cwd` is the
    workspace where nothing is said.
    """

    workspace: Path
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    hide_git: bool = True
    extra_read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    network: Literal["none", "relay"] = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_megabytes: int = 2_048
    processes: int = 256
    file_megabytes: int = 1_024
    cwd: Path | None = None
    ledger: int = -1


@dataclass(frozen=True, slots=True)
class Launch:
    """For `asyncio.create_subprocess_exec(*argv, env=…, cwd=…, pass_fds=…,
    start_new_session=True)`, in a thread that lives as long as the command.

    The process is the leader of a group: end it by killing the group. What is left of it, in
    whatever way it ended, is cleared away by a watcher, which holds standard error open until it
    is done; what it has to say ("more than 256 processes") stands there, after `nanobot: `.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    pass_fds: tuple[int, ...] = ()


class Sandbox(Protocol):
    """A way to run commands."""

    @property
    def kind(self) -> Kind: ...

    @property
    def notes(self) -> str:
        """What a command cannot do here that it could elsewhere, in a sentence; mostly empty."""
        ...

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """What starts `command` with only what `confined` gives. Cheap, starts nothing.

        `relay` is the socket of a `NetworkRelay`, for `network="relay"`. Raises `SandboxRefused`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """A sandbox that was proven to hold, or none and what to do about it. A `problem` beside a
    sandbox is why a better one was not used."""

    sandbox: Sandbox | None
    problem: str = ""
