"""The helper as a process: its input, its end, and only one at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from pathlib import Path

import pytest
from loguru import logger

from nanobot.errors import ChannelOff, StorageError
from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.linked.link import HelperFailed
from nanobot_whatsapp.linked.process import (
    LEAVE_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    run_helper,
)
from nanobot_whatsapp.linked.protocol import Welcome
from tests.channels.whatsapp.linked.helpers import PROGRAM, HelperPool, play_helpers


async def test_it_gets_little_and_nothing_of_it_is_left(
    folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(run_until_stopped(folder, clock, stop := asyncio.Event()))
        helper = await pool.next()
        helper.greet()
        await helper.until(lambda: helper.all("welcome"))
        pid = int((folder / "helper.lock").read_text())
        process = Path(f"/proc/{pid}")
        environment = process.joinpath("environ").read_bytes().split(b"\0")
        words = process.joinpath("cmdline").read_bytes().split(b"\0")
        assert process.joinpath("cwd").samefile(folder)
        assert os.getpgid(pid) == pid
        stop.set()
        await child
    assert words[-5:-1] == [b"--socket", b"bridge.sock", b"--folder", b"."]
    assert f"HOME={folder}".encode() in environment
    assert not any(b"secret" in variable for variable in environment)
    assert not is_alive(pid)
    assert names_in(folder) == ["control.sock", "daemon.lock", "helper.lock"]
    assert stat.S_IMODE((folder / "helper.lock").stat().st_mode) == 0o600


async def test_no_port_is_opened(folder: Path, clock: FakeClock) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(run_until_stopped(folder, clock, stop := asyncio.Event()))
        helper = await pool.next()
        helper.greet()
        await helper.until(lambda: helper.all("welcome"))
        assert not internet_sockets(int((folder / "helper.lock").read_text()))
        assert not internet_sockets(os.getpid())
        stop.set()
        await child


async def test_one_that_dies_says_how_and_what_it_said_last(folder: Path, clock: FakeClock) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}")
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(failing(folder, clock))
        helper = await pool.next()
        helper.greet()
        await helper.until(lambda: helper.all("welcome"))
        helper.write("!print \x1b[31mout of memory")
        helper.write("!exit 70")
        failure = await child
    logger.remove(sink)
    assert failure == "the WhatsApp helper exited with status 70; ?[31mout of memory"
    assert "whatsapp helper: ?[31mout of memory\n" in lines


async def test_one_that_ends_before_it_said_hello_has_failed(
    folder: Path, clock: FakeClock
) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(failing(folder, clock))
        (await pool.next()).write("!exit 3")
        assert "exited with status 3" in await child


async def test_one_that_never_says_hello_is_given_up(folder: Path, clock: FakeClock) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(failing(folder, clock))
        await pool.next()
        await clock.advance(START_SECONDS)
        assert "did not connect within" in await child


async def test_one_that_does_not_leave_is_killed(folder: Path, clock: FakeClock) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(run_until_stopped(folder, clock, stop := asyncio.Event()))
        helper = await pool.next()
        helper.write("!stay")
        helper.greet()
        await helper.until(lambda: helper.all("welcome"))
        pid = int((folder / "helper.lock").read_text())
        sleepers = clock.sleeping
        stop.set()
        await clock.until_sleeping(sleepers)
        while not child.done():
            await clock.advance(STOP_SECONDS)
            await asyncio.sleep(0)
    assert not is_alive(pid)


async def test_a_program_that_is_not_there_is_said(folder: Path, clock: FakeClock) -> None:
    with pytest.raises(HelperFailed, match="/no/node: No such file") as failure:
        async with run_helper(folder, ("/no/node", "main.js"), Welcome(), clock):
            pass
    assert "channels.whatsapp.node" in failure.value.hint


async def test_a_folder_that_cannot_be_used_is_said(folder: Path, clock: FakeClock) -> None:
    with pytest.raises(StorageError):
        async with run_helper(folder / "missing", PROGRAM, Welcome(), clock):
            pass


async def test_an_error_of_whoever_uses_it_is_their_own(folder: Path, clock: FakeClock) -> None:
    async def use() -> None:
        async with run_helper(folder, PROGRAM, Welcome(), clock):
            raise ChannelOff("unlinked")

    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        group.create_task(greet_next(pool))
        with pytest.raises(ChannelOff, match="unlinked"):
            await use()


async def test_two_daemons_do_not_share_a_folder(folder: Path, clock: FakeClock) -> None:
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        group.create_task(greet_next(pool))
        async with run_helper(folder, PROGRAM, Welcome(), clock):
            with pytest.raises(HelperFailed, match=f"another nanobot .pid {os.getpid()}"):
                async with run_helper(folder, PROGRAM, Welcome(), clock):
                    pass


async def test_an_orphan_is_waited_for(folder: Path, clock: FakeClock) -> None:
    orphan = os.open(folder / "helper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(orphan, fcntl.LOCK_EX)
    async with play_helpers(folder) as pool, asyncio.TaskGroup() as group:
        child = group.create_task(run_until_stopped(folder, clock, stop := asyncio.Event()))
        await clock.until_sleeping()
        os.close(orphan)
        await clock.advance(0.2)
        helper = await pool.next()
        helper.greet()
        await helper.until(lambda: helper.all("welcome"))
        stop.set()
        await child


async def test_an_orphan_that_does_not_leave_is_named(folder: Path, clock: FakeClock) -> None:
    lock = os.open(folder / "helper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    async with asyncio.TaskGroup() as group:
        child = group.create_task(failing(folder, clock))
        await clock.until_sleeping()
        await clock.advance(LEAVE_SECONDS + 0.1)
        assert f"(pid {os.getpid()}) is still running" in await child
    os.close(lock)


async def run_until_stopped(folder: Path, clock: FakeClock, stop: asyncio.Event) -> None:
    """Run a helper until the block ends."""
    async with run_helper(folder, PROGRAM, Welcome(), clock):
        await stop.wait()


async def failing(folder: Path, clock: FakeClock) -> str:
    """Run a helper until it fails, and return the reason."""
    try:
        await run_until_stopped(folder, clock, asyncio.Event())
    except HelperFailed as error:
        return str(error)
    raise AssertionError("it ended well")


async def greet_next(pool: HelperPool) -> None:
    """Send the next helper's hello."""
    (await pool.next()).greet()


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def is_alive(pid: int) -> bool:
    """Check whether a process with this id exists."""
    return Path(f"/proc/{pid}").exists()


def internet_sockets(pid: int) -> list[str]:
    """Return the listening internet sockets of a process."""
    own = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    listening = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] in {"0A", "07"} and f"socket:[{columns[9]}]" in own:
                listening.append(line)
    return listening
