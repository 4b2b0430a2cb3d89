"""A small disk, which a test really fills or makes read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A file system in memory, mounted at `path` only for the commands of `run`."""

    def __init__(self, path: Path, holder: subprocess.Popen[str]) -> None:
        self.path, self._holder = path, holder

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs a command with the mounted disk."""
        target = f"--target={self._holder.pid}"
        return ["nsenter", target, "--user", "--mount", "--preserve-credentials", *command]

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*command),
            env=os.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def nanobot(
        self, *arguments: str, program: Sequence[str] = ("-m", "nanobot"), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of nanobot, or a `program` in Python, on the home `path`/home, with the
        built-in model."""
        settings: Mapping[str, str] = {
            "NANOBOT_HOME": str(self.path / "home"),
            "NANOBOT_MODEL__PROVIDER": "offline",
            "NANOBOT_RETENTION__DISK_RESERVE_MEGABYTES": "0",
        }
        return self.run(sys.executable, *program, *arguments, **{**settings, **environ})

    def fill(self) -> None:
        """Fill it to the last byte."""
        self.run("dd", "if=/dev/zero", f"of={self.path}/fill", "bs=1024")
        assert self.run("sh", "-c", f"echo more > {self.path}/more").returncode != 0

    def empty(self) -> None:
        """Free the space."""
        assert self.run("rm", f"{self.path}/fill").returncode == 0

    def forbid_writing(self) -> None:
        """Make it read-only."""
        assert self.run("mount", "-o", "remount,ro", str(self.path)).returncode == 0


@contextmanager
def small_disk(path: Path, megabytes: int = 24) -> Iterator[SmallDisk]:
    """Create a disk at `path`, a new folder. Skip the test if mounting is not permitted."""
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("there is no unshare or nsenter to mount a disk with")
    path.mkdir()
    mount = f"mount -t tmpfs -o size={megabytes}m tmpfs {path} && echo ready && exec sleep 600"
    holding = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount]
    with subprocess.Popen(holding, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            if not holder.stdout.readline():
                pytest.skip("this machine lets nobody mount a disk")
            yield SmallDisk(path, holder)
        finally:
            holder.kill()
