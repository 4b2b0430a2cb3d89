"""A gateway in this process: for `nanobot gateway`, or in a thread next to a client."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.gateway import when_free
from nanobot.cli.search_paths import trust_nothing_below
from nanobot.errors import ConnectionLost

if TYPE_CHECKING:
    from nanobot.app.gateway import Gateway
    from nanobot.config.settings import Settings

_QUIET_SECONDS = 1.0  # seconds to wait at the exit before a message explains the delay

_FINISHING = "Storing the conversation in memory … (press Ctrl-C to do this later)\n"


def serve(gateway: Gateway) -> int:
    """Run a gateway until a signal and return the exit code.

    If a restart was requested, replace this process with a new one with the same command line.
    """
    import asyncio

    from nanobot.programs import restart

    def leave() -> None:
        if gateway.restart_requested:
            restart()
        os._exit(0 if gateway.stop_requested else 1)

    def limit_stop() -> None:  # a thread cannot be cancelled, but the next start resumes its work
        alarm = threading.Timer(gateway.stop_seconds, leave)
        alarm.daemon = True
        alarm.start()

    code = when_free(lambda: asyncio.run(gateway.run(on_stop=limit_stop)))
    if gateway.restart_requested:
        restart()
    return code


@contextlib.contextmanager
def host_gateway(home: Path) -> Iterator[None]:
    """Run the whole gateway in a thread of this process while inside."""
    host = _Host(home)
    # A daemon, so that a second Ctrl-C ends the process while turns are still stopping. That is
    # safe, because the journal survives a power cut at any moment.
    thread = threading.Thread(target=host.run, name="gateway", daemon=True)
    try:
        thread.start()
        host.ready.get()
        if host.failure is None:
            yield
            host.finish()
    except ConnectionLost:
        if host.failure is None:
            raise
    finally:
        host.stop()
        # A hanging thread ends with the process: see `main`.
        thread.join(host.gateway.stop_seconds if host.gateway else None)
    if host.failure is not None:
        raise host.failure


class _Host:
    """The work of the thread with the gateway. `ready` gets an item when it runs or has failed.
    `failure` is the reason for an end that was not requested."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.gateway: Gateway | None = None
        self._stopping = False
        self.failure: BaseException | None = None
        self.ready: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self) -> None:
        """Run gateways until one ends without a request to restart (`/restart`)."""
        from nanobot.config.load import load_settings

        try:
            while True:
                settings = load_settings(self._home)  # report errors before loading more
                import asyncio

                gateway = self.gateway = build(settings, hosted=True)
                if self._stopping:  # stopped before the gateway existed
                    break
                asyncio.run(gateway.run(on_ready=lambda: self.ready.put(None), signals=False))
                if self._stopping or not gateway.restart_requested:
                    break
        except BaseException as error:  # noqa: BLE001 - the boundary: raised in the main thread
            self.failure = error
        finally:
            self.ready.put(None)

    def finish(self) -> None:
        """Store the conversation in memory before the gateway ends."""
        if self.gateway is None or (finished := self.gateway.finish()) is None:
            return
        from concurrent.futures import CancelledError

        with contextlib.suppress(CancelledError):  # it ended by itself
            try:
                finished.result(_QUIET_SECONDS)
            except TimeoutError:
                sys.stderr.write(_FINISHING)
                sys.stderr.flush()
                finished.result()

    def stop(self) -> None:
        self._stopping = True
        if self.gateway is not None:
            with contextlib.suppress(RuntimeError):  # its loop has just ended
                self.gateway.request_stop()


def build(settings: Settings, *, hosted: bool) -> Gateway:
    """Set up the log and the gateway. `hosted`: a client runs in the same process."""
    gc.disable()  # objects loaded here live until the end
    try:
        from nanobot.app.gateway import Gateway
        from nanobot.clock import SystemClock
        from nanobot.upkeep.heap import NEW_OBJECTS, Heap

        for folder in settings.folders:
            trust_nothing_below(folder / "workspace")
        _begin_log(settings, on_console=not hosted)
        return Gateway(settings, routines=() if hosted else (Heap(SystemClock()),))
    finally:
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS)
        gc.enable()


def _begin_log(settings: Settings, *, on_console: bool) -> None:
    """Set up the log as configured. A chat keeps the console free of it. Raises `StorageError` if
    the home cannot be made."""
    from loguru import logger

    from nanobot.app.base import make_home, secret_values
    from nanobot.logs import LOG_FILE, Console, LogFile, log_to
    from nanobot.security.redaction import Redactor

    closed = make_home(settings.home)
    chosen = settings.log
    outputs: list[Console | LogFile] = [LogFile(settings.home / "logs" / LOG_FILE)]
    if on_console:
        outputs.append(Console(sys.stderr, chosen.format))
    log_to(outputs, chosen.level, Redactor(secret_values(settings)), settings.agent.timezone)
    for warning in settings.warnings:
        logger.warning("{}", warning)
    for path in closed:
        if any(warning.startswith(f"{path}:") for warning in settings.warnings):  # it holds keys
            told = (
                f"{path} contains keys that other users could read, so it is now private (mode 600)"
            )
            logger.warning("{}", told)
            if not on_console:
                sys.stderr.write(f"warning: {told}\n")
