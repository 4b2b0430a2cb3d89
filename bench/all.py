"""Runs every benchmark and the fault campaigns, one after the other; `make bench`."""

from __future__ import annotations

import subprocess
import sys

BENCHES = (
    ("startup",),
    ("turns",),
    ("http",),
    ("sessions",),
    ("prompt",),
    ("prompt_size",),
    ("search",),
    ("locomo",),
    ("markdown",),
    ("crossings", "--short"),  # a process for every command takes long
    ("crash",),
    ("crash_memory", "--every", "50"),  # every step of it takes hours
    ("crash_routines", "--every", "20"),  # likewise
    ("crash_telegram", "--every", "20"),  # likewise
    ("crash_whatsapp", "--every", "60"),  # likewise
)


def main() -> int:
    """Run them with the options given; exit code 1 when one of them failed."""
    failed = [
        bench
        for bench, *options in BENCHES
        if subprocess.run(
            [sys.executable, "-m", f"bench.{bench}", *options, *sys.argv[1:]], check=False
        ).returncode
    ]
    for bench in failed:
        print(f"bench.{bench} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
