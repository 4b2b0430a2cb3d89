"""Reach the running gateway at its socket, or host one in this process. Quick to import.

See `ownership` for who may own the home.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nanobot.cli.answer import Data
from nanobot.cli.client import Client
from nanobot.cli.ownership import expect_free, in_gateway_or_here
from nanobot.errors import NanobotError


def operate(home: Path, operation: str, **arguments: object) -> Data:
    """Do one operation: in the gateway that runs, else here on the files. Raises `NanobotError`."""

    def in_gateway() -> object:
        with Client(home) as client:
            return client.ask(operation, arguments)

    def on_files() -> object:
        from nanobot.cli.offline import operate

        return operate(home, operation, arguments)

    data = in_gateway_or_here(in_gateway, on_files)
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

            expect_free(home, "starting")
            stack.enter_context(hosted(home))
            client = join()
            client.is_hosted = True
            return client

        client = in_gateway_or_here(join, host_and_join)
        if not client.is_hosted:
            client.find_gateway = partial(_find_or_host, client, home, stack)
        yield client


def _find_or_host(client: Client, home: Path, stack: contextlib.ExitStack) -> None:
    """Connect a client that lost its gateway to the next one, or host one in this process until the
    end of `stack`. Print nothing, because a person may be typing."""

    def host() -> None:
        from nanobot.cli.hosting import hosted

        expect_free(home, "starting")
        stack.enter_context(hosted(home))
        client.connect()
        client.find_gateway, client.is_hosted = None, True

    in_gateway_or_here(client.connect, host, tells=False)


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
