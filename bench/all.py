"""Runs every benchmark and the fault campaign, one after the other; `make bench`."""

from __future__ import annotations

import subprocess
import sys

BENCHES = ("startup", "turns", "http", "sessions", "prompt", "crash")


def main() -> int:
    """Run them with the options given; exit code 1 when one of them failed."""
    failed = [
        name
        for name in BENCHES
        if subprocess.run(
            [sys.executable, "-m", f"bench.{name}", *sys.argv[1:]], check=False
        ).returncode
    ]
    for name in failed:
        print(f"bench.{name} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
