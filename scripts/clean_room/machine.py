"""A clean root as somebody's machine: commands that are run there, and programs that go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.clean_room.roots import Roots, child_of, end
from scripts.clean_room.steps import StepFailed

_POLL_SECONDS = 0.05


class Program:
    """A program that runs, with what it printed so far."""

    def __init__(self, title: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._title, self._process, self._log = title, process, log

    def until(self, pattern: str, seconds: float = 30.0) -> re.Match[str]:
        """Wait until it has printed this. Raises `StepFailed`."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.printed())):
            if self._process.poll() is not None:
                raise StepFailed(f"{self._title} ended", self.printed())
            if time.monotonic() > deadline:
                raise StepFailed(f"{self._title} does not say {pattern}", self.printed())
            time.sleep(_POLL_SECONDS)
        return found

    def say(self, line: str) -> None:
        """Type a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def stop(self, seconds: float = 45.0) -> int:
        """SIGTERM; its exit code. Raises `StepFailed` where it does not end in time."""
        try:
            os.kill(child_of(self._process), signal.SIGTERM)
            return self._process.wait(seconds)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            raise StepFailed(f"{self._title} cannot be stopped", self.printed()) from None

    def printed(self) -> str:
        """Both its outputs."""
        return self._log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Machine:
    """A root where `user` works in `folder`; `variables` are set for all that runs. With `lend`
    commands are told where packages come from."""

    roots: Roots
    root: Path
    user: str = "root"
    folder: str = "/"
    variables: Mapping[str, str] = field(default_factory=dict)
    lend: bool = True

    def run(self, *words: str, text: str = "", seconds: float = 600.0) -> str:
        """What a command printed. Raises `StepFailed` where it fails."""
        code, said = self.tried(*words, text=text, seconds=seconds)
        if code != 0:
            raise StepFailed(f"{' '.join(words)[:60]}: exit code {code}", said)
        return said

    def tried(self, *words: str, text: str = "", seconds: float = 600.0) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        done = self.roots.run(
            self.root,
            words,
            user=self.user,
            folder=self.folder,
            variables=self.variables,
            lend=self.lend,
            text=text,
            seconds=seconds,
        )
        return done.returncode, done.stdout

    @contextmanager
    def running(self, title: str, *words: str) -> Iterator[Program]:
        """A program, while the `with` lasts; then it is killed if it has not ended."""
        log = self.root.with_name(f"{self.root.name}-{title}.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.roots.entering(
                    self.root,
                    words,
                    user=self.user,
                    folder=self.folder,
                    variables=self.variables,
                    lend=self.lend,
                ),
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
