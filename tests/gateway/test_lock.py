"""The lock on a home, with real processes on the other side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanobot.cli.gateway import expect_free
from nanobot.errors import HomeLocked, StorageError
from nanobot.gateway.lock import LOCK_NAME, home_lock

HOLD = """
import sys
from pathlib import Path
from nanobot.gateway.lock import home_lock
with home_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

HOLD_AND_RUN = """
import subprocess, sys
from pathlib import Path
from nanobot.gateway.lock import home_lock
with home_lock(Path(sys.argv[1])):
    run = subprocess.Popen(["/bin/sh", "-c", "echo held; exec cat"], close_fds=False)
    run.wait()
"""


@contextmanager
def holder(state: Path, script: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the lock until the end, or until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(state)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_owner_is_refused_and_told_the_pid(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with holder(state) as other, pytest.raises(HomeLocked) as refusal, home_lock(state):
        pass
    assert refusal.value.pid == other.pid
    assert refusal.value.exit_code == 75
    assert str(tmp_path) in str(refusal.value)


def test_a_killed_owner_does_not_block_the_next(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        other.kill()
        other.wait()
        with home_lock(tmp_path):
            pass


def test_the_lock_can_be_taken_again_after_it_was_given_back(tmp_path: Path) -> None:
    with home_lock(tmp_path), pytest.raises(HomeLocked), home_lock(tmp_path):
        pass
    with home_lock(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_a_program_that_outlives_a_killed_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path, HOLD_AND_RUN) as other:
        assert other.stdin is not None
        other.kill()
        other.wait()
        with home_lock(tmp_path):
            pass  # while the program still runs: it ends with our end of the pipe
        other.stdin.close()


def test_the_pid_of_a_dead_process_is_not_blamed(tmp_path: Path) -> None:
    with holder(tmp_path):
        (tmp_path / LOCK_NAME).write_text("99999999\n")
        with pytest.raises(HomeLocked, match="pid unknown"), home_lock(tmp_path):
            pass


def test_only_the_owner_of_the_home_can_read_the_lock(tmp_path: Path) -> None:
    with home_lock(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "state" / LOCK_NAME).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(StorageError, match=r"gateway\.lock")
    with refused, home_lock(tmp_path / "file" / "state"):
        pass


def test_a_home_that_may_not_be_entered_is_said_and_how_to_mend_it(closed_home: Path) -> None:
    for ask in (expect_free, lambda home: home_lock(home / "state").__enter__()):
        with pytest.raises(StorageError, match="Permission denied") as refusal:
            ask(closed_home)
        assert str(closed_home) in refusal.value.hint
        assert re.search("chown|chmod", refusal.value.hint)
