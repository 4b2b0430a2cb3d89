"""Measure the duration of commands and the resources of a gateway, as whole processes.

Times are wall clock, and memory is the resident set. Figures are medians of rounds with a new home
each. The model is a server in a separate process, so the first turn and the one-shot in process use
HTTP. CPU is the use of an idle gateway."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.common import ModelServer, median
from bench.reporting import report

NANOBOT = str(Path(sys.executable).with_name("nanobot"))
ROUNDS = 7
IDLE_SECONDS = 3

FIGURES = {
    "nanobot --version [s]": "<= 0.10",
    "nanobot --help [s]": "<= 0.07",
    "nanobot agent -m hi, in process, offline model [s]": "<= 0.6",
    "nanobot agent -m hi, in process, over HTTP [s]": "<= 0.6",
    "nanobot agent -m hi, through the gateway [s]": "<= 0.08",
    "gateway ready [s]": "<= 0.22",
    "gateway idle, before the first turn [MiB]": "<= 45",
    "gateway idle, after it [MiB]": "<= 55",
    f"CPU while idle for {IDLE_SECONDS} s [s]": "0",
}
"""The figures in the order of `measure`, and their targets."""


def measure(nanobot: str, server: str) -> Iterator[float]:
    """Yield the figures of one round of the program `nanobot`, with the model at `server`."""
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "NANOBOT_HOME": home}
        online = environ | {
            "NANOBOT_MODEL__PROVIDER": "openai",
            "NANOBOT_MODEL__NAME": "bench",
            "NANOBOT_MODEL__BASE_URL": server,
        }
        one_shot = [nanobot, "agent", "-m", "hi"]
        yield seconds([nanobot, "--version"], environ)
        yield seconds([nanobot, "--help"], environ)
        yield seconds(one_shot, environ)
        yield seconds(one_shot, online)
        with running_gateway(online, nanobot) as (pid, ready):
            time.sleep(IDLE_SECONDS)
            idle = resident(pid)
            seconds(one_shot, online)
            after = resident(pid)
            yield median([seconds(one_shot, online) for _ in range(5)])
            yield from (ready, idle, after)
            before = cpu_seconds(pid)
            time.sleep(IDLE_SECONDS)
            yield cpu_seconds(pid) - before


def seconds(command: list[str], environ: Mapping[str, str]) -> float:
    """Return the wall time of a command."""
    started = time.perf_counter()
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


@contextmanager
def running_gateway(environ: Mapping[str, str], nanobot: str) -> Iterator[tuple[int, float]]:
    """Run a gateway process. Yield its pid and the seconds until it was ready."""
    started = time.perf_counter()
    process = subprocess.Popen([nanobot, "gateway"], env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "ready" in line:
            break
    ready = time.perf_counter() - started
    # Without a reader it would block on a full pipe of log lines.
    logged = threading.Thread(target=process.stderr.read, daemon=True)
    logged.start()
    try:
        yield process.pid, ready
    finally:
        process.terminate()
        process.wait()
        logged.join()


def resident(pid: int) -> float:
    """Return the resident set in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)


def cpu_seconds(pid: int) -> float:
    """Return the used CPU, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description="Commands and a gateway as processes.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="each with a new home")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    rounds_wanted = parser.parse_args().rounds
    with ModelServer() as server:
        rounds = [tuple(measure(NANOBOT, server.base_url)) for _ in range(rounds_wanted)]
    labels = [f"{name} (target {wanted})" for name, wanted in FIGURES.items()]
    medians = [median(figure) for figure in zip(*rounds, strict=True)]
    report("startup", dict(zip(labels, medians, strict=True)))


if __name__ == "__main__":
    main()
