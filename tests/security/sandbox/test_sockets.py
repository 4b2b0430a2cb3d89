"""A program outside that listens in the workspace, such as an editor or ssh, is unreachable."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.folders import PYTHON, UNSEEN, SandboxFolders, run_to_end, start_process

KNOCK = """if True:
    import os, socket, time
    def knock():
        for make in (
            lambda: socket.socket(socket.AF_UNIX),
            lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET),
            lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0],
            lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)[0],
            lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0],
        ):
            for name in ("there", "there.datagrams", "late", "late.datagrams"):
                try:
                    with make() as one:
                        one.setblocking(False)
                        try:
                            one.connect(name)
                            one.send(b"x")
                        except OSError:
                            one.sendto(b"x", name)
                except OSError:
                    pass
    os.chdir("work")
    print("ready", flush=True)
"""


@contextmanager
def doors(folder: Path, name: str) -> Iterator[list[socket.socket]]:
    """Yield a stream listener and a datagram socket."""
    with (
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        stream.bind(str(folder / name))
        stream.listen()
        datagrams.bind(str(folder / f"{name}.datagrams"))
        yield [stream, datagrams]


def list_used(stream: socket.socket, datagrams: socket.socket) -> list[str]:
    found = []
    for one in (stream, datagrams):
        one.setblocking(False)
    with suppress(BlockingIOError):
        stream.accept()[0].close()
        found.append("a connection")
    with suppress(BlockingIOError):
        datagrams.recv(1)
        found.append("a datagram")
    return found


async def test_without_a_sandbox_they_are_reached(folders: SandboxFolders) -> None:
    confined = replace(folders.confined, cwd=folders.workspace)
    with doors(folders.workspace / "work", "there") as there:
        await run_to_end(Sandbox("none").launch((*PYTHON, "-c", f"{KNOCK}    knock()"), confined))
        assert len(list_used(*there)) == 2


async def test_nobody_outside_who_listens_in_the_workspace_is_reached(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    confined = replace(folders.confined, extra_read_only=UNSEEN)
    work = folders.workspace / "work"
    with doors(work, "there") as there:
        end = await run_to_end(sandbox.launch((*PYTHON, "-c", f"{KNOCK}    knock()"), confined))
        assert (end.code, end.output) == (0, "ready\n"), end.complaints
        assert list_used(*there) == []


async def test_nor_is_one_who_begins_to_listen_while_a_command_tries(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    confined = replace(folders.confined, extra_read_only=UNSEEN)
    work = folders.workspace / "work"
    loop = "while not os.path.exists('end'): knock()\n    knock(); print('over', flush=True)"
    child = await start_process(sandbox.launch((*PYTHON, "-c", f"{KNOCK}    {loop}"), confined))
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    with doors(work, "late") as late:
        (work / "end").touch()
        assert await child.stdout.readline() == b"over\n"
        await child.communicate()
        assert list_used(*late) == []


@pytest.mark.parametrize(
    "program",
    [
        "import socket; a, b = socket.socketpair(); a.sendall(b'x'); assert b.recv(1) == b'x'",
        "import asyncio; asyncio.run(asyncio.sleep(0))",
        "import subprocess; subprocess.run(['true'], check=True)",
        "import multiprocessing as m; p = m.get_context('fork').Process(target=print);"
        " p.start(); p.join(); assert p.exitcode == 0",
    ],
)
async def test_pairs_and_processes_work_as_ever(
    sandbox: Sandbox, folders: SandboxFolders, program: str
) -> None:
    confined = replace(folders.confined, extra_read_only=UNSEEN)
    end = await run_to_end(sandbox.launch((*PYTHON, "-c", program), confined))
    assert end.code == 0, end.complaints


async def test_a_server_on_the_loopback_is_the_commands_own(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(s.getsockname()); s.accept()"
    )
    confined = replace(folders.confined, extra_read_only=UNSEEN)
    end = await run_to_end(bubblewrap.launch((*PYTHON, "-c", program), confined))
    assert end.code == 0, end.complaints
