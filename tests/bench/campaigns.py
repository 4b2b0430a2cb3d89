"""Short fault campaigns: real processes, really killed, in a separate process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.injection import build_injector

ROOT = Path(__file__).parents[2]

needs_a_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="needs a C compiler for the fault injector"
)


def short(module: str, folder: Path) -> Mapping[str, Any]:
    """Return the figures of the short form of a campaign.

    `folder` is for the library that kills. It is built before the campaign starts, because
    otherwise the campaign would start, and load everything, twice."""
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "channels"))),
        "LD_PRELOAD": build_injector(folder),
    }
    done = subprocess.run(
        [sys.executable, "-m", module, "--short", "--json"],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout, done.stderr
    figures: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
