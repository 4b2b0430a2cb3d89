"""Who owns the home: the gateway at its socket, this process, or another one for now.

Only one process may own a home. A command that finds no socket tries to become the owner. If it
loses that race, it looks for the winner's socket for a few seconds in all. If the owner is shutting
down, the command waits for its end and then does the work itself. Quick to import.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nanobot.cli.client import NoGateway
from nanobot.errors import HomeLocked

if TYPE_CHECKING:
    from nanobot.gateway.lock import Leaving

T = TypeVar("T")

START_SECONDS = 15.0
"""Seconds to wait for the gateway that another process has begun to start: a slow machine with much
to do takes a few."""

SUCCESSOR_SECONDS = 3.0
"""Seconds to wait for a service to start the next gateway before taking the home."""

_PAUSE = 0.05
_QUIET_SECONDS = 1.0
"""Seconds of waiting before a message explains it."""


def in_gateway_or_here(
    first: Callable[[], T],
    second: Callable[[], T],
    *,
    tells: bool = True,
    start_seconds: float | None = None,
    successor_seconds: float = SUCCESSOR_SECONDS,
) -> T:
    """Call `first`, or `second` if no gateway runs, or `first` again if another process took the
    home before. Wait until an owner that is shutting down has ended (with a message if `tells`),
    and `start_seconds` (default: `START_SECONDS`) for any other owner."""
    begun = time.monotonic()
    start_seconds = START_SECONDS if start_seconds is None else start_seconds
    deadline, not_before, is_told = begun + start_seconds, begun, not tells
    while True:
        with contextlib.suppress(NoGateway):
            return first()
        try:
            if time.monotonic() >= not_before:
                return second()
        except HomeLocked as locked:
            now = time.monotonic()
            if not locked.leaving and now >= deadline:
                raise
            if locked.leaving:
                deadline = now + start_seconds
            if locked.leaving == "stopping":
                not_before = now + successor_seconds
            is_ending = locked.leaving in ("ending", "stopping")
            if is_ending and not is_told and now >= begun + _QUIET_SECONDS:
                is_told = True
                sys.stderr.write(f"waiting for nanobot (pid {locked.pid}) to end …\n")
        time.sleep(_PAUSE)


def when_free(own: Callable[[], T]) -> T:
    """Call `own`, which takes the lock of the home, and return its result. Wait while the present
    owner shuts down. Raises `HomeLocked` for any other owner."""

    def nowhere() -> T:
        raise NoGateway("not in a gateway")

    return in_gateway_or_here(nowhere, own, start_seconds=0.0, successor_seconds=0.0)


@contextlib.contextmanager
def owned(home: Path) -> Iterator[None]:
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
