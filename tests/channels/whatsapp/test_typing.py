"""Typing is shown during a turn, and its failures are harmless."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from nanobot.bus.events import Notice, TurnEnded, TurnStarted
from nanobot_whatsapp.transport import TypingIndicator
from tests.channels.telegram.support import PATIENCE, WatchedClock

CHAT, OTHER = "15557770000", "15557770001"


class PhoneRecorder:
    """Records typing and notices. `refuses`: all calls fail. `hangs`: calls in that chat hang."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool | str]] = []
        self.refuses = False
        self.hangs = ""
        self._changed = asyncio.Event()

    async def type(self, chat_id: str, on: bool) -> None:
        await self._see(chat_id, on)

    async def say(self, chat_id: str, text: str) -> None:
        await self._see(chat_id, text)

    async def until(self, count: int) -> list[tuple[str, bool | str]]:
        """Wait for this many observations, and return them."""
        async with asyncio.timeout(PATIENCE):
            while len(self.seen) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.seen

    async def _see(self, chat_id: str, what: bool | str) -> None:
        self.seen.append((chat_id, what))
        self._changed.set()
        if chat_id == self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise ConnectionError("not now")


@pytest.fixture
def phones() -> PhoneRecorder:
    return PhoneRecorder()


@pytest.fixture
def clock() -> WatchedClock:
    """A clock that only the test moves."""
    return WatchedClock()


@contextlib.asynccontextmanager
async def running(phones: PhoneRecorder, clock: WatchedClock) -> AsyncIterator[TypingIndicator]:
    typing = TypingIndicator(phones.type, clock, phones.say, seconds=8.0)
    life = asyncio.create_task(typing.run())
    await asyncio.sleep(0)
    try:
        yield typing
    finally:
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life


def start_event(chat_id: str = CHAT, turn: str = "t1") -> TurnStarted:
    return TurnStarted("whatsapp", chat_id, turn)


def end_event(chat_id: str = CHAT, turn: str = "t1") -> TurnEnded:
    return TurnEnded("whatsapp", chat_id, turn, (), "done")


async def test_typing_is_shown_again_until_the_turn_ends(
    phones: PhoneRecorder, clock: WatchedClock
) -> None:
    async with running(phones, clock) as typing:
        typing.show_progress(start_event())
        assert await phones.until(1) == [(CHAT, True)]
        await clock.until_asked(8.0)
        await clock.advance(8.0)
        assert await phones.until(2) == [(CHAT, True)] * 2
        typing.show_progress(end_event())
        assert (await phones.until(3))[-1] == (CHAT, False)


async def test_two_turns_in_a_chat_type_once_and_until_both_are_over(
    phones: PhoneRecorder, clock: WatchedClock
) -> None:
    async with running(phones, clock) as typing:
        typing.show_progress(start_event())
        typing.show_progress(start_event(turn="t2"))
        await phones.until(1)
        typing.show_progress(end_event())
        await clock.until_asked(8.0)
        await clock.advance(8.0)
        assert await phones.until(2) == [(CHAT, True)] * 2
        typing.show_progress(end_event(turn="t2"))
        assert (await phones.until(3))[-1] == (CHAT, False)


async def test_a_turn_whose_end_is_never_told_types_for_an_hour(
    phones: PhoneRecorder, clock: WatchedClock
) -> None:
    async with running(phones, clock) as typing:
        typing.show_progress(start_event())
        await clock.until_asked(8.0)
        await clock.advance(7200.0)
        assert await phones.until(451) == [(CHAT, True)] * 450 + [(CHAT, False)]


async def test_a_call_that_fails_or_hangs_harms_nobody(
    phones: PhoneRecorder, clock: WatchedClock
) -> None:
    phones.refuses, phones.hangs = True, OTHER
    async with running(phones, clock) as typing:
        typing.show_progress(start_event(OTHER))
        typing.show_progress(start_event())
        await phones.until(2)
        typing.show_progress(end_event())
        assert (await phones.until(3))[-1] == (CHAT, False)


async def test_a_notice_is_said_once_in_a_minute(
    phones: PhoneRecorder, clock: WatchedClock
) -> None:
    notice = Notice("whatsapp", CHAT, "the disk is full")
    async with running(phones, clock) as typing:
        typing.show_progress(notice)
        typing.show_progress(notice)
        assert await phones.until(1) == [(CHAT, "the disk is full")]
        await clock.advance(60.0)
        typing.show_progress(notice)
        assert await phones.until(2) == [(CHAT, "the disk is full")] * 2


async def test_nothing_is_shown_while_it_does_not_run(
    phones: PhoneRecorder, clock: WatchedClock
) -> None:
    typing = TypingIndicator(phones.type, clock, seconds=8.0)
    typing.show_progress(start_event())
    typing.show_progress(Notice("whatsapp", CHAT, "the disk is full"))
    typing.show_progress(end_event())
    assert phones.seen == []
