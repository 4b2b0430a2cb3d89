"""Shows in Telegram what happens while a turn runs: typing, the reply being written, what tools
print, notices.

Best effort, and never in the way: `show` only takes note, each chat has a task of its own that
makes the calls, and a send waits for none of them but a moment for one that would come after it.
Drafts vanish by themselves when the reply arrives; in groups a message is edited instead, and
deleted when the reply stands. The reply itself is always sent by `outbound`. One thing stays: a
message that was posted in a group while Telegram's answer, which has its id, got lost.

All chats share what Telegram takes from one bot: the more of them show text, the slower each does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass

from nanobot.bus.events import (
    Notice,
    Progress,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.clock import Clock
from nanobot_telegram.actions import Step, Text, Typing
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.showing import Board
from nanobot_telegram.steps import Outcome, Steps

_GRACE = 1.0
"""Seconds that a send waits for a call under way that shows something of a turn which is over.
Usually it is answered within a tenth; one that hangs is cut."""

_MANY = 1_000
"""Boards of that many chats are kept before those without a use are looked for."""


@dataclass(slots=True)
class _Desk:
    """A chat's board, and who works on it. `asleep_until` is when the worker looks up by itself
    (in the past: it does not sleep), `step` the one that `call` makes."""

    chat_id: str
    board: Board
    wake: asyncio.Event
    has_worker: bool = False
    asleep_until: float = -math.inf
    step: Step | None = None
    call: asyncio.Task[Outcome] | None = None


class Previews:
    """All chats. `enabled` False: typing and notices, but no text."""

    def __init__(
        self, client: TelegramClient, chats: Chats, clock: Clock, *, enabled: bool = True
    ) -> None:
        self._chats, self._clock, self._enabled = chats, clock, enabled
        self._steps = Steps(client, chats)
        self._desks: dict[str, _Desk] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks of the chats until cancelled; without it nothing is shown.

        Takes away first what an earlier process left standing in groups.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    self._take_up()
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None  # from here on the group takes no tasks
        finally:
            self._desks.clear()

    async def show(self, event: Progress) -> None:
        """Take note of an event; returns at once."""
        if self._tasks is None:
            return
        if self._chats.is_unreachable(event.chat_id) and not isinstance(event, TurnEnded):
            return
        desk, now = self._desk(event.chat_id), self._clock.monotonic()
        board = desk.board
        match event:
            case TurnStarted():
                board.started(event.turn_id, event.thread_id, now)
            case TextDelta():
                board.wrote(event.turn_id, event.text, now, restart=event.restart)
            case ToolStarted():
                board.ran_tool(event.turn_id, event.hint, now)
            case ToolOutput():
                board.printed(event.turn_id, event.text, now)
            case TurnEnded():
                board.ended(event.turn_id, now)
            case Notice():
                board.notice(event.text, event.thread_id, now)
        self._rouse(desk)

    async def settle(self, chat_id: str) -> None:
        """Before a send: nothing of a turn that is over may be shown after it."""
        desk = self._desks.get(self._chats.canonical(chat_id))
        if desk is None or desk.call is None or not _is_late(desk):
            return
        call = desk.call
        await _first(self._clock.sleep(_GRACE), asyncio.wait((call,)))
        call.cancel()

    def finished(self, chat_id: str) -> None:
        """After a send: previews of turns that are over are taken away."""
        desk = self._desks.get(self._chats.canonical(chat_id))
        if desk is not None:
            desk.board.replied(self._clock.monotonic())
            self._rouse(desk)

    def hold(self, chat_id: str, seconds: float) -> None:
        """Telegram asked to leave a chat alone that long."""
        desk = self._desks.get(self._chats.canonical(chat_id))
        if desk is not None:
            desk.board.hold(self._clock.monotonic(), seconds)

    def _take_up(self) -> None:
        for chat_id, message_ids in self._chats.previews().items():
            desk = self._desk(chat_id)
            for message_id in message_ids:
                desk.board.stands(message_id, self._clock.monotonic())
            self._rouse(desk)

    def _desk(self, chat_id: str) -> _Desk:
        chat_id = self._chats.canonical(chat_id)
        desk = self._desks.get(chat_id)
        if desk is None:
            if len(self._desks) >= _MANY:
                self._clear_away()
            board = Board(is_group=chat_id.startswith("-"), texts=self._enabled)
            desk = self._desks[chat_id] = _Desk(chat_id, board, asyncio.Event())
        return desk

    def _clear_away(self) -> None:
        now = self._clock.monotonic()
        for chat_id, desk in list(self._desks.items()):
            if not desk.has_worker and desk.board.is_idle(now):
                del self._desks[chat_id]

    def _rouse(self, desk: _Desk) -> None:
        """See that somebody works on what is due. A worker that would look up in time sleeps on:
        pieces of text come by the hundred."""
        due = desk.board.due()
        if desk.has_worker:
            if due < desk.asleep_until:
                desk.wake.set()
        elif due < math.inf and self._tasks is not None:
            desk.has_worker = True
            self._tasks.create_task(self._work(desk), name=f"telegram previews {desk.chat_id}")

    async def _work(self, desk: _Desk) -> None:
        try:
            while (due := desk.board.due()) < math.inf:
                now = self._clock.monotonic()
                step = desk.board.next(now)
                if step is None:
                    await self._sleep(desk, due - now)
                else:
                    await self._take(desk, step)
        finally:
            desk.has_worker = False

    async def _sleep(self, desk: _Desk, seconds: float) -> None:
        desk.wake.clear()
        desk.asleep_until = self._clock.monotonic() + seconds
        await _first(self._clock.sleep(seconds), desk.wake.wait())
        desk.asleep_until = -math.inf

    async def _take(self, desk: _Desk, step: Step) -> None:
        """Make the call as a task of its own, which `settle` may cut."""
        assert self._tasks is not None
        desk.step, desk.call = step, self._tasks.create_task(self._steps.take(desk.chat_id, step))
        await asyncio.wait((desk.call,))
        outcome = Outcome(ok=False) if desk.call.cancelled() else desk.call.result()
        desk.step = desk.call = None
        now = self._clock.monotonic()
        if outcome.ok:
            crowd = sum(other.board.is_showing for other in self._desks.values())
            desk.board.done(step, now, message_id=outcome.message_id, crowd=crowd)
        else:
            desk.board.failed(step, now, wait=outcome.wait)


def _is_late(desk: _Desk) -> bool:
    """Whether the call under way shows something of a turn that is over. The message of a group is
    deleted afterwards instead, and its id is needed for that."""
    match desk.step:
        case Typing(turn_id):
            return not desk.board.is_running(turn_id)
        case Text(turn_id):
            return not desk.board.is_group and not desk.board.is_running(turn_id)
        case _:
            return False


async def _first(*works: Coroutine[object, object, object]) -> None:
    """Return when one of these has ended; the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
