"""What a command may touch, and the ways to run it: bubblewrap, Landlock, or nothing at all.

Each way is a `Launch`, the instructions for the program that does it (`nanobot.security.confine`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from nanobot.errors import ToolError
from nanobot.security.confine import RELAY_PORT, VARIABLE, Limits, Spec

Kind = Literal["bubblewrap", "landlock", "none"]


class SandboxRefused(ToolError):
    """This sandbox cannot run a command in this way; nothing was started."""


@dataclass(frozen=True, slots=True)
class Confined:
    """The little that a command gets. All paths are absolute, save those of `read_only`.

    `workspace` exists and is shown at its own path; with `writable` it is all that can be written.
    `read_only` are paths below the workspace that cannot be changed. They need not exist; one that
    ends in `/` is a folder then. With `hide_git` every `.git` in what can be written cannot be seen
    either, and what a command makes of that name is called `dot-git` when it ends.
    `extra_read_only` and `writable` lie elsewhere.

    `network`: `relay` gives HTTP through a proxy that the other end of the relay decides about.
    `environment` is added to a small fixed one. `memory_megabytes` hold for each process, for all
    together, and for all commands that write what they use into one `ledger` (an open file; -1 for
    none). `processes` counts threads as well, `file_megabytes` is the longest file. `cwd` is the
    workspace where nothing is said.
    """

    workspace: Path
    read_only: tuple[str, ...] = ()
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
    """What starts a command.

    The process is the leader of a group: end it by killing the group. What is left of it, in
    whatever way it ended, is cleared away by a watcher, which holds standard error open until it
    is done; what it has to say ("more than 256 processes") stands there, after `nanobot: `.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    pass_fds: tuple[int, ...] = ()

    async def spawn(
        self, *, stdin: int, stdout: int, stderr: int = PIPE
    ) -> asyncio.subprocess.Process:
        """Start it, in a thread that lives as long as the command. Raises `OSError` and
        `ValueError`."""
        return await asyncio.create_subprocess_exec(
            *self.argv,
            env=self.env,
            cwd=self.cwd,
            pass_fds=self.pass_fds,
            start_new_session=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )


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

        `relay` is the socket of a `network_relay`, for `network="relay"`. Raises `SandboxRefused`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """A sandbox that was proven to hold, or none and what to do about it. A `problem` beside a
    sandbox is why a better one was not used."""

    sandbox: Sandbox | None
    problem: str = ""


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""On most systems links into /usr."""

_ALWAYS = (
    "/usr", "/nix/store", "/etc/alternatives", "/etc/ca-certificates", "/etc/fonts",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/lsb-release", "/etc/mime.types", "/etc/os-release", "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/protocols",
    "/etc/services", "/etc/shells", "/etc/ssl/cert.pem", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/terminfo", "/etc/timezone", "/etc/xdg/fonts",
)  # fmt: skip
"""What every command sees of the system: programs, libraries, certificates; nothing personal. Not
in it: home folders, /run, /var, /opt, /sys, and of /etc what is not named here."""

_NAMES = ("/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd")
"""Readable as they are where they cannot be replaced."""


def links() -> tuple[tuple[str, str], ...]:
    """The links at the top, as (target, path)."""
    return tuple((str(Path(path).readlink()), path) for path in _FOLDERS if Path(path).is_symlink())


def readable(*, names: bool) -> tuple[str, ...]:
    """What is shown and cannot be changed; `names` of people and hosts on this machine as well."""
    real = (path for path in _FOLDERS if not Path(path).is_symlink())
    return (*real, *_ALWAYS, *(_NAMES if names else ()))


@cache
def interpreter() -> str:
    """The Python that this one was made from, without its virtual environment."""
    return os.path.realpath(sys.executable)


@cache
def libraries() -> str:
    """Where that one's own modules are."""
    return os.path.realpath(sys.base_prefix)


_SYSTEMS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_TOO_MUCH = frozenset(("/", "/home", "/run", "/tmp", "/var", "/opt", "/mnt"))  # noqa: S108


def refuse_unless_usable(confined: Confined, private: Sequence[Path]) -> None:
    """Raise `SandboxRefused` for what would give a command more than was meant. Blocks briefly.

    `private` are folders of ours: a workspace may lie in one; nothing that is given holds one.
    """
    for below in confined.read_only:
        names = below.rstrip("/").split("/")
        if not all(names) or any(name in {".", ".."} or "\0" in name for name in names):
            raise SandboxRefused(f"{below!r} is not a path below the workspace")
    ours = [_real(path) for path in private]
    for path in (confined.workspace, *confined.writable):
        _refuse_unless_given(path, ours)
        if not path.is_dir():
            raise SandboxRefused(f"there is no folder {path}")
        real = _real(path)
        if str(real) in _TOO_MUCH or any(map(real.is_relative_to, _SYSTEMS)):
            raise SandboxRefused(f"commands may not write in {path}: the system lives there")
    for path in confined.extra_read_only:
        _refuse_unless_given(path, ours)
    for path in (*confined.writable, *confined.extra_read_only):
        if any(map(_real(path).is_relative_to, ours)):
            raise SandboxRefused(f"{path} is not given to commands, for it is nanobot's own")
    _refuse_overlaps(confined)


