"""A command's memory is limited in any form, and so is that of all commands together."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.programs import Launch
from nanobot.security.confine.watcher import is_used_up
from nanobot.security.sandbox import FoundSandbox, Sandbox
from tests.security.sandbox.conftest import working
from tests.security.sandbox.folders import PYTHON, UNSEEN, SandboxFolders, run_to_end, start_process

START = """
import array, mmap, os, socket, time
held = []
def fill(one, size):
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(size))
    except OSError:
        held.append(one)
"""

IN_BUFFERS = {
    "streams": """
for _ in range(1_000):
    for one in socket.socketpair():
        fill(one, 4_096)
""",
    "packets": """
for _ in range(1_000):
    for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
        fill(one, 100_000)
""",
    "larger buffers": """
for _ in range(30):
    for one in socket.socketpair():
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        fill(one, 4_096)
held += [socket.socketpair() for _ in range(300)]
""",
    "many processes": """
for _ in range(10):
    if not os.fork():
        held += [socket.socketpair() for _ in range(100)]
        time.sleep(600)
""",
    "pipes": """
for _ in range(8):
    if not os.fork():
        held += [os.pipe() for _ in range(2_000)]
        time.sleep(600)
""",
}

IN_NAMESPACES = {
    "in flight": """
way, end = socket.socketpair()
for _ in range(250):
    for one in socket.socketpair():
        fill(one, 4_096)
        rights = array.array("i", [one.fileno()])
        try:
            way.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            way, end = socket.socketpair()
    held.append((way, end))
""",
    "TCP": """
door = socket.create_server(("127.0.0.1", 0))
for _ in range(100):
    held.append(socket.create_connection(door.getsockname()))
    fill(held[-1], 65_536)
""",
    "empty files": """
for number in range(200_000):
    open(f"/tmp/{number}", "w").close()
""",
}

ANYWHERE = {
    "page tables": """
table = mmap.mmap(-1, 1 << 37, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
for at in range(0, 1 << 37, 2 << 20):
    table[at]
""",
    "shared": """
for _ in range(3):
    held.append(mmap.mmap(-1, 60 << 20))
    for at in range(0, 60 << 20, 4_096):
        held[-1][at] = 1
    held[-1].resize(4_096)
""",
}


async def run(sandbox: Sandbox, folders: SandboxFolders, program: str) -> str:
    """Return the report on a program that keeps its memory."""
    confined = replace(folders.confined, memory_megabytes=120, extra_read_only=UNSEEN)
    command = (*PYTHON, "-c", f"{START}{program}\nprint('it holds all')\ntime.sleep(600)\n")
    end = await run_to_end(sandbox.launch(command, confined))
    return end.complaints


@pytest.mark.parametrize(
    "program", [*IN_BUFFERS.values(), *ANYWHERE.values()], ids=[*IN_BUFFERS, *ANYWHERE]
)
async def test_what_no_process_has_counts_as_well(
    sandbox: Sandbox, folders: SandboxFolders, program: str
) -> None:
    assert await run(sandbox, folders, program) == "nanobot: stopped: more than 120 MB of memory\n"


@pytest.mark.parametrize("program", IN_NAMESPACES.values(), ids=IN_NAMESPACES)
async def test_so_does_what_only_namespaces_let_a_command_have(
    bubblewrap: Sandbox, folders: SandboxFolders, program: str
) -> None:
    said = await run(bubblewrap, folders, program)
    assert said == "nanobot: stopped: more than 120 MB of memory\n"


async def test_memory_that_outlives_its_processes_is_refused(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    tries = "libc.shmget(0, 4096, 0o600), libc.msgget(0, 0o600), libc.semget(0, 1, 0o600)"
    program = f"import ctypes; libc = ctypes.CDLL(None); print({tries})"
    command = f"{shlex.join(PYTHON)} -c {shlex.quote(program)}"
    end = await folders.run(sandbox, command, extra_read_only=UNSEEN)
    assert end.output == "-1 -1 -1\n"


async def test_ordinary_work_with_sockets_and_files_goes_on(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    program = """
import asyncio, tempfile
async def main():
    for _ in range(20):
        child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        assert (await child.communicate(b"x" * 1_000_000))[0] == b"x" * 1_000_000
    files = [tempfile.TemporaryFile() for _ in range(200)]
asyncio.run(main())
print("done")
"""
    command = f"{shlex.join(PYTHON)} -c {shlex.quote(program)}"
    end = await folders.run(sandbox, command, extra_read_only=UNSEEN, memory_megabytes=200)
    assert end.output == "done\n", end.complaints


async def test_all_commands_together_get_what_one_may_have(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    ledger = os.memfd_create("ledger")
    confined = replace(
        folders.confined, memory_megabytes=200, extra_read_only=UNSEEN, ledger=ledger
    )

    def holding(megabytes: int, then: str) -> Launch:
        program = (
            f"import time; x = bytearray({megabytes} << 20); print('ready', flush=True); {then}"
        )
        return sandbox.launch((*PYTHON, "-c", program), confined)

    try:
        small = await start_process(holding(80, "time.sleep(600)"))
        assert small.stdout is not None
        assert await small.stdout.readline() == b"ready\n"
        large = await run_to_end(holding(150, "time.sleep(600)"))
        assert "all commands together used more than 200 MB of memory" in large.complaints
        assert small.returncode is None
        os.killpg(small.pid, signal.SIGKILL)
        await small.communicate()
        alone = await run_to_end(holding(150, "time.sleep(0.5)"))  # ended commands do not count
        assert (alone.output, alone.complaints) == ("ready\n", "")
    finally:
        os.close(ledger)


async def test_a_temporary_folder_in_memory_counts_as_memory(
    every_sandbox: dict[str, FoundSandbox], folders: SandboxFolders
) -> None:
    working(every_sandbox["landlock"])
    sandbox = Sandbox("landlock", temporary=Path("/dev/shm"))
    fill = "for i in 1 2 3 4; do head -c 40000000 /dev/zero > $TMPDIR/$i; done; sleep 600"
    end = await folders.run(sandbox, fill, memory_megabytes=120)
    assert end.complaints == "nanobot: stopped: more than 120 MB of memory\n"


@pytest.mark.parametrize(
    ("left", "is_full"),
    [
        ((300, 90), True),
        ((9_000, 20), True),
        ((390, 90), False),
        ((9_000, 39), False),
        ((450, 45), False),
    ],
)
def test_room_for_files_runs_out_as_bytes_do(left: tuple[int, int], is_full: bool) -> None:
    assert is_used_up(left, before=(450, 45), reserve=(400, 40)) == is_full


def test_a_disk_without_a_number_of_files_never_runs_out_of_them() -> None:
    assert not is_used_up((9_000, 0), before=(9_000, 0), reserve=(400, 4))
