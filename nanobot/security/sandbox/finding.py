"""Which sandbox works here, proven by a command that tries to get out of it.

What that says of itself is one half; the other is looked at from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from nanobot.errors import ToolError
from nanobot.security.confine import landlock
from nanobot.security.confine.seccomp import MACHINES
from nanobot.security.sandbox.kinds import (
    PATH,
    Bubblewrap,
    Confined,
    Found,
    Landlock,
    Sandbox,
    Unconfined,
    interpreter,
    libraries,
    readable,
)

_PROBE = Path(__file__).parent.parent / "confine" / "probe.py"
_SECONDS = 30.0
_SECRET = b"canary\n"


class _Ground(NamedTuple):
    """What stands outside to be attacked, and the workspace."""

    outside: Path
    workspace: Path
    listeners: tuple[socket.socket, ...]


async def proven(sandbox: Sandbox) -> str:
    """Empty if the sandbox holds, or else what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="nanobot-canary-") as folder, _ground(folder) as ground:
        confined = Confined(
            ground.workspace,
            read_only=("protected",),
            extra_read_only=_needed(),
            cwd=ground.workspace,
        )
        said, complaints = await _run(sandbox, confined, ground)
        return _verdict(said, complaints) or _seen_outside(ground)


@contextmanager
def _ground(folder: str) -> Iterator[_Ground]:
    outside, workspace = Path(folder, "outside"), Path(folder, "workspace")
    for path in (outside, workspace / "project" / ".git", workspace / "work"):
        path.mkdir(parents=True)
    (outside / "secret").write_bytes(_SECRET)
    (outside / "secret").chmod(0o600)
    (workspace / "protected").write_bytes(_SECRET)
    (workspace / "project" / ".git" / "config").write_bytes(_SECRET)
    with (
        socket.create_server(("127.0.0.1", 0)) as port,
        _unix(f"{outside}/socket") as named,
        _unix(f"\0nanobot-{os.urandom(8).hex()}") as abstract,
    ):
        yield _Ground(outside, workspace, (port, named, abstract))


def _unix(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def _needed() -> tuple[Path, ...]:
    """What the command itself is made of, where commands do not see that anyway."""
    paths = (Path(libraries()), _PROBE)
    return tuple(path for path in paths if not path.is_relative_to("/usr"))


def _myself() -> str:
    return f"{os.getpid()}:{Path('/proc/self/ns/pid').stat().st_ino}"


async def _run(sandbox: Sandbox, confined: Confined, ground: _Ground) -> tuple[str, str]:
    port, _, abstract = ground.listeners
    arguments = (
        str(ground.outside),
        str(ground.workspace),
        _myself(),
        str(port.getsockname()[1]),
        abstract.getsockname()[1:].decode(),
    )
    command = (interpreter(), "-E", "-s", "-S", str(_PROBE), *arguments)
    launch = sandbox.launch(command, confined)
    child = await launch.spawn(stdin=DEVNULL, stdout=PIPE)
    try:
        async with asyncio.timeout(_SECONDS):
            said, complaints = await child.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
    return said.decode(errors="replace"), complaints.decode(errors="replace")


def _verdict(said: str, complaints: str) -> str:
    try:
        crossed = json.loads(said)["crossed"]
    except (ValueError, KeyError, TypeError):
        return " ".join(complaints.split())[-300:] or "a command in it does not run"
    return f"a command in it could {', '.join(crossed)}" if crossed else ""


def _seen_outside(ground: _Ground) -> str:
    untouched = (
        ground.outside / "secret",
        ground.workspace / "protected",
        ground.workspace / "project" / ".git" / "config",
    )
    if any(path.read_bytes() != _SECRET for path in untouched):
        return "a command in it changed what it must not"
    if (ground.outside / "secret").stat().st_mode & 0o777 != 0o600:
        return "a command in it changed a file's mode"
    for listener in ground.listeners:
        listener.setblocking(False)
        with suppress(BlockingIOError):
            listener.accept()[0].close()
            return "a command in it connected to this machine"
    if not (ground.workspace / "work" / "allowed").exists():
        return "a command in it cannot write in the workspace"
    return ""


Wanted = Literal["auto", "bubblewrap", "landlock", "none"]

_INSTALL = "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`)"
_SETTINGS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor keeps bubblewrap from working"),
    ("kernel/unprivileged_userns_clone", "0", "user namespaces are off"),
    ("user/max_user_namespaces", "0", "user namespaces are off"),
)


async def find_sandbox(wanted: Wanted = "auto", *, private: Sequence[Path] = ()) -> Found:
    """The sandbox to use. `private` are folders that no command may be given (nanobot's home),
    save for the workspaces in them. Takes a few tenths of a second and starts processes."""
    if wanted == "none":
        return Found(Unconfined())
    if problem := _impossible(private):
        return Found(None, problem)
    problems = []
    for kind in ("bubblewrap", "landlock") if wanted == "auto" else (wanted,):
        made = _bubblewrap(private) if kind == "bubblewrap" else _landlock(private)
        if isinstance(made, str):
            problems.append(made)
        elif problem := await _tried(made):
            problems.append(problem)
        else:
            return Found(made, "; ".join(problems))
    return Found(None, "; ".join(problems))


class SandboxFinder:
    """Finds the sandbox when it is first needed, and again as long as there is none: the owner may
    install one meanwhile. `home` is nanobot's own folder."""

    def __init__(self, wanted: Wanted, home: Path) -> None:
        self._wanted, self._home = wanted, home
        self._found: Found | None = None
        self._finding = asyncio.Lock()

    async def __call__(self) -> Found:
        """What there is."""
        async with self._finding:
            if self._found is None or self._found.sandbox is None:
                self._found = await find_sandbox(self._wanted, private=(self._home,))
            return self._found


FindSandbox = Callable[[], Awaitable[Found]]
"""A `SandboxFinder`, or a test's."""


def _impossible(private: Sequence[Path]) -> str:
    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine not in MACHINES:
        return f"there is none for {machine.sysname} on {machine.machine}"
    for folder in private:
        real = Path(os.path.realpath(folder))
        if any(real.is_relative_to(shown) for shown in readable(names=True)):
            return f"{folder} lies where every command can read: move nanobot's home elsewhere"
    return ""


def _bubblewrap(private: Sequence[Path]) -> Sandbox | str:
    program = shutil.which("bwrap", path=PATH)
    return Bubblewrap(program, tuple(private)) if program else _INSTALL


def _landlock(private: Sequence[Path]) -> Sandbox | str:
    if problem := landlock.lack(landlock.version()):
        return problem
    return Landlock(Path(tempfile.gettempdir()), tuple(private))


async def _tried(sandbox: Sandbox) -> str:
    try:
        problem = await proven(sandbox)
    except (OSError, ToolError, TimeoutError) as error:
        problem = str(error) or "it does not answer"
    if not problem:
        return ""
    reason = _why_no_namespaces() if sandbox.kind == "bubblewrap" else ""
    return f"{sandbox.kind} does not work here: {problem}{reason}"


def _why_no_namespaces() -> str:
    for name, bad, meaning in _SETTINGS:
        setting = Path("/proc/sys", name)
        if setting.exists() and setting.read_text().strip() == bad:
            return f" ({meaning}: {name.replace('/', '.')}={bad})"
    return ""
