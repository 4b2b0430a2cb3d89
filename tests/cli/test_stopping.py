"""A stop ends the process in time, regardless of its threads."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

STUCK = """
import asyncio, sys, threading
from functools import partial

import nanobot.app.gateway as app
from nanobot.cli import local_gateway
from nanobot.cli.main import main
from nanobot.clock import SystemClock
from nanobot.tasks import Repeated

def build(settings, *, hosted):
    stuck = partial(asyncio.to_thread, threading.Event().wait)
    return app.Gateway(settings, routines=(Repeated(SystemClock(), 60.0, stuck),))

app.STOP_MARGIN = 1.0
local_gateway.build = build
sys.exit(main())
"""


@pytest.fixture
def stuck(tmp_path: Path, home: Path, environment: dict[str, str]) -> list[str]:
    """A nanobot with a thread that never ends, as a command."""
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(
        "model:\n  provider: offline\nagent:\n  shutdown_grace_seconds: 0\n"
    )
    (home / "config.yaml").chmod(0o600)
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    return [sys.executable, str(script)]


def test_a_thread_that_never_ends_does_not_keep_a_gateway_from_ending(
    stuck: list[str], environment: dict[str, str]
) -> None:
    with subprocess.Popen(
        [*stuck, "gateway"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("ready" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_thread_that_never_ends_does_not_keep_a_command_from_ending(
    stuck: list[str], environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [*stuck, "agent", "-m", "hello"],
        env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.strip()
