"""The libraries that kill (`crashpoint.c`) and log (`writelog.c`): building, loading and arming.

A program that kills is started again with them as `LD_PRELOAD`. The first counts the writes,
fsyncs, renames and sends of its process, and injects the fault at the Nth once it is armed. The
second logs the changes of a folder, for `bench.powerloss`."""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BEFORE, TORN, AFTER, FULL, BROKEN = range(5)
"""The faults: SIGKILL before the call, in the middle of it, after it; a full disk; a failing
one."""


def options_of(module: str, doc: str | None, *, power: bool = False) -> argparse.Namespace:
    """Parse the command line of the campaign `module`, whose docstring is `doc`. With `power`, it
    can lose power. Return in a process with the libraries."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a sample instead of every step")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth step")
    parser.add_argument("--seed", type=int, default=1)
    if power:
        text = "lose unsynced changes (tools must not run programs that change files)"
        parser.add_argument("--power", action="store_true", help=text)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if "crashpoint" not in os.environ.get("LD_PRELOAD", ""):
        environ = {**os.environ, "LD_PRELOAD": build_injector(Path(tempfile.mkdtemp()))}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environ)
    return options


def build_injector(folder: Path) -> str:
    """Compile the libraries into `folder`. Return the value for `LD_PRELOAD`. A campaign started
    with it need not restart itself."""
    libraries = []
    for name in ("crashpoint", "writelog"):  # calls pass through them in this order
        source, library = Path(__file__).with_name(f"{name}.c"), folder / f"{name}.so"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
        )
        libraries.append(str(library))
    return ":".join(libraries)


def arm(n: int, mode: int, link: int = -1) -> None:
    """Inject the fault at call `n` of this process from now on. Sends on the socket `link` count as
    well."""
    library = ctypes.CDLL(None)
    library.crash_arm.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int)
    library.crash_arm(n, mode, link)


def log_writes(log: Path, folder: Path) -> None:
    """Append the changes of `folder` by this process to `log` from now on, and sync nothing."""
    ctypes.CDLL(None).log_writes(os.fsencode(log), os.fsencode(folder))


def calls() -> int:
    """Return the number of calls of this process since it was armed."""
    library = ctypes.CDLL(None)
    library.crash_count.restype = ctypes.c_long
    return int(library.crash_count())
