"""Child processes for untrusted input (HTML, PDF, a model's regular expression). Parsers are large
programs, and Python's `re` can take exponential time and holds the interpreter's lock.

Invariant: a child has limits on memory, time and output, and inherits no environment. Its script
imports nothing of nanobot and gets its input after the limits are set."""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

from msgspec import Struct

from nanobot import programs

_LARGEST_ANSWER = 64 * 1024 * 1024


class WorkerFailed(Exception):
    """There is no answer. `str(error)` completes "it …"."""


class WorkerLimits(Struct, frozen=True):
    """`seconds` of wall time, and about as many of processor time. `megabytes` of memory."""

    seconds: float
    megabytes: int = 1_024


def run_worker(
    script: Path, arguments: Iterable[object], content: Iterable[bytes], limits: WorkerLimits
) -> bytes:
    """Return the output of `script` for the input `content`, which is streamed. Blocks. Raise
    `WorkerFailed`, and any error of `content`."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            launch = programs.own_script(script, *map(str, arguments))
            child = launch.popen(stdin=PIPE, stdout=output.fileno())
        except OSError as error:
            raise WorkerFailed(f"could not be started ({error.strerror})") from error
        alarm = threading.Timer(limits.seconds, child.kill)
        alarm.start()
        try:
            limit_process(child.pid, limits)
            assert child.stdin is not None
            with suppress(BrokenPipeError), child.stdin as pipe:
                for piece in content:
                    pipe.write(piece)
            code = child.wait()
        finally:
            alarm.cancel()
            child.kill()
            child.wait()
        if code and time.monotonic() - begun >= limits.seconds:
            raise WorkerFailed(f"took longer than {limits.seconds:g} seconds")
        if code:
            raise WorkerFailed(f"ended with code {code}: it needed too much time or memory")
        output.seek(0)
        return output.read()


def limit_process(process: int, limits: WorkerLimits) -> None:
    """Limit processor time, memory and file sizes. Disable core files."""
    for what, most in (
        (resource.RLIMIT_CPU, int(limits.seconds) + 1),
        (resource.RLIMIT_AS, limits.megabytes * 1024 * 1024),
        (resource.RLIMIT_FSIZE, _LARGEST_ANSWER),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ProcessLookupError):
            hard = resource.prlimit(process, what)[1]
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(process, what, (allowed, allowed))
