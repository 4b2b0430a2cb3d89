"""What a command does that must not be done twice: noted in the journal right before it.

A command that a crash, or a disk that refuses its answer, cut off runs again from its start. Where
it had come to such a thing, nobody can tell whether it was done, and the person is told just that.
"""

from __future__ import annotations

from nanobot.bus.journal import InboxEntry, Journal
from nanobot.errors import NanobotError


class Interrupted(NanobotError):
    """A command that was cut off may have been carried out."""

    def __init__(self) -> None:
        super().__init__(
            "I was interrupted while I did this, so it may be done or not",
            hint="Look before you send it again.",
        )


class OnlyOnce:
    """Remembers which commands had begun what must not be done twice."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._begun: set[int] = set()

    async def begin(self, entry: InboxEntry) -> None:
        """Note it for the command in `entry`. Raises `Interrupted` if it was noted before, and
        `StorageError`: it may not be done then."""
        if entry.runs or entry.id in self._begun:
            raise Interrupted
        await self._journal.begin_command(entry.id)
        self._begun.add(entry.id)

    def answered(self, entry: InboxEntry) -> None:
        """The command's answer is durable."""
        self._begun.discard(entry.id)
