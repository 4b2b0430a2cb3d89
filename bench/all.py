"""Run every benchmark and fault campaign one after the other (`make bench`).

    python -m bench.all [FILE]           about two hours; the table goes to bench-results.md
    python -m bench.all --quick [FILE]   a smaller sample of most, in ten minutes or more
    python -m bench.all --only soak      only benches with this in their names

The cost of a message comes first. The tables are written again after each bench, so an interrupted
run leaves them. The exit code is 1 if a bench failed."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from bench.table import Outcome, markdown

DEFAULT = Path("bench-results.md")
_LAST = 300


@dataclass(frozen=True, slots=True)
class Bench:
    """A bench, its options in the full run, and those in the quick one, or None if it takes too
    long for that."""

    name: str
    whole: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ()


BENCHES = (
    Bench("doors", quick=("--rounds", "3")),
    Bench("turns"),
    Bench("http"),
    Bench("sessions"),
    Bench("listing"),
    Bench("search", quick=("--indexed", "50000")),
    Bench("startup", quick=("--rounds", "3")),
    Bench("chats", quick=("--rounds", "1")),
    Bench("prompt_size"),
    Bench("prompt"),
    Bench("install", quick=("--plain",)),
    Bench("web", quick=("--first",)),
    Bench("flat", quick=None),
    Bench("background", quick=None),
    Bench("burst"),
    Bench("multipliers", quick=None),
    Bench("anthropic_cache"),
    Bench("locomo"),
    Bench("languages"),
    Bench("dialects", quick=("--short",)),
    Bench("dialects.properties", quick=("--examples", "30")),
    Bench("markdown", quick=None),
    Bench("crossings", ("--short",), None),  # starts a process for every command
    Bench("soak", quick=None),
    Bench("crash", quick=("--short",)),
    Bench("damage", quick=("--short",)),
    Bench("crash_backup", ("--every", "3"), ("--short",)),
    Bench("crash_memory", ("--every", "50"), ("--short",)),  # every step would take hours
    Bench("bad_model", (), ("--random", "20")),
    Bench("crash_power", ("--every", "8"), ("--short",)),
    Bench("crash_routines", ("--every", "20"), ("--short",)),  # the same
    Bench("crash_sends", quick=("--short",)),
    Bench("crash_stop", ("--every", "10"), ("--short",)),
    Bench("crash_telegram", ("--every", "20"), ("--short",)),  # the same
    Bench("crash_cloud", ("--every", "60"), ("--short",)),
    Bench("crash_whatsapp", ("--every", "60"), ("--short",)),  # the same
    Bench("stopping", quick=("--short",)),
    Bench("team", quick=None),
    Bench("team", ("--measure",), None),
)


def run(bench: Bench, quick: bool) -> Outcome:
    """Run a bench in its own process, which inherits standard error."""
    options = (bench.quick or ()) if quick else bench.whole
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{bench.name}", *options, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    failure = f"exit code {done.returncode}" if done.returncode else ""
    try:
        results = tuple(map(_result, done.stdout.splitlines()))
    except ValueError:
        results = ()
        failure = f"{failure} it printed {done.stdout[-_LAST:]!r}".strip()
    return Outcome(
        " ".join(("python -m", f"bench.{bench.name}", *options)), seconds, results, failure
    )


def _result(line: str) -> Mapping[str, object]:
    """Parse a line that a bench printed. Raise `ValueError` if it is not a result."""
    result = json.loads(line)
    if not isinstance(result, dict):
        raise ValueError(line)  # noqa: TRY004 - as where it is no JSON at all
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT, help="where the table goes")
    parser.add_argument("--quick", action="store_true", help="a smaller sample of most")
    parser.add_argument("--only", default="", help="the benches whose name holds this")
    options = parser.parse_args()
    chosen = [
        bench
        for bench in BENCHES
        if options.only in bench.name
        and not (options.quick and not options.only and bench.quick is None)
    ]
    outcomes: list[Outcome] = []
    for bench in chosen:
        print(f"{bench.name} …", file=sys.stderr, flush=True)
        outcomes.append(run(bench, options.quick))
        heading = f"What was measured on {date.today():%Y-%m-%d}, Python {_VERSION}"  # noqa: DTZ011
        options.file.write_text(markdown(heading, outcomes))
    print(options.file.read_text())
    failed = [one.command for one in outcomes if one.failure]
    for command in failed:
        print(f"{command} failed", file=sys.stderr)
    return 1 if failed or not chosen else 0


_VERSION = platform.python_version()


if __name__ == "__main__":
    sys.exit(main())
