"""Workers with the shared folder mounted by NFS, simulated by `bench/nfsclient.c`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.team.freshness import CACHING, alternate, nfs_client
from tests.bench.campaigns import needs_a_compiler
from tests.doubles.postgres import PostgresServer
from tests.upkeep.homes import write

pytestmark = [
    pytest.mark.team,
    needs_a_compiler,
    pytest.mark.skipif(bool(PostgresServer.missing), reason=PostgresServer.missing),
]


@pytest.mark.parametrize("command", [("team", "init", "--yes"), ("gateway",)])
def test_an_nfs_client_that_caches_attributes_is_refused_with_the_line_for_fstab(
    tmp_path: Path, team_database: str, command: tuple[str, ...]
) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    shared.mkdir()
    team = f"team: {{database: '{team_database}', shared: {shared}}}\n"
    write(home / "config.yaml", f"agent: {{timezone: UTC}}\n{team}")
    environ = {**os.environ, **nfs_client(tmp_path, shared, CACHING, 3.0)}
    done = subprocess.run(
        [sys.executable, "-m", "nanobot", "--home", str(home), *command],
        env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "caches file attributes" in done.stderr
    assert f"files:/nanobot {shared} nfs4 nfsvers=4.2,hard,noac 0 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_workers_that_alternate_on_one_chat_always_have_the_exchange_before(seconds: float) -> None:
    """Also with a client that caches although it should not: a worker drops its state of a memory
    when it takes the memory over."""
    _, faults = asyncio.run(alternate(8, seconds))
    assert faults == []
