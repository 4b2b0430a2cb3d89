"""The observations of a test: the calls of the business, and its messages as people see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.doubles.graph.values import Call, Sent, Violation
from tests.doubles.graph.world import PERSON, World
from tests.doubles.server import PATIENCE

T = TypeVar("T")


class Seen:
    """The observed part of `FakeGraphAPI`. `calls` has every request, and `violations` the invalid
    ones, which the API rejects in any state of the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls: list[Call] = []
        self.violations: list[Violation] = []

    def calls_of(self, *operations: str) -> list[Call]:
        """Return the calls of these operations, in order."""
        return [call for call in self.calls if call.operation in operations]

    def messages(self, person: str | None = PERSON) -> list[Sent]:
        """Return the delivered messages of the business to a person in order, or to everyone for
        None."""
        return [one for one in self._world.sent.values() if person in (None, one.person)]

    def texts(self, person: str | None = PERSON) -> list[str]:
        """Return their texts and captions."""
        return [sent.text for sent in self.messages(person)]

    @property
    def reads(self) -> list[str]:
        """Return the messages that were marked as read, in order."""
        return list(self._world.reads)

    @property
    def typing(self) -> list[str]:
        """Return the messages for which the typing indicator was shown, in order."""
        return list(self._world.typing)

    async def wait_for(self, condition: Callable[[], T], *, patience: float | None = PATIENCE) -> T:
        """Return the value of `condition()` once it is true. It is checked after every event.

        Raise `TimeoutError` after `patience` seconds of real time (None: never), with the events so
        far."""
        return await self._world.changes.within(patience, condition, self._describe_events)

    async def receive(self, count: int, person: str = PERSON) -> list[str]:
        """Return the texts for a person once there are at least `count` of them."""
        await self.wait_for(lambda: len(self.messages(person)) >= count)
        return self.texts(person)

    def _describe_events(self) -> str:
        made = [call.operation for call in self.calls][-20:]
        violations = [str(one) for one in self.violations]
        return f"last calls {made}, texts {self.texts(None)}, violations {violations}"
