"""What a run reports as it happens, and what it may be given meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nanobot.messages import Message, ToolCall


class TurnLog(Protocol):
    """Where a turn is written down as it happens."""

    async def replied(self, message: Message) -> None:
        """The model called tools."""
        ...

    async def starting(self, call: ToolCall) -> None:
        """A tool with effects is about to run: this must be on disk first."""
        ...

    async def finished(self, message: Message, *, effects: bool, seconds: float) -> None:
        """A tool's result, on disk before the next model call if the tool has effects."""
        ...

    async def steered(self) -> Sequence[Message]:
        """Messages that arrived since, now part of this turn."""
        ...

    async def corrections(self) -> Sequence[Message]:
        """What changed the question while its answer was written, now part of this turn: the
        answer is void then."""
        ...

    async def told(self, message: Message) -> None:
        """The runner itself told the model something."""
        ...


class Unlogged:
    """A log for turns that nobody has to resume."""

    async def replied(self, message: Message) -> None:
        """Nothing to keep."""

    async def starting(self, call: ToolCall) -> None:
        """Nothing to keep."""

    async def finished(self, message: Message, *, effects: bool, seconds: float) -> None:
        """Nothing to keep."""

    async def steered(self) -> Sequence[Message]:
        """Nobody else speaks."""
        return ()

    async def corrections(self) -> Sequence[Message]:
        """Nobody else speaks."""
        return ()

    async def told(self, message: Message) -> None:
        """Nothing to keep."""
