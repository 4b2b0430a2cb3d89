"""Processes in a root: a process here waits for another one in there."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

Process = subprocess.Popen[bytes] | subprocess.Popen[str]

OVERDUE = 124
"""Exit code after a timeout, as of `timeout`."""

_END_SECONDS = 10.0


def run_to_end(
    command: Sequence[str], seconds: float, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends. `text` is its standard input. Its output is captured together
    with errors. After the timeout it is killed, with `OVERDUE` as its exit code."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        said, _ = process.communicate(text, seconds)
    except subprocess.TimeoutExpired:
        end(process)
        said, _ = process.communicate()
        said += f"it did not stop within {seconds:g} s\n"
        return subprocess.CompletedProcess(command, OVERDUE, said)
    finally:
        end(process)
    return subprocess.CompletedProcess(command, process.returncode, said)


def child_of(process: Process) -> int:
    """Return the first child of a process, by its number on this machine. Raise
    `ProcessLookupError` if there is none."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return int(children.read_text().split()[0])
    except (OSError, IndexError):
        raise ProcessLookupError(process.pid) from None


def end(process: Process) -> None:
    """Kill a process in a root, and wait until all its children are gone."""
    with suppress(ProcessLookupError):
        os.kill(child_of(process), signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    process.kill()
    process.wait()
