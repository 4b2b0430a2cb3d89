"""The message bus: durable intake with back-pressure on one side, committed replies on the other.

`publish` returns once the messages are on disk. The agent reads them from `inbox`. `commit` ends
them, and the dispatcher reads the parts of the replies from `outbox`. In between a message counts
as open. While too many are open, `publish` waits, which slows down a platform's poller and drops
nothing. In a team, the worker decides which messages this process handles (`Handover`).

If the disk rejects writes, the intake pauses, and a change that a turn or a command needs is
repeated until it is stored, while its lane waits (`until_stored`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import Committed, Completion, InboxEntry, OutboxPart, Outgoing
from nanobot.bus.sql import when_stored
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock, SystemClock
from nanobot.errors import StorageError
from nanobot.tasks import Background

T = TypeVar("T")

DISK_PAUSE = 10.0
"""Seconds until a change that the disk rejected is retried."""


class Handover(Protocol):
    """A worker of a team, which decides whether this process handles a message or a part."""

    def note_stored(self, entries: Sequence[InboxEntry]) -> None:
        """Record that messages received by this process are stored."""
        ...

    def note_ended(self, entry_ids: Sequence[int]) -> None:
        """Record that messages have ended."""
        ...

    def send(self, parts: Sequence[OutboxPart]) -> None:
        """Send the parts that belong to this worker."""
        ...


class MessageBus:
    """Connection of channels and agent through the journal. `capacity` bounds the open messages."""

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
        """Yield the messages that this process handles, in the order in which they were stored.
        `AgentLoop.run` reads them."""
        while True:
            yield await self._inbox.get()

    async def outbox(self) -> AsyncIterator[OutboxPart]:
        """Yield the committed parts that this process sends, in order. `Dispatcher.run` reads
        them."""
        while True:
            yield await self._outbox.get()

    def unread_entries(self) -> list[InboxEntry]:
        """Remove and return the unread messages of the inbox."""
        return _take_all(self._inbox)

    def unread_parts(self) -> list[OutboxPart]:
        """Remove and return the unread parts of the outbox."""
        return _take_all(self._outbox)

    @property
    def open(self) -> int:
        """Number of messages that are neither answered nor set aside."""
        return self._open

    async def publish(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> tuple[str, ...]:
        """Store messages with the cursor that covers them. Return the new event ids.

        On `StorageError` nothing was stored, and the messages must not be acknowledged to the
        platform. Cancelling the caller does not undo the write: stored messages are handled,
        because the platform will learn that they are duplicates."""
        await self._room.wait()
        return await self._store(channel, messages, cursor)

    def stop_intake(self) -> None:
        """Accept nothing more from channels: `publish` waits, so nothing is acknowledged."""
        self._stopped = True
        self._count(0)

    def end_waits(self) -> None:
        """Stop retrying changes that the disk rejects, because this process ends."""
        self._is_ending = True
        self._pauses.cancel()

    def hold_intake(self, why: StorageError | None) -> None:
        """Pause the intake while the disk is nearly full, or resume it (None)."""
        self._low = why
        self._count(0)

    @property
    def hold_reason(self) -> StorageError | None:
        """The disk error for which `publish` waits, if any."""
        return self._low or self._refused

    async def publish_internal(self, message: InboundMessage) -> None:
        """Store an internal message without waiting for room, because a turn must not wait for
        other turns.

        Raise `StorageError`."""
        await self._store(message.channel, (message,), None)

    async def _store(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None
    ) -> tuple[str, ...]:
        stored = self._journal.receive(channel, messages, cursor)
        entries = await _when_stored(stored, self._deliver_all)
        return tuple(entry.message.event_id for entry in entries)

    def take_up(self, entry: InboxEntry) -> None:
        """Handle a stored message again."""
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
        """Count messages of an earlier process as open. The agent gets them another way."""
        self._count(sum(1 + len(entry.joined) for entry in entries))

    async def until_stored(self, message: InboundMessage, store: Callable[[], Awaitable[T]]) -> T:
        """Repeat `store`, a journal change for a message, until the disk accepts it. Return its
        result.

        The intake is paused until then. After `end_waits` it raises `StorageError`, and the next
        process continues."""
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
                await asyncio.wait((pause,))  # `end_waits` ends it early
                continue
            if self._refused is not None:
                self._refused = None
                self._count(0)
            return stored

    async def commit(self, completion: Completion) -> Committed:
        """Make the end of a turn durable. Call `forward` afterwards."""
        committed = await self._journal.complete(completion)
        self._count(-len(completion.entry_ids))
        if self.worker is not None:
            self.worker.note_ended(completion.entry_ids)
        return committed

    def forward(self, committed: Committed) -> None:
        """Send the parts of a completion and handle its republished messages."""
        self.send(committed.parts)
        self._deliver_all(committed.republished)

    async def send_outgoing(self, turn_id: str, outgoing: Outgoing) -> None:
        """Send a message during a turn, once for each `call` of the turn. A stored message is sent
        even if the caller is cancelled."""
        await _when_stored(self._journal.add_outgoing(turn_id, outgoing), self.send)

    def _count(self, change: int) -> None:
        self._open += change
        if self._open < self._capacity and not self._stopped and self.hold_reason is None:
            self._room.set()
        else:
            self._room.clear()


async def _when_stored(stored: asyncio.Future[T], act: Callable[[T], None]) -> T:
    """Return the stored value and call `act` with it, even if the caller is cancelled."""
    when_stored(stored, act)
    return await asyncio.shield(stored)


def _take_all(queue: asyncio.Queue[T]) -> list[T]:
    return [queue.get_nowait() for _ in range(queue.qsize())]
