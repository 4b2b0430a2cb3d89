"""The observations of a test: the calls of the bot, and its messages as people see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.doubles.server import PATIENCE
from tests.doubles.telegram.updates import Updates
from tests.doubles.telegram.values import Call, Draft, Sent, Toast, Violation
from tests.doubles.telegram.world import PERSON, World

T = TypeVar("T")


class Seen:
    """The observed part of `FakeTelegram`. `calls` has every request, polls included, and
    `violations` the invalid ones, which Telegram rejects in any state."""

    def __init__(self, world: World, updates: Updates) -> None:
        self._world = world
        self._updates = updates
        self.calls: list[Call] = []
        self.violations: list[Violation] = []

    def calls_of(self, *methods: str) -> list[Call]:
        """Return the calls of these methods, in order."""
        return [call for call in self.calls if call.method in methods]

    def messages(self, chat: int | None = PERSON) -> list[Sent]:
        """Return the current messages of the bot in a chat in order, or in all chats for None."""
        chats = self._world.chats
        chosen = chats.values() if chat is None else [chats[chat]] if chat in chats else []
        return [sent for one in chosen for sent in one.sent.values()]

    def ephemeral(self, chat: int) -> list[Sent]:
        """Return the messages of the bot in a group that only one person saw, in order."""
        return list(self._world.chat(chat).unseen)

    def texts(self, chat: int | None = PERSON) -> list[str]:
        """Return their texts and captions."""
        return [sent.text for sent in self.messages(chat)]

    def drafts(self, chat: int = PERSON) -> list[Draft]:
        """Return the drafts that were shown in a chat, in order."""
        return list(self._world.chat(chat).drafts)

    def actions(self, chat: int = PERSON) -> list[str]:
        """Return the actions ("typing" and so on) that were shown in a chat, in order."""
        return list(self._world.chat(chat).actions)

    def reactions(self, chat: int = PERSON) -> dict[int, str]:
        """Return the bot's current reactions in a chat by message, "" for a removed one."""
        return dict(self._world.chat(chat).reactions)

    @property
    def toasts(self) -> list[Toast]:
        """Return the answers to pressed buttons."""
        return [toast for toast in self._world.queries.values() if toast is not None]

    @property
    def commands(self) -> dict[str, dict[str, str]]:
        """Return the menus: for each scope ("default", "chat:7") descriptions by command."""
        return self._world.commands

    @property
    def confirmed(self) -> int | None:
        """The highest confirmed offset."""
        return self._updates.confirmed

    @property
    def pending(self) -> int:
        """The number of unconfirmed updates."""
        return self._updates.pending

    @property
    def last_update(self) -> int:
        """The id of the newest update, for `duplicate`."""
        return self._updates.last

    @property
    def polls(self) -> int:
        """The number of polls that wait for an update."""
        return self._updates.polls

    async def wait_for(self, condition: Callable[[], T], *, patience: float | None = PATIENCE) -> T:
        """Return the value of `condition()` once it is true. It is checked after every event.

        Raise `TimeoutError` after `patience` seconds of real time (None: never), with the events so
        far."""
        return await self._world.changes.within(patience, condition, self._describe_events)

    async def receive(self, count: int, chat: int = PERSON) -> list[str]:
        """Return the texts in a chat once there are at least `count` messages of the bot."""
        await self.wait_for(lambda: len(self.messages(chat)) >= count)
        return self.texts(chat)

    async def answer_to(self, message_id: int, chat: int = PERSON) -> Sent:
        """Return the first message of the bot after this one in its chat."""
        later = await self.wait_for(
            lambda: [one for one in self.messages(chat) if one.message_id > message_id]
        )
        return later[0]

    def _describe_events(self) -> str:
        made = [call.method for call in self.calls][-20:]
        violations = [str(one) for one in self.violations]
        return f"last calls {made}, texts {self.texts(None)}, violations {violations}"
