"""The message bus: durable intake with back-pressure on one side, committed replies on the other.

`publish` returns once the messages are on disk. The agent reads them from `inbox`. `commit` ends
them, and the dispatcher reads the parts of the replies from `outbox`. In between a message counts
as open. While too many are open, `publish` waits: that slows down a platform's poller and drops
nothing. In a team, the worker decides what is handled by this process (`Handover`).

If the disk rejects writes, the intake is paused, and a change that a turn or a command needs is
repeated until it is stored, while its lane waits (`until_stored`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import Committed, Completion, InboxEntry, OutboxPart, Outgoing
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock, SystemClock
from nanobot.errors import StorageError
from nanobot.tasks import Background

T = TypeVar("T")

DISK_PAUSE = 10.0
"""Seconds until a change is tried again that the disk refused."""


class Handover(Protocol):
    """A worker of a team, which decides whether this process handles a message or a part."""

    def note_stored(self, entries: Sequence[InboxEntry]) -> None:
        """Messages that this process received are stored."""
        ...

    def note_ended(self, entry_ids: Sequence[int]) -> None:
        """Messages have ended."""
        ...

    def send(self, parts: Sequence[OutboxPart]) -> None:
        """Send those of the parts that are this worker's."""
        ...


class MessageBus:
    """Connects channels and agent through the journal. `capacity` bounds the open messages."""

    def __init__(
        self, journal: Journal, *, capacity: int = 10_000, clock: Clock | None = None
    ) -> None:
        self._journal, self._clock = journal, clock or SystemClock()
        self._capacity = capacity
        self._open = 0
        self._room = asyncio.Event()
        self._room.set()
        self._stopped = False
        self._low: StorageError | None = None
        self._refused: StorageError | None = None
        self._pauses, self._is_ending = Background(), False
        self.on_refusal: Callable[[InboundMessage, StorageError], None] = lambda *_: None
        """Called once for each message whose answer has to wait for the disk."""
        self.worker: Handover | None = None
        """In a team, this process as a worker."""
        self._inbox = asyncio.Queue[InboxEntry]()
        self._outbox = asyncio.Queue[OutboxPart]()

    async def inbox(self) -> AsyncIterator[InboxEntry]:
        """Yield the messages that this process handles, in the order in which they were stored."""
        while True:
            yield await self._inbox.get()

    async def outbox(self) -> AsyncIterator[OutboxPart]:
        """Yield the committed parts that this process sends, in order."""
        while True:
            yield await self._outbox.get()

    def unread_entries(self) -> list[InboxEntry]:
        """Take the messages that nothing has read from the inbox."""
        return _take_all(self._inbox)

    def unread_parts(self) -> list[OutboxPart]:
        """Take the parts that nothing has read from the outbox."""
        return _take_all(self._outbox)

    @property
    def open(self) -> int:
        """How many messages are neither answered nor set aside."""
        return self._open

    async def publish(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> tuple[str, ...]:
        """Store messages with the cursor that covers them; the event ids that were new.

        Raises `StorageError`: then nothing was stored and the platform must not be told otherwise.
        A caller that is cancelled while the disk works does not undo it: what is stored is handled,
        because the platform will be told that it is a duplicate.
        """
        await self._room.wait()
        return await self._store(channel, messages, cursor)

    def stop_intake(self) -> None:
        """Take nothing more from channels: `publish` waits from now on, and so no platform is told
        that something arrived."""
        self._stopped = True
        self._count(0)

    def end_waits(self) -> None:
        """Repeat nothing any more that the disk refuses: this process ends."""
        self._is_ending = True
        self._pauses.cancel()

    def hold_intake(self, why: StorageError | None) -> None:
        """The same because there is little room on the disk, until that is over (None)."""
        self._low = why
        self._count(0)

    @property
    def held(self) -> StorageError | None:
        """Why `publish` waits for the disk, if it does."""
        return self._low or self._refused

    async def publish_internal(self, message: InboundMessage) -> None:
        """Store a message that comes from within: a turn must not wait for the end of turns.

        Raises `StorageError`.
        """
        await self._store(message.channel, (message,), None)

    async def _store(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None
    ) -> tuple[str, ...]:
        stored = self._journal.receive(channel, messages, cursor)
        entries = await _when_stored(stored, self._deliver_all)
        return tuple(entry.message.event_id for entry in entries)

    def take_up(self, entry: InboxEntry) -> None:
        """Have a message handled that waits again."""
        self._deliver_all((entry,))

    def _deliver_all(self, entries: Sequence[InboxEntry]) -> None:
        if self.worker is not None:
            self.worker.note_stored(entries)
            return
        for entry in entries:
            self.deliver(entry)

    def deliver(self, entry: InboxEntry) -> None:
        """Put a stored message into the agent's inbox."""
        self._count(1 + len(entry.joined))
        self._inbox.put_nowait(entry)

    def send(self, parts: Sequence[OutboxPart]) -> None:
        """Put committed parts into the outbox."""
        if self.worker is not None:
            self.worker.send(parts)
            return
        for part in parts:
            self._outbox.put_nowait(part)

    def count_open(self, entries: Sequence[InboxEntry]) -> None:
        """Count messages as open that the agent gets in another way: an earlier process's."""
        self._count(sum(1 + len(entry.joined) for entry in entries))

    async def until_stored(self, message: InboundMessage, store: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `store`, a change of the journal for a message.

        While the disk refuses it, it is repeated and the intake is paused. After `end_waits` it
        raises `StorageError`: the next process goes on.
        """
        is_first = True
        while True:
            try:
                stored = await store()
            except StorageError as error:
                if is_first:
                    self.on_refusal(message, error)
                is_first = False
                self._refused = error
                self._count(0)
                if self._is_ending:
                    raise
                pause = self._pauses.start(self._clock.sleep(DISK_PAUSE), name="disk")
                await asyncio.wait((pause,))  # which `end_waits` cuts short
                continue
            if self._refused is not None:
                self._refused = None
                self._count(0)
            return stored

    async def commit(self, completion: Completion) -> Committed:
        """Make the end of a turn durable; follow it with `forward`."""
        committed = await self._journal.complete(completion)
        self._count(-len(completion.entry_ids))
        if self.worker is not None:
            self.worker.note_ended(completion.entry_ids)
        return committed

    def forward(self, committed: Committed) -> None:
        """Send what a completion committed, and handle what it published again."""
        self.send(committed.parts)
        self._deliver_all(committed.republished)

    async def send_outgoing(self, turn_id: str, outgoing: Outgoing) -> None:
        """Say something while a turn goes on; the same `call` of a turn is sent once. What is
        stored is sent, also where the caller is cancelled meanwhile."""
        await _when_stored(self._journal.add_outgoing(turn_id, outgoing), self.send)

    def _count(self, change: int) -> None:
        self._open += change
        if self._open < self._capacity and not self._stopped and self.held is None:
            self._room.set()
        else:
            self._room.clear()


async def _when_stored(stored: asyncio.Future[T], act: Callable[[T], None]) -> T:
    """What was stored, and `act` on it, whether or not the caller is cancelled meanwhile."""

    def done(future: asyncio.Future[T]) -> None:
        if not future.cancelled() and future.exception() is None:
            act(future.result())

    stored.add_done_callback(done)
    return await asyncio.shield(stored)


def _take_all(queue: asyncio.Queue[T]) -> list[T]:
    return [queue.get_nowait() for _ in range(queue.qsize())]
