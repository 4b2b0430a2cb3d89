"""The library that kills (`crashpoint.c`): building, loading and arming it.

A program that kills is started again with the library as `LD_PRELOAD`. It counts the writes,
fsyncs, renames and sends of its process, and injects the fault at the Nth once it is armed."""

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


def options_of(module: str, doc: str | None) -> argparse.Namespace:
    """Parse the command line of the campaign `module`, whose docstring is `doc`. Return in a
    process with the library."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a sample instead of every step")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if "crashpoint" not in os.environ.get("LD_PRELOAD", ""):
        environ = {**os.environ, "LD_PRELOAD": str(build_injector(Path(tempfile.mkdtemp())))}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environ)
    return options


def build_injector(folder: Path) -> Path:
    """Compile the library into `folder`. A campaign started with it as `LD_PRELOAD` need not
    restart itself."""
    source, library = Path(__file__).with_name("crashpoint.c"), folder / "crashpoint.so"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


def arm(n: int, mode: int, link: int = -1) -> None:
    """Inject the fault at call `n` of this process from now on. Sends on the socket `link` count as
    well."""
    library = ctypes.CDLL(None)
    library.crash_arm.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int)
    library.crash_arm(n, mode, link)


def calls() -> int:
    """Return the number of calls of this process since it was armed."""
    library = ctypes.CDLL(None)
    library.crash_count.restype = ctypes.c_long
    return int(library.crash_count())
