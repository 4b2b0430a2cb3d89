"""How the chat ends before its person leaves it: by a defect, or by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any


@contextlib.contextmanager
def ended_by_failures_and_signals() -> Iterator[None]:
    """What nobody expected, in any part of the loop, ends this task and is raised here; so is what
    a signal raises, which would be lost where it comes while Python tidies an object up."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        if task is not None:
            task.cancel()

    def failed(_: object, context: Mapping[str, Any]) -> None:
        fail(context.get("exception") or RuntimeError(context["message"]))

    def told_to_end(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(fail, SystemExit(128 + number))

    loop.set_exception_handler(failed)
    with _handling_signals(told_to_end):
        try:
            yield
        except asyncio.CancelledError:
            if failures:
                raise failures[0] from None
            raise


@contextlib.contextmanager
def _handling_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """The signals that end the process, where somebody has taken them already, go to `handler`."""
    before = {
        number: taken
        for number in (signal.SIGTERM, signal.SIGHUP)
        if callable(taken := signal.getsignal(number))
    }
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, taken in before.items():
            signal.signal(number, taken)
