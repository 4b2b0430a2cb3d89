"""Starts every program that nanobot runs: its workers, the sandbox, systemd, Node.js, ssh.

nanobot may have been started in a folder that the agent can write. So a `Launch` always has an
absolute path from a trusted folder, runs in `/` or a named folder, and gets a listed environment.
nanobot's own Python loads no module or start-up file from the current folder, PYTHONPATH or user
packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IWOTH
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

if TYPE_CHECKING:
    import asyncio
    import subprocess

_NONE, _PIPE = -3, -1
"""`subprocess.DEVNULL` and `PIPE`. `subprocess` is only imported when a program starts."""

_COMMON = "HOME|LANG|LC_[A-Z]+|LOGNAME|PATH|TERM|TMPDIR|TZ|USER"

_LOADERS = (
    r"PYTHON\w*|LD_\w+|GCONV_PATH|GIT_(?:CONFIG|EXEC|SSH)\w*|NODE_(?:OPTIONS|PATH)|PERL5\w*"
    r"|BASH_ENV|ENV"
)


class Launch(Struct, frozen=True):
    """A program to start. `argv` begins with an absolute path, `env` is the whole environment, and
    the program inherits the descriptors `pass_fds`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = "/"
    pass_fds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (self.argv[0].startswith("/") and self.cwd.startswith("/")):
            raise ValueError(f"not an absolute path: {self.argv[0]} in {self.cwd}")

    async def spawn(
        self, *, stdin: int, stdout: int, stderr: int = _PIPE, limit: int = 65_536
    ) -> asyncio.subprocess.Process:
        """Start the program as leader of a process group, to be killed as a whole. `limit` bounds a
        line of its output. Raises `OSError` and `ValueError`."""
        import asyncio

        return await asyncio.create_subprocess_exec(
            *self.argv,
            env=self.env,
            cwd=self.cwd,
            pass_fds=self.pass_fds,
            start_new_session=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=limit,
        )

    def popen(
        self,
        *,
        stdin: int | None,
        stdout: int | None,
        stderr: int | None = _NONE,
        session: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Start the program without an event loop. None means our own input or output. Without a
        `session` it also gets Ctrl-C. Raises `OSError` and `ValueError`."""
        import subprocess

        return subprocess.Popen(  # noqa: S603 - the rules above
            self.argv,
            env=self.env,
            cwd=self.cwd,
            pass_fds=self.pass_fds,
            start_new_session=session,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def run(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run the program without input and return its output. Raises `OSError` and
        `TimeoutExpired`."""
        import subprocess

        with self.popen(stdin=_NONE, stdout=_PIPE, stderr=_PIPE) as child:
            try:
                said, complaints = child.communicate(timeout=seconds)
            except BaseException:
                child.kill()
                raise
        texts = (said.decode(errors="replace"), complaints.decode(errors="replace"))
        return subprocess.CompletedProcess(self.argv, child.returncode, *texts)


def find(name: str, path: str | None = None) -> str:
    """Return a program's absolute path, or "" if there is none. `name` is an absolute path, or a
    name to look up in the trusted folders of `path` (default: PATH)."""
    import shutil

    if "/" in name and not name.startswith("/"):
        return ""
    given = os.environ.get("PATH", os.defpath) if path is None else path
    return shutil.which(name, path=":".join(filter(is_trusted, given.split(":")))) or ""


def is_trusted(folder: str) -> bool:
    """Return True if a folder is absolute and other users can't add a program to it."""
    with suppress(OSError):
        return folder.startswith("/") and not Path(folder).stat().st_mode & S_IWOTH
    return False


def program(name: str) -> str:
    """Return a program's absolute path. Raises `FileNotFoundError`."""
    if found := find(name):
        return found
    raise FileNotFoundError(2, "No such program", name)


def environment(more: str = "", **own: str) -> dict[str, str]:
    """Return our environment variables that most programs need or that match the pattern `more`,
    and `own`."""
    import re

    names = re.compile(f"{_COMMON}|{more}" if more else _COMMON)
    return {**{name: value for name, value in os.environ.items() if names.fullmatch(name)}, **own}


def own_script(script: Path, *arguments: str, **environ: str) -> Launch:
    """Return the launch of a nanobot script, with our packages and without our environment."""
    argv = (sys.executable, "-P", "-S", "-B", str(script), *arguments)
    return Launch(argv, {"PYTHONPATH": _modules(), "LC_ALL": "C.UTF-8", **environ})


def own_command(*arguments: str) -> Launch:
    """Return the launch of another `nanobot` command. Settings may refer to any variable, so it
    gets our environment, except variables that make programs load other code."""
    import re

    kept = {name: value for name, value in os.environ.items() if not re.fullmatch(_LOADERS, name)}
    argv = (sys.executable, "-P", "-s", "-m", "nanobot", *arguments)
    return Launch(argv, {**kept, "PYTHONPATH": _modules()})


def restart() -> NoReturn:
    """Replace this process by a new one with the same command line."""
    *options, start = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    if options[-1:] not in (["-m"], ["-c"]):
        start = str(Path(start).absolute())
    if "-P" not in options:  # no imports from the current folder
        options.insert(0, "-P")
    os.execv(sys.executable, (sys.executable, *options, start, *sys.argv[1:]))  # noqa: S606


def _modules() -> str:
    """Return our module folders, for a child's PYTHONPATH."""
    return ":".join(one for one in sys.path if one.startswith("/"))
