"""A gateway in this process: built, and hosted in a thread beside the client that found none."""

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

from nanobot.cli.client import ConnectionLost
from nanobot.cli.gateway import when_free
from nanobot.cli.search_paths import trust_nothing_below

if TYPE_CHECKING:
    from nanobot.app.gateway import Gateway
    from nanobot.config.settings import Settings

_QUIET_SECONDS = 1.0
"""Seconds after which a message says what the exit waits for."""

_FINISHING = "Storing the conversation in memory … (Ctrl-C to do it next time)\n"


def serve(gateway: Gateway) -> int:
    """Run a gateway until a signal and return the exit code.

    If a restart was requested, replace this process with a new one with the same command line. A
    stop takes at most `stop_seconds`: a thread cannot be cancelled, but the next start resumes its
    work.
    """
    import asyncio

    from nanobot.programs import restart

    def leave() -> None:
        if gateway.restart_requested:
            restart()
        os._exit(0 if gateway.stop_requested else 1)

    def bound_stop() -> None:
        alarm = threading.Timer(gateway.stop_seconds, leave)
        alarm.daemon = True
        alarm.start()

    code = when_free(lambda: asyncio.run(gateway.run(on_stop=bound_stop)))
    if gateway.restart_requested:
        restart()
    return code


@contextlib.contextmanager
def hosted(home: Path) -> Iterator[None]:
    """The whole gateway in a thread of this process while inside.

    The thread is a daemon: who is tired of waiting for the turns to stop (a second Ctrl-C) may
    leave at any moment, because the journal takes any end for a power cut.
    """
    host = _Host(home)
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
        # A thread that hangs ends with the process: see `main`.
        thread.join(host.gateway.stop_seconds if host.gateway else None)
    if host.failure is not None:
        raise host.failure


class _Host:
    """What the thread of a hosted gateway does. `ready` gets something once it runs or has failed;
    `failure` is why it ended, if it was not asked to."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.gateway: Gateway | None = None
        self._stopping = False
        self.failure: BaseException | None = None
        self.ready: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self) -> None:
        """Run gateways until one ends without the wish for a restart (`/restart`)."""
        from nanobot.config.load import load_settings

        try:
            while True:
                settings = load_settings(self._home)  # what is wrong is said before more is loaded
                import asyncio

                gateway = self.gateway = build(settings, hosted=True)
                if self._stopping:  # asked before there was anything to ask
                    break
                asyncio.run(gateway.run(on_ready=lambda: self.ready.put(None), signals=False))
                if self._stopping or not gateway.restart_requested:
                    break
        except BaseException as error:  # noqa: BLE001 - the boundary: raised in the main thread
            self.failure = error
        finally:
            self.ready.put(None)

    def finish(self) -> None:
        """Let what was said reach memory before the gateway ends."""
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
            with contextlib.suppress(RuntimeError):  # its loop came to its end by itself just now
                self.gateway.request_stop()


def build(settings: Settings, *, hosted: bool) -> Gateway:
    """Set up the log and the gateway; `hosted`: in a process that is not the gateway's alone.

    What is loaded and built here stays, so the garbage collector does not look at it.
    """
    gc.disable()
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
    """Set the log up as the owner wishes; not on the console where somebody chats. Raises
    `StorageError` where the home cannot be made."""
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
            told = f"other users could read keys in {path}, so it is now private (mode 600)"
            logger.warning("{}", told)
            if not on_console:
                sys.stderr.write(f"warning: {told}\n")
