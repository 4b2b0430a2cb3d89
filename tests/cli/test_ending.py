"""A signal ends the chat in order, wherever it reaches the process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from nanobot_cli.keys import end_on_failures_and_signals


class Untidy:
    """Its finalizer is one of the places where Python drops exceptions. A signal comes right
    then."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


@pytest.fixture(autouse=True)
def leaving() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, leave)
    yield
    signal.signal(signal.SIGTERM, before)


async def chat(tidied: list[str]) -> None:
    with end_on_failures_and_signals():
        try:
            Untidy()
            await asyncio.Event().wait()
        finally:
            tidied.append("the screen")


def test_a_signal_that_comes_while_an_object_is_tidied_up_is_not_lost() -> None:
    tidied: list[str] = []
    with pytest.raises(SystemExit) as ended:
        asyncio.run(asyncio.wait_for(chat(tidied), 20.0))
    assert ended.value.code == 128 + signal.SIGTERM
    assert tidied == ["the screen"]


def test_who_had_the_signal_has_it_again_afterwards() -> None:
    async def nothing() -> None:
        with end_on_failures_and_signals():
            assert signal.getsignal(signal.SIGTERM) is not leave

    asyncio.run(nothing())
    assert signal.getsignal(signal.SIGTERM) is leave


def test_a_signal_that_is_ignored_stays_so() -> None:
    async def one() -> str:
        with end_on_failures_and_signals():
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0)
        return "goes on"

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert asyncio.run(one()) == "goes on"


def test_what_fails_beside_the_chat_ends_it_and_is_raised() -> None:
    async def fail_beside() -> None:
        with end_on_failures_and_signals():
            asyncio.get_running_loop().call_soon(lambda: 1 // 0)
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(fail_beside(), 20.0))
