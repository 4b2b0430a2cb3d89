"""After any end of a command nothing of it is left, and it stays within its limits."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path

from msgspec.structs import replace

from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.folders import PYTHON, UNSEEN, SandboxFolders, run_to_end, start_process


class ProcessWatch:
    """Detects the end of all processes that hold a pipe open as descriptor 9."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "alive"
        os.mkfifo(self.path)
        self._end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    async def over(self) -> None:
        """Wait for the last one to end."""
        os.set_blocking(self._end, True)
        assert await asyncio.to_thread(os.read, self._end, 1) == b""
        os.close(self._end)


def holding(command: str) -> tuple[str, ...]:
    """Return a command whose processes all hold the pipe, and which reports its start."""
    return ("/bin/sh", "-c", f"exec 9>work/alive; {command}")


async def test_what_runs_on_is_ended_with_its_command(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    life = ProcessWatch(folders.workspace / "work")
    command = holding("sleep 600 & (sleep 600 &) ; setsid sleep 600 & set -m; sleep 600 & exit 3")
    end = await run_to_end(sandbox.launch(command, folders.confined))
    assert end.code == 3
    await life.over()


async def test_who_writes_where_nobody_reads_ends_without_a_word(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    command = ("/bin/bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}")
    end = await run_to_end(sandbox.launch(command, folders.confined))
    assert (end.output, end.complaints) == (f"y\n{128 + signal.SIGPIPE}\n", "")


async def test_killing_the_group_kills_everything(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    life = ProcessWatch(folders.workspace / "work")
    command = holding("echo x > work/.newtool; (sleep 600 &); echo ready; sleep 600")
    child = await start_process(sandbox.launch(command, folders.confined))
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    os.killpg(child.pid, signal.SIGKILL)
    _, complaints = await child.communicate()
    await life.over()
    assert b"has been renamed to 'work/dot-newtool'" in complaints
    assert not (folders.workspace / "work/new.pth").exists()


async def test_without_nanobot_there_is_no_command(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    life = ProcessWatch(folders.workspace / "work")
    command = holding("(sleep 600 &); echo ready; sleep 600")
    launch = sandbox.launch(command, folders.confined)
    start = "import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session=True)"
    nanobot = await start_process(replace(launch, argv=(*PYTHON, "-c", start, *launch.argv)))
    assert nanobot.stdout is not None
    assert await nanobot.stdout.readline() == b"ready\n"
    nanobot.kill()
    await life.over()
    await nanobot.communicate()


async def test_too_many_processes_end_it(sandbox: Sandbox, folders: SandboxFolders) -> None:
    life = ProcessWatch(folders.workspace / "work")
    confined = replace(folders.confined, processes=20)
    many = "i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i+1)); done; wait"
    end = await run_to_end(sandbox.launch(holding(many), confined))
    await life.over()
    # For root the kernel counts no processes, so the watcher does.
    assert "more than 20 processes" in end.complaints or "fork" in end.complaints.casefold()


async def test_too_much_memory_in_all_ends_it(sandbox: Sandbox, folders: SandboxFolders) -> None:
    confined = replace(folders.confined, memory_megabytes=120, extra_read_only=UNSEEN)
    hungry = f"{shlex.join(PYTHON)} -c 'x = bytearray(50 << 20); import time; time.sleep(600)'"
    command = ("/bin/sh", "-c", f"{hungry} & {hungry} & {hungry} & wait; sleep 600")
    end = await run_to_end(sandbox.launch(command, confined))
    assert end.code == -signal.SIGKILL
    assert end.complaints == "nanobot: stopped: more than 120 MB of memory\n"


async def test_files_in_memory_count_as_memory(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    fill = "head -c 28000000 /dev/zero >"
    command = f"{fill} /tmp/a; {fill} /dev/shm/a; (head -c 80000000 /dev/zero; sleep 600) | tail"
    end = await folders.run(bubblewrap, command, memory_megabytes=120)
    assert end.complaints == "nanobot: stopped: more than 120 MB of memory\n"


async def test_one_process_and_one_file_have_limits(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    end = await folders.run(
        sandbox,
        "head -c 3000000 /dev/zero > work/big; stat -c %s work/big; tail /dev/zero",
        file_megabytes=1,
        memory_megabytes=64,
    )
    assert end.output == "1048576\n"
    assert end.code != 0
