"""The fault campaign on backups: a process that makes or restores one is killed at every step.

Two operations are repeated on a small home: a backup is made while an old one has to be pruned, and
a backup is restored over another home. The process is killed with SIGKILL at its Nth write, fsync
and rename (before it, in the middle, after it), or the disk is full from there on for half a
second. Afterwards:

- Every file with a backup's name is a complete backup, and the home is unchanged.
- A restored home is completely the old one or completely the backup. Otherwise it reports that it
  is incomplete, no gateway starts on it, and repeating the command completes it. The old contents
  are not lost.
- Repeating the operation works and leaves no temporary files.

    python -m bench.crash_backup              every N
    python -m bench.crash_backup --every 10   a sample
    python -m bench.crash_backup --short      a handful
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
from pathlib import Path

from loguru import logger

from bench.backup_operations import BackupOperation, MakeBackup, RestoreBackup, back_up, create_home
from bench.injection import AFTER, BEFORE, FULL, TORN, arm, calls, options_of
from bench.reporting import report

MODES = {BEFORE: "before each", TORN: "in the middle", AFTER: "after each", FULL: "disk full"}
_DEEDS = (MakeBackup, RestoreBackup)
_HANDFUL: dict[type[BackupOperation], tuple[tuple[int, int], ...]] = {
    MakeBackup: ((20, TORN),),
    RestoreBackup: ((24, AFTER), (29, BEFORE)),
}
"""The critical steps: in the middle of packing, and while folders are swapped."""


def run_and_kill(deed: BackupOperation, n: int, mode: int) -> bool:
    """Run the operation in a process with a fault at call `n`. Return True if the call was
    reached."""
    child = os.fork()
    if child == 0:
        arm(n, mode)
        with contextlib.suppress(BaseException):
            deed.do()
        os._exit(int(calls() >= n))
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 1


def try_fault(
    kind: type[BackupOperation], folder: Path, backup: Path, n: int, mode: int
) -> tuple[bool, list[str]]:
    """Try one fault. Return whether call `n` was reached, and the broken promises."""
    place = folder / "place"
    place.mkdir()
    try:
        deed = kind(place, backup)
        deed.prepare()
        hit = run_and_kill(deed, n, mode)
        place.chmod(0o755)
        wrong = deed.faults(over=False)
        try:
            deed.do()
        except Exception as error:  # noqa: BLE001 - the boundary: it is what the campaign looks for
            wrong.append(f"it cannot be done again: {error}")
        else:
            wrong += deed.faults(over=True)
        return hit, [f"{kind.name}, {MODES[mode]}, call {n}: {fault}" for fault in wrong]
    finally:
        shutil.rmtree(place)


def cut_short(
    kind: type[BackupOperation], folder: Path, backup: Path, rng: random.Random, every: int
) -> tuple[int, list[str]]:
    """Try a fault at every `every`th call, or a handful for 0. Return the number of tries and the
    broken promises."""
    count, failures = 0, list[str]()
    if not every:
        for n, mode in _HANDFUL[kind]:
            hit, wrong = try_fault(kind, folder, backup, n, mode)
            count, failures = count + hit, failures + wrong
        return count, failures
    for mode in MODES:
        n, hit = rng.randint(1, every), True
        while hit:
            hit, wrong = try_fault(kind, folder, backup, n, mode)
            count, failures = count + hit, failures + wrong
            n += every
    return count, failures


def main() -> int:
    """Run the command line. The exit code is 1 if a promise was broken."""
    options = options_of("bench.crash_backup", __doc__)
    logger.remove()
    every = 0 if options.short else options.every
    rng, failures = random.Random(options.seed), list[str]()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        backup = asyncio.run(back_up(create_home(folder / "kept", "kept"), folder))
        for kind in _DEEDS:
            count, wrong = cut_short(kind, folder, backup, rng, every)
            figures[f"times that {kind.name} was cut short"] = count
            failures += wrong
    report("crash_backup", figures | {"broken (target 0)": len(failures), "failures": failures})
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