def _refuse_unless_given(path: Path, ours: Sequence[Path]) -> None:
    if not path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise SandboxRefused(f"{path} is not a full path")
    real = _real(path)
    if any(folder.is_relative_to(real) for folder in ours):
        raise SandboxRefused(f"{path} is not given to commands, for nanobot's own files are in it")


def _refuse_overlaps(confined: Confined) -> None:
    """What is mounted last would win, whatever was meant."""
    trees = [_real(folder) for folder in (confined.workspace, *confined.writable)]
    for index, tree in enumerate(trees):
        if any(map(tree.is_relative_to, (*trees[:index], *trees[index + 1 :]))):
            raise SandboxRefused(f"{tree} lies in another folder that can be written")
    for path in confined.extra_read_only:
        if any(map(_real(path).is_relative_to, trees)):
            raise SandboxRefused(f"{path} lies in a folder that can be written")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


_PROGRAM = Path(__file__).parent.parent / "confine"
_DISK_MEGABYTES = 512
_PROXY = f"http://127.0.0.1:{RELAY_PORT}"
_NOWHERE = "localhost,127.0.0.1,::1"


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces: a world with nothing else in it. `program` is bubblewrap's."""

    program: str
    private: tuple[Path, ...] = ()
    kind: ClassVar[Kind] = "bubblewrap"
    notes: ClassVar[str] = ""

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """See `Sandbox`."""
        refuse_unless_usable(confined, self.private)
        if (relay is not None) != (confined.network == "relay"):
            raise SandboxRefused("a command with network needs a relay, and one without has none")
        environment = {"HOME": "/tmp/home", "TMPDIR": "/tmp", **_environment(confined)}  # noqa: S108
        spec = _spec(self.kind, confined, environment)._replace(
            readable=(*readable(names=False), *map(str, confined.extra_read_only)),
            borrowed=_borrowed(),
            links=links(),
            bubblewrap=self.program,
            relay=str(relay or ""),
        )
        return _launch(spec, command)


@dataclass(frozen=True, slots=True)
class Landlock:
    """Landlock and a filter of system calls, on the system as it is. `temporary` is where commands
    get a private folder each."""

    temporary: Path
    private: tuple[Path, ...] = ()
    kind: ClassVar[Kind] = "landlock"
    notes: ClassVar[str] = (
        "No network, no sockets, no /proc; modes and times of files stay as they are: run "
        "scripts with `sh FILE`. New files go into folders such as work/, not beside a protected "
        "file or a .git."
    )

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """See `Sandbox`."""
        refuse_unless_usable(confined, self.private)
        if relay is not None or confined.network != "none":
            raise SandboxRefused(
                "commands have no network in this sandbox",
                hint="It needs bubblewrap (`nanobot doctor` says how); web_fetch works.",
            )
        spec = _spec(self.kind, confined, _environment(confined))._replace(
            readable=(*readable(names=True), *map(str, confined.extra_read_only)),
            temporary=str(self.temporary),
        )
        return _launch(spec, command)


@dataclass(frozen=True, slots=True)
class Unconfined:
    """No sandbox, by the owner's choice: limits, a small environment, and nothing left behind."""

    kind: ClassVar[Kind] = "none"
    notes: ClassVar[str] = ""

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """See `Sandbox`. A relay is of no use, for the network is there."""
        home = os.path.expanduser("~")  # noqa: PTH111 - `Path.home` raises where there is none
        environment = {"HOME": home, **_environment(confined)}
        return _launch(_spec(self.kind, confined, environment), command)


def _spec(kind: Kind, confined: Confined, environment: dict[str, str]) -> Spec:
    return Spec(
        kind=kind,
        workspace=str(confined.workspace),
        cwd=str(confined.cwd or confined.workspace),
        read_only=confined.read_only,
        hide_git=confined.hide_git,
        writable=tuple(map(str, confined.writable)),
        environment=environment,
        limits=Limits(
            confined.memory_megabytes,
            confined.processes,
            confined.file_megabytes,
            _DISK_MEGABYTES,
        ),
        ledger=confined.ledger,
    )


def _environment(confined: Confined) -> dict[str, str]:
    """Small and fixed; nothing of ours is inherited."""
    fixed = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "agent", "LOGNAME": "agent"}
    if confined.network == "relay":
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            fixed |= {name: _PROXY, name.lower(): _PROXY}
        fixed |= {"NO_PROXY": _NOWHERE, "no_proxy": _NOWHERE, "NODE_USE_ENV_PROXY": "1"}
    return {**fixed, **confined.environment}


def _borrowed() -> tuple[str, ...]:
    """What the second half of the program runs on, as far as commands do not see it anyway."""
    own = (libraries(), str(_PROGRAM))
    return tuple(path for path in own if not Path(path).is_relative_to("/usr"))


def _launch(spec: Spec, command: Sequence[str]) -> Launch:
    start = (interpreter(), "-E", "-s", "-S", str(_PROGRAM), "start")
    passed = (spec.ledger,) if spec.ledger >= 0 else ()
    return Launch((*start, *command), {VARIABLE: spec.as_text()}, "/", passed)
