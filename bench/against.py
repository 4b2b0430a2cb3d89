"""Compare this version with another one, whose checkout has its own `.venv`.

    python -m bench.against CHECKOUT [--rounds N] [--only turns] [--json]

The versions are measured in turn (ABAB…), and medians are printed. A version uses its own bench if
it has one. Otherwise `bench.either` runs with the code of each version. The program `nanobot` is
measured as a whole. Five rounds take a quarter of an hour. `bench.all` does not include this
bench."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

from bench import chats, startup
from bench.common import ModelServer, median
from bench.reporting import report

HERE = Path(__file__).resolve().parents[1]

WANTED = {
    "turns": {
        "CPU per turn, empty session [ms]": "<= 1.4",
        "ratio": "<= 1.2",
    },
    "sessions": {"save_long_ms": ""},
    "search": {"search_p50_ms": ""},
    "either": {
        "50 chats x 20 messages at 0 ms, with the log on [turns/s]": ">= 800",
        "50 chats x 20 messages at 200 ms, with the log on [s]": "<= 4.3",
        "reading 11 of 100,000 messages [ms]": "<= 5",
        "opening 100,000 messages, all in the window [s]": "<= 0.35",
        "a turn beside a Dream over a backlog, against one alone": "<= 1.5",
        "400 of its 5,000 entries, turns beside them [s, at most 20]": "",
    },
    "startup": startup.FIGURES,
    "chats": chats.FIGURES,
    "prompt": {"prompt tokens in all": "<= 120,000", "of which uncached": "<= 6,000"},
}
"""The compared figures by bench, and the target for this version. Names begin the same in both
versions."""
PROGRAMS: Mapping[str, Callable[[str, str], Iterator[float]]] = {
    "startup": startup.measure,
    "chats": chats.measure,
}


def measure(bench: str, checkout: Path, server: str) -> Iterator[float]:
    """Yield the compared figures of a bench in the order of `WANTED`."""
    programs = checkout / ".venv" / "bin"
    if bench in PROGRAMS:
        yield from PROGRAMS[bench](str(programs / "nanobot"), server)
        return
    own = ("-m", f"bench.{bench}")
    command = ("-P", str(HERE / "bench" / "either.py")) if bench == "either" else own
    done = subprocess.run(
        [programs / "python", *command, "--json"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    for wanted in WANTED[bench]:
        yield next(value for name, value in found.items() if name.startswith(wanted))


def compare(bench: str, other: Path, rounds: int, server: str) -> Mapping[str, object]:
    """Return for each figure the other version's value, this version's, the ratio and the
    target."""
    found: dict[Path, list[tuple[float, ...]]] = {other: [], HERE: []}
    for _, checkout in product(range(rounds), found):
        found[checkout].append(tuple(measure(bench, checkout, server)))
    there, here = ([median(each) for each in zip(*one, strict=True)] for one in found.values())
    lines = {}
    for (name, wanted), before, now in zip(WANTED[bench].items(), there, here, strict=True):
        share = f"{now / before:.2f}" if before else "-"
        lines[f"{bench}: {name}"] = f"{before:>12,.3f} {now:>12,.3f} {share:>7}  {wanted}"
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="This version against another one.")
    parser.add_argument("checkout", type=Path, help="the other version, with a .venv of its own")
    parser.add_argument("--rounds", type=int, default=5, help="of both")
    parser.add_argument("--only", default="", help="the benches whose name holds this")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    with ModelServer() as server:
        for bench in WANTED:
            if options.only in bench:
                figures |= compare(
                    bench, options.checkout.resolve(), options.rounds, server.base_url
                )
    report("against: there, here, here / there, wanted here", figures)


if __name__ == "__main__":
    main()
