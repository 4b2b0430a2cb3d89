"""Which sandbox works here, proven by a command that tries to get out of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from nanobot.errors import ToolError
from nanobot.security.confine import landlock
from nanobot.security.confine.syscalls import MACHINES
from nanobot.security.sandbox import canary, system
from nanobot.security.sandbox.kinds import Bubblewrap, Landlock, Unconfined
from nanobot.security.sandbox.values import Found, Sandbox

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
    makers: dict[str, Callable[[tuple[Path, ...]], Sandbox | str]] = {
        "bubblewrap": _bubblewrap,
        "landlock": _landlock,
    }
    problems = []
    for name in makers if wanted == "auto" else (wanted,):
        made = makers[name](tuple(private))
        problem = made if isinstance(made, str) else await _tried(made)
        if problem:
            problems.append(problem)
        elif not isinstance(made, str):
            return Found(made, "; ".join(problems))
    return Found(None, "; ".join(problems))


def _impossible(private: Sequence[Path]) -> str:
    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine not in MACHINES:
        return f"there is none for {machine.sysname} on {machine.machine}"
    for folder in private:
        real = Path(os.path.realpath(folder))
        if any(real.is_relative_to(shown) for shown in system.readable(names=True)):
            return f"{folder} lies where every command can read: move nanobot's home elsewhere"
    return ""


def _bubblewrap(private: tuple[Path, ...]) -> Sandbox | str:
    program = shutil.which("bwrap", path=system.PATH)
    return Bubblewrap(program, private) if program else _INSTALL


def _landlock(private: tuple[Path, ...]) -> Sandbox | str:
    if problem := landlock.lack(landlock.version()):
        return problem
    return Landlock(Path(tempfile.gettempdir()), private)


async def _tried(sandbox: Sandbox) -> str:
    try:
        problem = await canary.proven(sandbox)
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
