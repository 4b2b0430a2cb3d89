"""A clean root as a person's machine: commands and running programs.

They have their own mounts and processes. They share the network of this machine, because they fetch
packages and use servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.clean_room.accounts import as_user, home_of
from scripts.clean_room.package_settings import PLACE, PackageSettings
from scripts.clean_room.processes import child_of, end, run_to_end
from scripts.clean_room.steps import StepFailed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path for programs, unless an image sets another one."""

_ENTER = f"""
set -e
root=$1; lent=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root{PLACE}"
mount --bind "$lent" "$root{PLACE}"
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --bind "$1" "$root$1"; shift; done
shift
exec chroot "$root" "$@"
"""

_POLL_SECONDS = 0.05
_RUN_SECONDS = 1800.0


class Program:
    """A running program and its output so far."""

    def __init__(self, title: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._title, self._process, self._log = title, process, log

    def until(self, pattern: str, seconds: float = 30.0) -> re.Match[str]:
        """Wait until it has printed this. Raise `StepFailed`."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.output())):
            if self._process.poll() is not None:
                raise StepFailed(f"{self._title} ended", self.output())
            if time.monotonic() > deadline:
                raise StepFailed(f"{self._title} did not print {pattern}", self.output())
            time.sleep(_POLL_SECONDS)
        return found

    def say(self, line: str) -> None:
        """Type a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def stop(self, seconds: float = 45.0) -> int:
        """Send SIGTERM, and return the exit code. Raise `StepFailed` if it does not end in time."""
        try:
            os.kill(child_of(self._process), signal.SIGTERM)
            return self._process.wait(seconds)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            raise StepFailed(f"{self._title} cannot be stopped", self.output()) from None

    def output(self) -> str:
        """Return both outputs."""
        return self._log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Machine:
    """A root in which `user` works in `folder`, with `variables` for every command. `lent` has the
    package settings, which commands see only with `lend`."""

    root: Path
    lent: PackageSettings
    user: str = "root"
    folder: str = "/"
    variables: Mapping[str, str] = field(default_factory=dict)
    lend: bool = True

    def run(self, *words: str, text: str = "") -> str:
        """Run a command and return its output. `text` is its standard input. Raise `StepFailed` if
        it fails or takes too long."""
        done = run_to_end(self._entering(words), _RUN_SECONDS, text)
        if done.returncode != 0:
            problem = f"{' '.join(words)[:60]}: exit code {done.returncode}"
            raise StepFailed(problem, done.stdout)
        return done.stdout

    @contextmanager
    def running(self, title: str, *words: str) -> Iterator[Program]:
        """Run a program in the background, and kill it at the end if it has not ended."""
        log = self.root.with_name(f"{self.root.name}-{title}.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._entering(words),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Program(title, process, log)
        finally:
            end(process)
            if process.stdin is not None:
                process.stdin.close()

    def _entering(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` here. All processes started by it end with it."""
        known = {"PATH": PATH, "HOME": home_of(self.root, self.user)} | dict(self.variables)
        environment = known | dict(self.lent.variables if self.lend else {})
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
            *("sh", "-c", _ENTER, "sh", str(self.root), str(self.lent.folder)),
            *(*map(str, self.lent.paths), "--"),
            *(*as_user(self.root, self.user), "env", "-i", "-C", self.folder),
            *(*(f"{name}={value}" for name, value in environment.items()), *words),
        ]
