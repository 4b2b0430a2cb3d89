"""Reach the gateway of a home, host one in this process, or own the home for a moment.

Only one process may own a home. A command that finds no socket tries to become the owner. If it
loses that race, it looks for the winner's socket for a few seconds. If the owner is shutting down,
the command waits for its end and then does the work itself. Quick to import."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nanobot.errors import HomeLocked, NanobotError, NoGateway

if TYPE_CHECKING:
    from nanobot.cli.client import Client, Data
    from nanobot.gateway.lock import Leaving

T = TypeVar("T")

START_SECONDS = 15.0
"""Seconds to wait for a gateway that another process is starting. A slow machine takes a few."""

SUCCESSOR_SECONDS = 3.0
"""Seconds to wait for a service to start the next gateway before taking the home."""

_PAUSE = 0.05
_QUIET_SECONDS = 1.0  # seconds to wait before a message explains the delay


def in_gateway_or_here(
    first: Callable[[], T],
    second: Callable[[], T],
    *,
    tells: bool = True,
    patience: float = 1.0,
) -> T:
    """Call `first`, or `second` if no gateway runs, or `first` again if another process became the
    owner. Wait until an owner that is shutting down has ended (with a message if `tells`), and
    `START_SECONDS` for any other owner. `patience` multiplies these times."""
    begun = not_before = time.monotonic()
    deadline = begun + patience * START_SECONDS
    while True:
        with contextlib.suppress(NoGateway):
            return first()
        try:
            if time.monotonic() >= not_before:
                return second()
        except HomeLocked as locked:
            now = time.monotonic()
            if locked.leaving:
                deadline = now + patience * START_SECONDS
            elif now >= deadline:
                raise
            if locked.leaving == "stopping":
                not_before = now + patience * SUCCESSOR_SECONDS
            is_ending = locked.leaving in ("ending", "stopping")
            if is_ending and tells and now >= begun + _QUIET_SECONDS:
                tells = False
                sys.stderr.write(f"waiting for the running nanobot (pid {locked.pid}) to exit …\n")
        time.sleep(_PAUSE)


def when_free(own: Callable[[], T]) -> T:
    """Call `own`, which locks the home, and return its result. Wait while the present owner shuts
    down. Raises `HomeLocked` for any other owner."""

    def nowhere() -> T:
        raise NoGateway("not in a gateway")

    return in_gateway_or_here(nowhere, own, patience=0.0)


@contextlib.contextmanager
def own_home(home: Path) -> Iterator[None]:
    """Own the home while inside. Waits and raises as `when_free` does."""
    from nanobot.gateway.lock import home_lock

    with contextlib.ExitStack() as stack:
        when_free(lambda: stack.enter_context(home_lock(home / "state")))
        yield


def expect_free(home: Path, leaving: Leaving = "") -> None:
    """Raise `HomeLocked` early if another process owns the home, because loading takes a while.
    With `starting`, the home stays reserved for this process while it loads."""
    from nanobot.gateway.lock import LOCK_NAME, home_lock
    from nanobot.io import storage_errors

    path = home / "state" / LOCK_NAME
    with storage_errors(path):
        was_owned = path.exists()
    if was_owned:
        with home_lock(path.parent, leaving):
            return


def operate(home: Path, operation: str, **arguments: object) -> Data:
    """Run one operation, in the running gateway or else here on the files. Raises
    `NanobotError`."""
    from nanobot.cli.client import Client, Data

    def in_gateway() -> object:
        with Client(home) as client:
            return client.ask(operation, arguments)

    def on_files() -> object:
        from nanobot.cli.offline import operate

        return operate(home, operation, arguments)

    data = in_gateway_or_here(in_gateway, on_files)
    if not isinstance(data, dict):
        raise NanobotError(f"the gateway sent an invalid response to {operation!r}")
    return Data(data)


@contextlib.contextmanager
def open_client(home: Path) -> Iterator[Client]:
    """Yield a client of the gateway. If none runs, host one in this process until the end.

    While inside, SIGTERM and SIGHUP raise `SystemExit`, so that a hosted gateway stops first."""
    from nanobot.cli.client import Client

    with contextlib.ExitStack() as stack:
        stack.enter_context(_exit_on_signals())
        client = Client(home, connects=False)

        def host() -> None:
            from nanobot.cli.local_gateway import host_gateway

            expect_free(home, "starting")
            stack.enter_context(host_gateway(home))
            client.connect()
            stack.callback(client.close)  # close it before that gateway ends
            client.find_gateway, client.is_hosted = None, True

        # Later calls print nothing, because a person may be typing.
        client.find_gateway = partial(in_gateway_or_here, client.connect, host, tells=False)
        in_gateway_or_here(client.connect, host)
        stack.callback(client.close)
        yield client


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Have signals that would end the process run the cleanup first. Ignored ones stay ignored."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    mine = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    with contextlib.ExitStack() as restored:
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in mine:
                signal.signal(number, lambda number, _: sys.exit(128 + number))
                restored.callback(signal.signal, number, signal.SIG_DFL)
        yield
