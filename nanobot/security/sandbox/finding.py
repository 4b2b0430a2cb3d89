"""Which sandbox works here, proven by a command (`confine/probe`) that tries to get out of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nanobot.errors import ToolError
from nanobot.programs import find
from nanobot.security.sandbox import PATH, Confined, Sandbox, interpreter, program_folders, readable

_PROBE = Path(__file__).parent.parent / "confine" / "probe.py"
_SECONDS = 30.0


class FoundSandbox(Struct, frozen=True):
    """A sandbox that was proven to hold, or none and what to do about it. A `problem` beside a
    sandbox is why a better one was not used."""

    sandbox: Sandbox | None
    problem: str = ""


def _myself() -> str:
    return f"{os.getpid()}:{Path('/proc/self/ns/pid').stat().st_ino}"


async def verify_sandbox(sandbox: Sandbox) -> str:
    """Empty if the sandbox holds, or else what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="nanobot-canary-") as folder, ExitStack() as stack:
        outside, workspace = Path(folder, "outside"), Path(folder, "workspace")
        project = workspace / "project" / ".git"
        for path in (outside, project, workspace / "work"):
            path.mkdir(parents=True)
        for path in (outside / "secret", workspace / "protected", project / "config"):
            path.write_bytes(b"canary\n")
        (outside / "secret").chmod(0o600)
        abstract = f"nanobot-{os.urandom(8).hex()}"
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for address in (f"{outside}/socket", f"{workspace}/socket", f"\0{abstract}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        arguments = (str(outside), str(workspace), _myself(), str(port), abstract)
        confined = Confined(
            workspace,
            read_only=("protected",),
            extra_read_only=program_folders(_PROBE),
            cwd=workspace,
        )
        command = (interpreter(), "-E", "-s", "-S", str(_PROBE), *arguments)
        child = await sandbox.launch(command, confined).spawn(stdin=DEVNULL, stdout=PIPE)
        try:
            async with asyncio.timeout(_SECONDS):
                said, complaints = await child.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
    try:
        crossed = json.loads(said)["crossed"]
    except (ValueError, KeyError, TypeError):
        text = " ".join(complaints.decode(errors="replace").split())
        return text[-300:] or "a command in it does not run"
    return f"a command in it could {', '.join(crossed)}" if crossed else ""


Wanted = Literal["auto", "bubblewrap", "landlock", "none"]

_INSTALL = "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`)"
_NAMESPACES = " (it needs user namespaces: docs/security.md says how to allow them)"


async def find_sandbox(wanted: Wanted = "auto", *, private: Sequence[Path] = ()) -> FoundSandbox:
    """The sandbox to use. `private` are folders that no command may be given (nanobot's home),
    save for the workspaces in them. Takes a few tenths of a second and starts processes."""
    if wanted == "none":
        return FoundSandbox(Sandbox("none"))
    if problem := _unsupported(private):
        return FoundSandbox(None, problem)
    problems = []
    if wanted in ("auto", "bubblewrap"):
        program = find("bwrap", PATH)
        made = Sandbox("bubblewrap", tuple(private), program)
        problem = await _problem_with(made) if program else _INSTALL
        if not problem:
            return FoundSandbox(made)
        problems.append(problem)
    if wanted in ("auto", "landlock"):
        from nanobot.security.confine.stage import landlock_lack, landlock_version

        made = Sandbox("landlock", tuple(private))
        problem = landlock_lack(landlock_version()) or await _problem_with(made)
        if not problem:
            return FoundSandbox(made, "; ".join(problems))
        problems.append(problem)
    return FoundSandbox(None, "; ".join(problems))


class SandboxFinder:
    """Finds the sandbox when it is first needed, and again as long as there is none: the owner may
    install one meanwhile. `private` are nanobot's own folders."""

    def __init__(self, wanted: Wanted, *private: Path) -> None:
        self._wanted, self._private = wanted, private
        self._found: FoundSandbox | None = None
        self._finding = asyncio.Lock()

    async def __call__(self) -> FoundSandbox:
        async with self._finding:
            if self._found is None or self._found.sandbox is None:
                self._found = await find_sandbox(self._wanted, private=self._private)
            return self._found


FindSandbox = Callable[[], Awaitable[FoundSandbox]]
"""A `SandboxFinder`, or a test's."""


def _unsupported(private: Sequence[Path]) -> str:
    from nanobot.security.confine.seccomp import MACHINES  # loads ctypes

    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine not in MACHINES:
        return f"there is none for {machine.sysname} on {machine.machine}"
    for folder in private:
        real = Path(os.path.realpath(folder))
        if any(real.is_relative_to(shown) for shown in readable(names=True)):
            return f"{folder} lies where every command can read: move nanobot's home elsewhere"
    return ""


async def _problem_with(sandbox: Sandbox) -> str:
    try:
        problem = await verify_sandbox(sandbox)
    except (OSError, ToolError, TimeoutError) as error:
        problem = str(error) or "it does not answer"
    if not problem:
        return ""
    reason = _NAMESPACES if sandbox.kind == "bubblewrap" else ""
    return f"{sandbox.kind} does not work here: {problem}{reason}"
