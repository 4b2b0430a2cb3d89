"""Shows that the agent is typing while a turn runs, and passes on what cannot wait for its end.

Best effort, and never in the way: `show` only takes note. Each chat with a turn that runs has a
task of its own, so that one call that hangs holds up no other chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from loguru import logger

from nanobot.bus.events import Notice, Progress, TurnEnded, TurnStarted
from nanobot.clock import Clock

Call = Callable[[str, bool], Awaitable[None]]
"""Shows in a chat (its id as the core knows it) that somebody types, or does so no more."""

Say = Callable[[str, str], Awaitable[None]]
"""Says a text in a chat."""

_PACE = 8.0
"""Seconds after which it has to be shown again; phones stop showing it after about ten."""
_SILENT = 3600.0
"""A turn whose end was not heard of for that long is not shown any more."""
_MOST = 256
"""So many chats at a time; more of them show nothing."""
_NOTICE_PACE = 60.0
"""The same is not said twice in a chat within so many seconds."""


@dataclass(slots=True, eq=False)
class _Chat:
    """A chat with turns that run."""

    turns: set[str] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Typing:
    """All chats. Without `say` notices are not shown."""

    def __init__(self, call: Call, clock: Clock, say: Say | None = None) -> None:
        self._call, self._clock, self._say = call, clock, say
        self._chats: dict[str, _Chat] = {}
        self._said: dict[tuple[str, str], float] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks of the chats until cancelled; without it nothing is shown."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None  # from here on the group takes no tasks
        finally:
            self._chats.clear()

    def show(self, event: Progress) -> None:
        """Take note of an event; returns at once and never raises."""
        match event:
            case TurnStarted():
                self._started(event.chat_id, event.turn_id)
            case TurnEnded():
                self._ended(event.chat_id, event.turn_id)
            case Notice():
                self._notice(event.chat_id, event.text)
            case _:
                pass

    def _started(self, chat_id: str, turn_id: str) -> None:
        if (chat := self._chats.get(chat_id)) is not None:
            chat.turns.add(turn_id)
        elif self._tasks is not None and len(self._chats) < _MOST:
            chat = self._chats[chat_id] = _Chat({turn_id})
            self._tasks.create_task(self._type(chat_id, chat), name=f"whatsapp typing {chat_id}")

    def _ended(self, chat_id: str, turn_id: str) -> None:
        chat = self._chats.get(chat_id)
        if chat is None or turn_id not in chat.turns:
            return
        chat.turns.remove(turn_id)
        if not chat.turns:
            del self._chats[chat_id]
            chat.over.set()

    def _notice(self, chat_id: str, text: str) -> None:
        now = self._clock.monotonic()
        self._said = {key: at for key, at in self._said.items() if at > now - _NOTICE_PACE}
        say, key = self._say, (chat_id, text)
        if say is None or self._tasks is None or key in self._said or len(self._said) >= _MOST:
            return
        self._said[key] = now
        self._tasks.create_task(_attempt(say(chat_id, text)), name=f"whatsapp notice {chat_id}")

    async def _type(self, chat_id: str, chat: _Chat) -> None:
        end = self._clock.monotonic() + _SILENT
        while not chat.over.is_set() and self._clock.monotonic() < end:
            await _attempt(self._call(chat_id, True))
            await _first(self._clock.sleep(_PACE), chat.over.wait())
        if self._chats.get(chat_id) is chat:
            del self._chats[chat_id]
        if chat_id not in self._chats:
            await _attempt(self._call(chat_id, False))


async def _attempt(call: Awaitable[None]) -> None:
    try:
        await call
    except Exception as error:  # noqa: BLE001 - the boundary: nobody needs to see that we type
        logger.debug("whatsapp: progress was not shown: {!r}", error)


async def _first(*works: Coroutine[object, object, object]) -> None:
    """Return when one of these has ended; the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
