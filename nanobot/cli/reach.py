"""Reaching a gateway: the one that runs, or the whole of it inside this process.

Only one process may own a home. Who finds no socket tries to become the owner; who loses that race
looks for the winner's socket again, for a few seconds in all.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from nanobot.cli.client import SILENCE, Client
from nanobot.cli.connection import NoGateway
from nanobot.errors import HomeLocked

T = TypeVar("T")

PATIENCE = 15.0
"""Seconds to wait for the gateway that another process has begun to start: a slow machine with much
to do takes a few."""

_PAUSE = 0.05


def state_folder(home: Path) -> str:
    """Where a home's control socket lies."""
    return str(home / "state")


def operate(home: Path, operation: str, arguments: Mapping[str, object]) -> object:
    """Do one operation: in the gateway that runs, else here on the files."""

    def in_gateway() -> object:
        with Client(state_folder(home), on_silence=_say_that_it_is_silent) as client:
            return client.ask(operation, arguments)

    def on_files() -> object:
        from nanobot.app.base import secret_values
        from nanobot.cli import closed
        from nanobot.config.load import load_settings
        from nanobot.logs import log_to_console
        from nanobot.security.redaction import Redactor

        settings = load_settings(home)
        # Why an MCP server does not start is the answer: it need not be logged beside it.
        level = "error" if operation.startswith("mcp.") else "warning"
        log_to_console(level, Redactor(secret_values(settings)), settings.agent.timezone)
        return closed.operate(settings, operation, dict(arguments))

    return _either(in_gateway, on_files)


@contextlib.contextmanager
def connected(home: Path) -> Iterator[Client]:
    """A client of the gateway; one that runs in this process until the end where there is none.

    The same holds between two messages, should the gateway go away meanwhile. Until the end SIGTERM
    and SIGHUP raise `SystemExit`: they leave the way that stops that gateway first.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_left_by_signals())

        def host() -> None:
            from nanobot.cli.hosted import HostedGateway

            stack.enter_context(HostedGateway(home))

        def revive() -> None:
            with contextlib.suppress(HomeLocked):  # another process was quicker: it is looked for
                host()
                client.hosting = True

        def join() -> Client:
            client = Client(state_folder(home), revive, _say_that_it_is_silent)
            return stack.enter_context(client)

        def host_and_join() -> Client:
            host()
            client = join()
            client.hosting = True
            return client

        client = _either(join, host_and_join)
        yield client


@contextlib.contextmanager
def _left_by_signals() -> Iterator[None]:
    """Signals that would end the process at once let it tidy up first; one ignored stays so."""
    mine = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL and _is_main_thread()
    ]
    for number in mine:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def _is_main_thread() -> bool:
    """Whether this one may take signals at all."""
    return threading.current_thread() is threading.main_thread()


def _leave(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _say_that_it_is_silent() -> None:
    sys.stderr.write(
        f"The gateway has not answered for {SILENCE:.0f} s. `nanobot status` says how it is;"
        " Ctrl-C leaves.\n"
    )
    sys.stderr.flush()


def _either(first: Callable[[], T], second: Callable[[], T]) -> T:
    """`first`, or `second` where no gateway runs, or `first` where another process was quicker."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(NoGateway):
            return first()
        try:
            return second()
        except HomeLocked:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)
