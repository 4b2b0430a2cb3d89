"""Commands that only read work on a disk that is full, or that may not be written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import SmallDisk, small_disk

pytestmark = pytest.mark.process

SHOWN = {
    "status": "gateway   not running",
    "memory show": "favourite colour is blue",
    "memory search blue": "favourite colour is blue",
    "memory why blue": "favourite colour is blue",
    "memory log": "[Agent]",
    "memory log 1": "[Start]",
    "memory restore --list": "[Agent]",
    "memory pending": "No pending facts",
    "sessions list": "cli:direct",
    "sessions show cli:direct": "my favourite colour is blue",
    "queue list": "No pending or failed",
    "cron list": "the oven",
    "state show": "jobs",
    "state show jobs": "the oven",
    "config check": "ok",
    "config get": "model.name",
    "logs": "ready",
    "audit": "update_memory",
    "skills list": "cron",
    "skills show memory": "enabled",
    "approvals list": "No pending questions",
    "api keys list": "no keys",
    "mcp list": "no MCP servers",
    "channels status": "",
    "pair list": "No pending requests",
    "backup list": "no backups",
}


IN_ONE_PROCESS = """
import io, json, sys
from contextlib import redirect_stdout
from nanobot.cli.main import main
done = {}
for command in sys.argv[1:]:
    with redirect_stdout(io.StringIO()) as said:
        code = main(command.split())
    done[command] = code, said.getvalue()
print(json.dumps(done))
"""
"""Runs each argument as a command line of nanobot: 27 starts would take a minute."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        said = disk.nanobot("agent", "-m", "remember that my favourite colour is blue")
        assert said.returncode == 0, said.stderr
        assert disk.nanobot("cron", "add", "in 2 days", "the oven").returncode == 0
        yield disk


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_all_that_only_reads_works(disk: SmallDisk, fault: str) -> None:
    edit = f"echo '- Owns a boat' >> {disk.path}/home/workspace/memory/MEMORY.md"
    assert disk.run("sh", "-c", edit).returncode == 0
    if fault == "full":
        disk.fill()
    else:
        disk.forbid_writing()
    before = files_on(disk)
    shown = disk.nanobot("sessions", "show", "cli:direct").stdout
    turn = shown.partition("(turn ")[2].partition(")")[0]
    wanted = {**SHOWN, f"turn show {turn}": "favourite colour"}
    done = disk.nanobot(*wanted, program=("-c", IN_ONE_PROCESS))
    assert done.returncode == 0, done.stderr[-2_000:]
    said = json.loads(done.stdout)
    failed = {
        command: said[command]
        for command, text in wanted.items()
        if said[command][0] != 0 or text not in said[command][1]
    }
    assert failed == {}
    done = disk.nanobot("status")
    assert "nanobot cannot write to " in done.stderr
    assert f"home      {disk.path}/home" in done.stdout
    assert files_on(disk) == before, "who only reads leaves all as it was"


def files_on(disk: SmallDisk) -> list[str]:
    """Return the files with their times and sizes, except the lock and the cache of
    conversations."""
    others = ["!", "-name", "gateway.lock", "!", "-name", "catalogue.db*"]
    shown = ["-type", "f", *others, "-printf", "%p %T@ %s\n"]
    return sorted(disk.run("find", str(disk.path), *shown).stdout.splitlines())


def test_what_changes_something_is_refused_with_the_reason(disk: SmallDisk) -> None:
    disk.forbid_writing()
    backup = ["backup", "/dev/shm/never-made.tar"]
    for command in (["cron", "remove", "x"], ["memory", "importance", "5", "blue"], backup):
        done = disk.nanobot(*command)
        assert done.returncode == 1
        assert "Read-only file system" in done.stderr
