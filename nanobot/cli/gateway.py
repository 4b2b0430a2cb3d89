"""The gateway: reached at its socket, or hosted beside a client that found none. Quick to import.

Only one process may own a home. Who finds no socket tries to become the owner; who loses that race
looks for the winner's socket again, for a few seconds in all.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from nanobot.cli.answer import Data
from nanobot.cli.client import Client, NoGateway
from nanobot.errors import HomeLocked, NanobotError

T = TypeVar("T")

START_SECONDS = 15.0
"""Seconds to wait for the gateway that another process has begun to start: a slow machine with much
to do takes a few."""

_PAUSE = 0.05


def operate(home: Path, operation: str, **arguments: object) -> Data:
    """Do one operation: in the gateway that runs, else here on the files. Raises `NanobotError`."""

    def in_gateway() -> object:
        with Client(home) as client:
            return client.ask(operation, arguments)

    def on_files() -> object:
        from nanobot.cli.offline import operate

        return operate(home, operation, arguments)

    data = _in_gateway_or_here(in_gateway, on_files)
    if not isinstance(data, dict):
        raise NanobotError(f"the gateway's answer to {operation!r} makes no sense")
    return Data(data)


@contextlib.contextmanager
def connected(home: Path) -> Iterator[Client]:
    """A client of the gateway; one that runs in this process until the end where there is none.

    Until the end SIGTERM and SIGHUP raise `SystemExit`: they leave the way that stops that gateway
    first.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_left_by_signals())

        def join() -> Client:
            return stack.enter_context(Client(home))

        def host_and_join() -> Client:
            from nanobot.cli.hosting import hosted

            expect_free(home)
            stack.enter_context(hosted(home))
            client = join()
            client.is_hosted = True
            return client

        yield _in_gateway_or_here(join, host_and_join)


@contextlib.contextmanager
def _left_by_signals() -> Iterator[None]:
    """Signals that would end the process at once let it tidy up first; one ignored stays so."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    mine = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    with contextlib.ExitStack() as restored:
        with contextlib.suppress(ValueError):  # only the main thread may
            for number in mine:
                signal.signal(number, lambda number, _: sys.exit(128 + number))
                restored.callback(signal.signal, number, signal.SIG_DFL)
        yield


def _in_gateway_or_here(first: Callable[[], T], second: Callable[[], T]) -> T:
    """`first`, or `second` where no gateway runs, or `first` where another process was quicker."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(NoGateway):
            return first()
        try:
            return second()
        except HomeLocked:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)


def expect_free(home: Path) -> None:
    """Raise `HomeLocked` at once where another process owns the home: loading takes a while."""
    from nanobot.gateway.lock import LOCK_NAME, home_lock
    from nanobot.io import storage_errors

    path = home / "state" / LOCK_NAME
    with storage_errors(path):
        was_owned = path.exists()
    if was_owned:
        with home_lock(path.parent):
            return
