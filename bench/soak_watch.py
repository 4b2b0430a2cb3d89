"""Samples the resources of a running process, and finds trends.

A sample is taken every few seconds. A trend is a least-squares line through the means of some
twenty equal stretches of time. Neighbouring samples are alike (a conversation fills up, is
consolidated, and fills up again), so the error of a line through all of them would seem far too
small."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles

MIB = 1024 * 1024
_STRETCHES = 20
_LEAST = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `at` and `cpu` in seconds, sizes in bytes. `tasks` is -1 if unknown."""

    at: float
    resident: int
    private: int
    descriptors: int
    threads: int
    children: int
    tasks: int
    cpu: float
    disk: int


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope per hour, with its standard error."""

    slope: float
    error: float

    def __str__(self) -> str:
        return f"{self.slope:+.2f} ± {self.error:.2f}"


def look(pid: int, at: float, tasks: int, home: Path) -> Sample:
    """Take a sample of a process. Database files in `home` count as disk."""
    process = Path(f"/proc/{pid}")
    memory = _fields(process / "smaps_rollup")
    status = _fields(process / "status")
    return Sample(
        at=at,
        resident=1024 * memory["Rss"],
        private=1024 * memory.get("Pss_Anon", memory["Pss"]),
        descriptors=sum(1 for _ in (process / "fd").iterdir()),
        threads=status["Threads"],
        children=_children(process),
        tasks=tasks,
        cpu=_cpu_seconds(process),
        disk=sum(path.stat().st_size for path in (home / "state").glob("*.db*")),
    )


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Return the line through points whose first value is a time in seconds."""
    means = _stretches(points)
    if len(means) < _LEAST:
        return Trend(0.0, math.inf)
    middle, level = fmean(x for x, _ in means), fmean(y for _, y in means)
    spread = sum((x - middle) ** 2 for x, _ in means)
    slope = sum((x - middle) * (y - level) for x, y in means) / spread
    left = sum((y - level - slope * (x - middle)) ** 2 for x, y in means)
    error = math.sqrt(left / (len(means) - 2) / spread)
    return Trend(3600 * slope, 3600 * error)


def growth(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth from the first half to the last, at the tenth percentile of each, because
    high values are momentary."""
    values = [value for _, value in points]
    half = len(values) // 2
    if half < _LEAST:
        return 0.0
    first, last = (quantiles(part, n=10)[0] for part in (values[:half], values[half:]))
    return last - first


def series(samples: Sequence[Sample], of: Callable[[Sample], float]) -> list[tuple[float, float]]:
    """Return points over time."""
    return [(sample.at, of(sample)) for sample in samples]


def _stretches(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the mean time and value of each stretch that has points."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    length = (last - first) / _STRETCHES or 1.0
    stretches: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        number = min(int((point[0] - first) / length), _STRETCHES - 1)
        stretches.setdefault(number, []).append(point)
    return [(fmean(x for x, _ in some), fmean(y for _, y in some)) for some in stretches.values()]


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of `Name: value` lines."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        value = rest.split()
        if value and value[0].isdigit():
            found[name] = int(value[0])
    return found


def _children(process: Path) -> int:
    """Return the number of children of all threads of a process."""
    lists = [path.read_text() for path in process.glob("task/*/children")]
    return sum(len(text.split()) for text in lists)


def _cpu_seconds(process: Path) -> float:
    fields = (process / "stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
