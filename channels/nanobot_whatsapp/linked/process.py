"""The helper as a child process: started, watched, ended.

Invariants: only one helper uses the folder at a time, and it does not outlive us: it exits within
two seconds after its connection ends, or is killed. No port is opened: it connects to a Unix socket
(0600, for our own user, for one connection), which is removed afterwards. It gets little of our
environment, and a bounded amount of its output is logged.

Two locks in the folder ensure that. `daemon.lock` is held by the process that runs the helper. The
helper inherits `helper.lock` and holds it as long as it lives, even if the daemon that started it
is gone. So a held `helper.lock` with a free `daemon.lock` is an orphan."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from io import FileIO
from pathlib import Path

from loguru import logger

from nanobot import programs
from nanobot.clock import Clock, first_error, with_timeout
from nanobot.io import storage_errors
from nanobot_whatsapp.linked.link import BridgeLink, HelperFailed, IngestEvents, greet
from nanobot_whatsapp.linked.protocol import MAX_LINE, Welcome

START_SECONDS = 30.0
STOP_SECONDS = 3.0
LEAVE_SECONDS = 3.0
"""The time in which an orphan must exit."""
SOCKET_NAME = "bridge.sock"

_ARGUMENTS = ("--socket", SOCKET_NAME, "--folder", ".")
"""Relative to the folder, which is the working directory: then no path is too long for a socket."""
_POLL_SECONDS = 0.1
_MAX_LINES_LOGGED = 100
_LINE_CHARACTERS = 300
_LINES_QUOTED = 5


@asynccontextmanager
async def run_helper(
    folder: Path,
    program: Sequence[str],
    welcome: Welcome,
    clock: Clock,
    ingest: IngestEvents | None = None,
) -> AsyncIterator[BridgeLink]:
    """Run a helper until the end of the `with`.

    `folder` holds the helper's files (account, spool, downloads). `program` is its command line,
    with absolute paths: `("/usr/bin/node", "/…/dist/main.js")`. `ingest` gets the events (see
    `BridgeLink`). When the helper fails, the body of the `with` is cancelled, and this raises
    `HelperFailed`. Raises `StorageError` if the folder cannot be used."""
    async with AsyncExitStack() as stack:
        door = stack.enter_context(ExitStack())
        with storage_errors(folder):
            ours = stack.enter_context(open_lock(folder / "daemon.lock"))
            if not try_lock(ours):
                other = read_pid(ours) or "unknown"
                raise HelperFailed(
                    f"another nanobot (pid {other}) is using this device", hint="Stop it first."
                )
            write_pid(ours, os.getpid())
            lock = stack.enter_context(open_lock(folder / "helper.lock"))
            await lock_helper(lock, folder, clock)
            listener = door.enter_context(listen(folder))
        process = await _start(folder, program, lock)
        stack.push_async_callback(_end, process, clock)
        write_pid(lock, process.pid)
        lock.close()  # the helper holds it now
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_watch(process))]
                try:
                    with closing(await _connect(listener, welcome, clock, ingest)) as link:
                        door.close()  # accept no second connection
                        tasks.append(group.create_task(link.run()))
                        yield link
                finally:
                    door.close()  # a helper that did not connect exits too
                    for task in tasks:
                        task.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None


async def _start(folder: Path, program: Sequence[str], lock: FileIO) -> Process:
    environment = programs.environment("NODE_EXTRA_CA_CERTS", HOME=str(folder))
    try:
        launch = programs.Launch(
            (*program, *_ARGUMENTS), environment, str(folder), (lock.fileno(),)
        )
        return await launch.spawn(stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    except OSError as error:
        raise HelperFailed(
            f"the WhatsApp helper cannot be started: {program[0]}: {error.strerror}",
            hint="Check the path to Node.js in `channels.whatsapp.node`.",
        ) from error


async def _watch(process: Process) -> None:
    """Log the helper's output, and raise `HelperFailed` when it ends. Never returns. Excess output
    is read too, so that nothing blocks."""
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=_LINES_QUOTED)
    rest, logged = b"", 0
    while chunk := await process.stdout.read(4096):
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[:_LINE_CHARACTERS]
        for line in lines:
            text = line[:_LINE_CHARACTERS].decode(errors="replace").rstrip()
            last.append("".join(char if char.isprintable() else "?" for char in text))
            if (logged := logged + 1) <= _MAX_LINES_LOGGED:
                logger.warning("whatsapp helper: {}", last[-1])
    status = await process.wait()
    end = f"signal {-status}" if status < 0 else f"status {status}"
    raise HelperFailed("; ".join((f"the WhatsApp helper exited with {end}", *filter(None, last))))


async def _end(process: Process, clock: Clock) -> None:
    """Wait for the helper's exit, which follows the end of its connection, and kill it after a
    timeout. Its output is read, because an unread pipe hides its end."""
    try:
        with suppress(TimeoutError):
            await with_timeout(clock, STOP_SECONDS, process.communicate())
    finally:
        if process.returncode is None:
            logger.warning("whatsapp: the helper did not exit and was killed")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # it leads its own process group
            await process.communicate()


async def _connect(
    listener: socket.socket, welcome: Welcome, clock: Clock, ingest: IngestEvents | None
) -> BridgeLink:
    """Wait for the helper, and greet it. Raises `HelperFailed`, also after `START_SECONDS`."""

    async def connect() -> BridgeLink:
        reader, writer = await accept(listener)
        try:
            await greet(reader, writer, welcome, clock)
        except BaseException:
            writer.close()
            raise
        return BridgeLink(reader, writer, clock, ingest)

    try:
        return await with_timeout(clock, START_SECONDS, connect())
    except TimeoutError:
        late = f"the WhatsApp helper did not connect within {START_SECONDS:.0f} s"
        raise HelperFailed(late) from None


@contextmanager
def listen(folder: Path) -> Iterator[socket.socket]:
    """Yield a socket that listens on `folder`/bridge.sock. A dead process's socket is replaced. It
    is bound through `/proc/self/fd`, because an address has at most 107 bytes. Raises `OSError`."""
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    address = Path(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            address.unlink(missing_ok=True)
            listener.bind(str(address))
            try:
                address.chmod(0o600)  # before anyone can connect: it does not listen yet
                listener.setblocking(False)
                listener.listen(1)
                yield listener
            finally:
                address.unlink(missing_ok=True)
    finally:
        os.close(directory)


async def accept(listener: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Accept the first connection."""
    peer, _ = await asyncio.get_running_loop().sock_accept(listener)
    return await asyncio.open_unix_connection(sock=peer, limit=MAX_LINE)


async def lock_helper(lock: FileIO, folder: Path, clock: Clock) -> None:
    """Lock for a new helper, after the old one is gone. Raises `HelperFailed` if the lock stays
    held."""
    for _ in range(round(LEAVE_SECONDS / _POLL_SECONDS)):
        if try_lock(lock):
            return
        await clock.sleep(_POLL_SECONDS)
    raise HelperFailed(
        f"an old WhatsApp helper (pid {read_pid(lock) or 'unknown'}) is still running",
        hint=f"Kill that process. It holds the lock {folder / 'helper.lock'}.",
    )


def open_lock(path: Path) -> FileIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return FileIO(os.open(path, flags, 0o600), "r+")


def try_lock(lock: FileIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_pid(lock: FileIO) -> int:
    text = os.pread(lock.fileno(), 32, 0).strip()
    return int(text) if text.isdigit() else 0


def write_pid(lock: FileIO, pid: int) -> None:
    """Write the pid for people. The lock works without it, so errors are ignored."""
    with suppress(OSError):
        os.ftruncate(lock.fileno(), 0)
        os.pwrite(lock.fileno(), b"%d\n" % pid, 0)
