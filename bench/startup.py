"""How long commands take and what a gateway needs, as whole processes.

    python -m bench.startup
    python -m bench.startup --against NANOBOT    the start of a gateway, this one's and that of
                                                 another version's program, in turn, as ratios

Times are wall clock, medians; memory is the resident set of an idle gateway before and after its
first turn, with a real provider (the SDK is loaded then); CPU is what it uses while nothing
happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.common import ModelServer, median
from bench.reporting import report

NANOBOT = str(Path(sys.executable).with_name("nanobot"))
RUNS = 9
ONLINE = {
    "NANOBOT_MODEL__PROVIDER": "openai",
    "NANOBOT_MODEL__NAME": "bench",
    "NANOBOT_MODEL__BASE_URL": "http://127.0.0.1:9/v1",
}
"""A model over HTTP; no server is needed before the first turn."""


def seconds(command: list[str], environ: dict[str, str]) -> float:
    """Median wall time of a command."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return median(times)


@contextmanager
def running_gateway(environ: dict[str, str], nanobot: str = NANOBOT) -> Iterator[tuple[int, float]]:
    """A gateway process: its pid and how long it took until it was ready."""
    started = time.perf_counter()
    process = subprocess.Popen([nanobot, "gateway"], env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "ready" in line:
            break
    ready = time.perf_counter() - started
    try:
        yield process.pid, ready
    finally:
        process.terminate()
        process.communicate()


def resident(pid: int) -> float:
    """MiB in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)


def cpu_seconds(pid: int) -> float:
    """CPU used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def against(other: str) -> dict[str, object]:
    """Ratios of this version's gateway to that of the program `other`, each with a new home."""
    ready: dict[str, list[float]] = {NANOBOT: [], other: []}
    idle: dict[str, list[float]] = {NANOBOT: [], other: []}
    for _ in range(RUNS):
        for nanobot in (NANOBOT, other):
            with tempfile.TemporaryDirectory() as home:
                environ = {**os.environ, **ONLINE, "NANOBOT_HOME": home}
                with running_gateway(environ, nanobot) as (pid, seconds_taken):
                    ready[nanobot].append(seconds_taken)
                    time.sleep(2)
                    idle[nanobot].append(resident(pid))
    here, there = median(idle[NANOBOT]), median(idle[other])
    return {
        "gateway ready, here [s]": median(ready[NANOBOT]),
        "gateway ready, against the other": median(ready[NANOBOT]) / median(ready[other]),
        "gateway idle, here [MiB]": here,
        "gateway idle, against the other": here / there,
    }


def main() -> None:
    """Run and print."""
    if "--against" in sys.argv:
        report("startup", against(sys.argv[sys.argv.index("--against") + 1]))
        return
    with tempfile.TemporaryDirectory() as folder, ModelServer() as server:
        environ = {**os.environ, "NANOBOT_HOME": f"{folder}/offline"}
        figures: dict[str, object] = {
            "bare python -c pass [s]": seconds([sys.executable, "-c", "pass"], environ),
            "nanobot --version [s] (target <= 0.10)": seconds([NANOBOT, "--version"], environ),
            "nanobot agent -m hi, in process [s] (target <= 1.0)": seconds(
                [NANOBOT, "agent", "-m", "hi"], environ
            ),
        }
        online = {
            **environ,
            **ONLINE,
            "NANOBOT_HOME": f"{folder}/online",
            "NANOBOT_MODEL__BASE_URL": server.base_url,
        }
        with running_gateway(online) as (pid, ready):
            figures["gateway ready [s] (target <= 0.8)"] = ready
            figures["gateway idle, before the first turn [MiB] (target <= 70)"] = resident(pid)
            subprocess.run(
                [NANOBOT, "agent", "-m", "hi"], env=online, check=True, stdout=subprocess.DEVNULL
            )
            figures["gateway idle, after it [MiB] (target <= 110)"] = resident(pid)
            figures["nanobot agent -m hi, through the gateway [s] (target <= 0.20)"] = seconds(
                [NANOBOT, "agent", "-m", "hi"], online
            )
            before = cpu_seconds(pid)
            time.sleep(10)
            figures["CPU while idle for 10 s [s] (target 0)"] = cpu_seconds(pid) - before
    report("startup", figures)


if __name__ == "__main__":
    main()
