"""The helper program as a child of ours: started, watched, ended.

What always holds: one helper at a time uses the folder (see `locks`), and it does not outlive us:
it leaves within two seconds of the end of its connection, and is killed where it does not. No port
is opened: it connects to a Unix socket, which is gone again once it has. It sees little of our
environment, and what it prints is logged, so much and no more.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

from loguru import logger

from nanobot.channel.waiting import first_error, within
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot_whatsapp.linked.greeting import greet
from nanobot_whatsapp.linked.hearing import HelperFailed
from nanobot_whatsapp.linked.link import BridgeLink, Take
from nanobot_whatsapp.linked.listening import SOCKET_NAME, Listener
from nanobot_whatsapp.linked.locks import daemon_lock, helper_lock
from nanobot_whatsapp.linked.output import Output, printed
from nanobot_whatsapp.linked.protocol import Welcome

START_SECONDS = 30.0
STOP_SECONDS = 3.0

_ARGUMENTS = ("--socket", SOCKET_NAME, "--folder", ".")
"""Relative to the folder, which it is started in: then no path is too long for a socket."""

_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "NODE_EXTRA_CA_CERTS")
_LAST_WORDS_SECONDS = 1.0


@asynccontextmanager
async def started(
    folder: Path, program: Sequence[str], welcome: Welcome, clock: Clock, take: Take | None = None
) -> AsyncIterator[BridgeLink]:
    """A helper that runs until the end of the `with`.

    `folder` holds what the helper keeps (account, spool, downloads); `program` is how it is called,
    with absolute paths: `("/usr/bin/node", "/…/dist/main.js")`. `take` gets the events (see
    `BridgeLink`). When the helper fails, the body of the `with` is cancelled, and this raises
    `HelperFailed`. Raises `StorageError` where the folder cannot be used.
    """
    async with AsyncExitStack() as stack:
        try:
            stack.enter_context(daemon_lock(folder))
            lock = await helper_lock(folder, clock)
            stack.callback(lock.close)
            listener = stack.enter_context(Listener(folder))
        except OSError as error:
            raise StorageError.of(folder, error) from error
        output = await stack.enter_async_context(printed())
        child = await _start(folder, program, lock.fileno(), output)
        stack.push_async_callback(child.end, clock)
        lock.note(child.pid)
        lock.close()  # the helper holds it now
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(output.log()), group.create_task(child.watch(clock))]
                try:
                    with closing(await _connect(listener, welcome, clock, take)) as link:
                        tasks.append(group.create_task(link.run()))
                        yield link
                finally:
                    listener.close()  # one that did not get to connect leaves as well
                    for task in tasks:
                        task.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None


class _Child:
    """A helper's process, the leader of a group of its own."""

    def __init__(self, process: Process, output: Output) -> None:
        self._process, self._output = process, output

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    async def watch(self, clock: Clock) -> None:
        """Raises `HelperFailed` when it ends; never returns."""
        status = await self._process.wait()
        words: Sequence[str] = ()
        with suppress(TimeoutError):
            words = await within(clock, _LAST_WORDS_SECONDS, self._output.last())
        end = f"signal {-status}" if status < 0 else f"status {status}"
        raise HelperFailed("; ".join((f"the WhatsApp helper ended with {end}", *words)))

    async def end(self, clock: Clock) -> None:
        """Wait until it has left, as it does without a connection; kill it where it does not."""
        try:
            with suppress(TimeoutError):
                await within(clock, STOP_SECONDS, self._process.wait())
        finally:
            if self._process.returncode is None:
                logger.warning("whatsapp: the helper does not leave; killing it")
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                await self._process.wait()


async def _start(folder: Path, program: Sequence[str], lock: int, output: Output) -> _Child:
    environment = {name: value for name in _INHERITED if (value := os.environ.get(name))}
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            *_ARGUMENTS,
            cwd=folder,
            env={**environment, "HOME": str(folder)},
            stdin=DEVNULL,
            stdout=output.inlet,
            stderr=output.inlet,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as error:
        raise HelperFailed(
            f"the WhatsApp helper cannot be started: {program[0]}: {error.strerror}",
            hint="`channels.whatsapp.node` says where Node.js is.",
        ) from error
    output.close_inlet()
    return _Child(process, output)


async def _connect(
    listener: Listener, welcome: Welcome, clock: Clock, take: Take | None
) -> BridgeLink:
    try:
        return await within(clock, START_SECONDS, _greet(listener, welcome, clock, take))
    except TimeoutError:
        raise HelperFailed(
            f"the WhatsApp helper did not say hello within {START_SECONDS:.0f} s"
        ) from None


async def _greet(
    listener: Listener, welcome: Welcome, clock: Clock, take: Take | None
) -> BridgeLink:
    reader, writer = await listener.accept()
    try:
        await greet(reader, writer, welcome, clock)
        return BridgeLink(reader, writer, clock, take)
    except BaseException:
        writer.close()
        raise
