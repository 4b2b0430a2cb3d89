"""Measure what 10,000 conversations of four messages cost beyond an empty home, as whole processes.

The CPU of a start is the gateway's three seconds after it is ready, and memory is its resident set
then. The very first start of a home is its CPU until it has finished. The other figures are from
later starts. Medians of rounds with new homes, alternately empty and full."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from bench.common import median, write_session
from bench.reporting import report
from bench.startup import NANOBOT, cpu_seconds, resident, running_gateway

CHATS, ROUNDS = 10_000, 5
_SETTLED, _CALLS, _PATIENCE = 3.0, 10, 60
_WANTED = {
    "gateway, CPU of its very first start [s]": "<= 2",
    "gateway, CPU of its start [s]": "<= 1.2 x empty",
    "gateway, idle [MiB]": "<= 55",
    "gateway, CPU of `status` [ms]": "<= 20",
    "`sessions list`, CPU [s]": "<= 1.3 x empty",
    "`agent -m hi` in process, CPU [s]": "as empty",
}
FIGURES = {
    f"{name}, {home}": wanted if home != "empty" else ""
    for name, wanted in _WANTED.items()
    for home in ("empty", f"{CHATS:,} chats")
}
"""The figures in the order of `measure`, and their targets."""


def measure(nanobot: str, _: str = "") -> Iterator[float]:
    """Yield the figures of one round of the program `nanobot`."""
    figures = []
    for count in (0, CHATS):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(count):
                write_session(Path(folder), f"cli:chat-{number}", 4, 0)
            environ = {**os.environ, "NANOBOT_HOME": folder}
            with running_gateway(environ, nanobot) as (pid, _ready):
                wait_until_idle(pid)
                first = cpu_seconds(pid)
            figures.append((first, *of_home(nanobot, environ)))
    yield from chain.from_iterable(zip(*figures, strict=True))


def of_home(nanobot: str, environ: Mapping[str, str]) -> Iterator[float]:
    """Yield the figures of one home."""
    with running_gateway(environ, nanobot) as (pid, _):
        time.sleep(_SETTLED)
        start = cpu_seconds(pid)
        yield start
        yield resident(pid)
        for _call in range(_CALLS):
            cpu_of([nanobot, "status"], environ)
        yield 1000 * (cpu_seconds(pid) - start) / _CALLS
        yield cpu_of([nanobot, "sessions", "list"], environ)
    yield cpu_of([nanobot, "agent", "-m", "hi"], environ)


def wait_until_idle(pid: int) -> None:
    """Return when a process has used no CPU for three seconds."""
    before = -1.0
    for _ in range(_PATIENCE):
        if (now := cpu_seconds(pid)) == before:
            return
        before = now
        time.sleep(_SETTLED)


def cpu_of(command: list[str], environ: Mapping[str, str]) -> float:
    """Return the CPU seconds of a command."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="What 10,000 conversations cost.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of both homes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    rounds = [tuple(measure(NANOBOT)) for _ in range(parser.parse_args().rounds)]
    labels = [f"{name} (target {wanted})" if wanted else name for name, wanted in FIGURES.items()]
    medians = [median(figure) for figure in zip(*rounds, strict=True)]
    report("chats", dict(zip(labels, medians, strict=True)))


if __name__ == "__main__":
    main()
