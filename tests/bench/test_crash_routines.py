"""The short version of the fault campaign on jobs, helpers, approvals and commands: real processes,
really killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the fault injector")
def test_killed_while_things_happen_by_themselves_each_happens_once_or_is_said_to_be_unknown() -> (
    None
):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "channels")))}
    command = [sys.executable, "-m", "bench.crash_routines", "--short", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] == 2
