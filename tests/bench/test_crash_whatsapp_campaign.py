"""The short version of the fault campaign with WhatsApp: real processes, really killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nanobot_whatsapp.linked.install import SOURCES, bridge_program
from nanobot_whatsapp.linked.node import NodeMissing, find_node

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the fault injector")
def test_killed_with_its_helper_between_whatsapp_and_the_agent_every_message_is_answered_in_order(
    tmp_path: Path,
) -> None:
    try:
        find_node("node")
    except NodeMissing as error:
        pytest.skip(str(error))
    if bridge_program(tmp_path) is None or not (SOURCES / "node_modules" / "ws").is_dir():
        pytest.skip(f"the helper is not built in {SOURCES} (npm ci; npm run build)")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "channels")))}
    command = [sys.executable, "-m", "bench.crash_whatsapp", "--short", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] == 1
