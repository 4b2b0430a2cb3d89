"""Queues of pending messages, and the lanes in which they are handled.

A lane is a queue and a worker for one key. It exists from its first job until it is empty, and runs
one job at a time. Many lanes run in parallel. `SessionQueue` holds the messages that wait for their
lane, for the model or for a full disk. A message that can't be handled now goes back to the head of
its session, so that only commands overtake it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Literal

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.events import InboundMessage, Notice, Progress, TextDelta, TurnEnded
from nanobot.bus.journal import InboxEntry
from nanobot.channel import Channel
from nanobot.commands import CommandRegistry
from nanobot.errors import SessionDamaged, StorageError
from nanobot.tasks import SCOPES, TURN, Background, is_cancelled

Job = Callable[[], Awaitable[None]]


class Lanes:
    """Job queues by key. Jobs run in order within a key, and at most `limit` at once over all keys.
    0 means no limit, for jobs that mostly wait."""

    def __init__(self, limit: int = 0) -> None:
        self._limit, self._slots = limit, asyncio.Semaphore(limit) if limit else None
        self._holding: set[str] = set()
        self._pausing: set[str] = set()
        self._waiting: dict[str, deque[Job]] = {}
        self._workers = Background()
        self._closed = False
        self.freed: Callable[[], None] = lambda: None
        """Called whenever the last job of a key is over."""

    def submit(self, key: str, job: Job) -> None:
        """Run `job` after the earlier jobs of `key`. A failing job is logged. A job submitted after
        the grace of `drain` does not run."""
        if self._closed:
            return
        lane = self._waiting.get(key)
        if lane is not None:
            lane.append(job)
            return
        self._waiting[key] = deque((job,))
        self._workers.start(self._work(key), name=f"lane {key}")

    async def wait(self, grace: float) -> None:
        """Wait up to `grace` seconds for the running and pending jobs."""
        await self._workers.wait(grace)

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for the running and pending jobs, then cancel them."""
        await self.wait(grace)
        self._closed = True
        await self._workers.drain(0)
        self._waiting.clear()

    def cancel(self) -> None:
        """Make `drain` stop waiting."""
        self._closed = True
        self._workers.cancel()

    def is_free(self, key: str) -> bool:
        """Return True if no job of a key runs or is pending."""
        return key not in self._waiting

    def count_waiting(self, key: str) -> int:
        """Return the number of pending jobs of a key."""
        return len(self._waiting.get(key, ()))

    @property
    def room(self) -> int:
        """Number of further keys whose job could run at once."""
        return max(0, self._limit - len(self._waiting) + len(self._pausing))

    async def run(self, key: str, job: Job | None = None) -> None:
        """Run `job` after the present jobs of `key`, and raise its error. Without a job, return
        when the present jobs have run."""
        if job is None and self.is_free(key):
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def settle() -> None:
            error: Exception | None = None
            try:
                if job is not None:
                    await job()
            except Exception as failure:  # noqa: BLE001 - raised where the job is awaited
                error = failure
            if not ended.done():
                ended.set_exception(error) if error else ended.set_result(None)

        self.submit(key, settle)
        await ended

    @asynccontextmanager
    async def pausing(self, key: str) -> AsyncIterator[None]:
        """Let another lane's job run while the running job of `key` waits for a person."""
        self._release(key)
        self._pausing.add(key)
        try:
            yield
        finally:
            self._pausing.discard(key)
            await self._acquire(key)

    async def _work(self, key: str) -> None:
        lane = self._waiting[key]
        try:
            while lane:
                TURN.set("")  # forget the previous turn
                SCOPES.set(())
                await self._acquire(key)
                try:
                    await lane.popleft()()
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        raise
                    logger.opt(exception=error).error("lane {}: cancelled from inside", key)
                except Exception as error:  # noqa: BLE001 - the boundary: a lane outlives its jobs
                    logger.opt(exception=error).error("a job in lane {} failed", key)
                finally:
                    self._release(key)
        finally:
            self._waiting.pop(key, None)
            self.freed()

    async def _acquire(self, key: str) -> None:
        if self._slots is not None and key not in self._holding:
            await self._slots.acquire()
            if key in self._holding:  # another pause of the same job has ended
                self._slots.release()
            self._holding.add(key)

    def _release(self, key: str) -> None:
        """Release the slot of `key`. A job that is cancelled in a pause has none."""
        if self._slots is not None and key in self._holding:
            self._holding.discard(key)
            self._slots.release()


_BACKLOG = 1_000
_MOST = 5
_TEXT_SECONDS = 0.03


class Screen:
    """Progress display, in order within a chat, that never delays the agent. Models send text word
    by word, so text is collected for `_TEXT_SECONDS`. If a chat can't keep up, its text is left
    out, as the final reply has all of it, but never the end of a turn. A reply waits up to
    `timeout` seconds for the progress before it. A single event may take `_MOST` times as long."""

    def __init__(self, channels: Mapping[str, Channel], *, timeout: float = 2.0) -> None:
        self._channels, self._timeout = channels, timeout
        self._lanes = Lanes()
        self._texts: dict[str, list[TextDelta]] = {}

    def show_progress(self, event: Progress) -> None:
        if event.channel not in self._channels:
            return
        chat = f"{event.channel}:{event.chat_id}"
        texts = self._texts.get(chat)
        if texts and isinstance(event, TextDelta) and event.turn_id == texts[0].turn_id:
            if event.restart:
                texts.clear()
            texts.append(event)
            return
        if not isinstance(event, TextDelta):
            self._queue(chat, event)
            return
        self._queue(chat)
        self._texts[chat] = [event]
        asyncio.get_running_loop().call_later(_TEXT_SECONDS, self._queue, chat)

    async def flush(self, channel: str, chat_id: str) -> None:
        """Wait briefly until all queued progress of a chat has been shown."""
        chat = f"{channel}:{chat_id}"
        self._queue(chat)
        if self._lanes.is_free(chat):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._lanes.run(chat)

    async def close(self) -> None:
        await self._lanes.drain(0.0)

    def _queue(self, chat: str, *events: Progress) -> None:
        """Queue the collected text of a chat, then `events`."""
        texts = self._texts.pop(chat, ())
        if texts and self._lanes.count_waiting(chat) < _BACKLOG:
            whole = replace(texts[0], text="".join(one.text for one in texts))
            events = (whole, *events)
        for event in events:
            self._lanes.submit(chat, partial(self._show, event))

    async def _show(self, event: Progress) -> None:
        try:
            async with asyncio.timeout(_MOST * self._timeout):
                await self._channels[event.channel].show_progress(event)
        except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
            logger.opt(exception=error).warning("{} could not show progress", event.channel)


class SessionQueue:
    """Pending messages by session, in order of arrival. A paused session keeps its messages. Most
    commands skip the queue, so that a person can still ask for help or change the model while it is
    unavailable."""

    def __init__(self, commands: CommandRegistry) -> None:
        self._commands = commands
        self._waiting: dict[str, deque[InboxEntry]] = {}
        self._paused: set[str] = set()
        self.newest = 0
        """Highest ID of an entry so far. Later entries have higher IDs."""

    def add(self, entry: InboxEntry) -> None:
        """Add a new message behind the others of its session."""
        self.newest = max(self.newest, entry.id)
        self._waiting.setdefault(entry.message.session_key, deque()).append(entry)

    def pause(self, key: str) -> None:
        """Keep all messages of a session except commands that skip the queue."""
        self._paused.add(key)

    def unpause(self, key: str) -> int:
        """End the pause of a session, and return the number of its messages."""
        self._paused.discard(key)
        return len(self._waiting.get(key, ()))

    def find_delayed(self, key: str) -> InboxEntry | None:
        """Return the message of a session that waits for the model or the disk, or None."""
        waiting = self._waiting.get(key) if key in self._paused else None
        return waiting[0] if waiting and waiting[0].reason else None

    def list_behind(self, key: str) -> tuple[InboxEntry, ...]:
        """Return the messages behind the delayed one, without commands that skip the queue."""
        waiting = tuple(self._waiting.get(key, ()))[1:] if self.find_delayed(key) else ()
        return tuple(one for one in waiting if not self._commands.skips_queue(one.message))

    def list_waiting(self, key: str) -> tuple[InboxEntry, ...]:
        """Return the messages of a session in order, or none if it is paused."""
        return () if key in self._paused else tuple(self._waiting.get(key, ()))

    def take_next(self, key: str) -> InboxEntry | None:
        """Remove and return the first message of a session that may be handled, or None."""
        queue = self._waiting.get(key, ())
        is_paused = key in self._paused
        ready = (e for e in queue if not is_paused or self._commands.skips_queue(e.message))
        entry = next(ready, None)
        if entry is not None:
            self._waiting[key].remove(entry)
            if not self._waiting[key]:
                del self._waiting[key]
        return entry

    def remove_waiting(self, key: str, wanted: Callable[[InboxEntry], bool]) -> list[InboxEntry]:
        """Remove and return the messages of a session that are `wanted`."""
        waiting = self._waiting.pop(key, deque())
        taken = [entry for entry in waiting if wanted(entry)]
        gone = {entry.id for entry in taken}
        if left := deque(entry for entry in waiting if entry.id not in gone):
            self._waiting[key] = left
        return taken

    def drop_waiting(self) -> list[InboxEntry]:
        """Remove and return all messages. This process does not handle them."""
        dropped = [entry for waiting in self._waiting.values() for entry in waiting]
        self._waiting.clear()
        return dropped

    def put_back(self, entries: Sequence[InboxEntry]) -> None:
        """Put messages that were taken but not handled in front of the others, in this order."""
        for entry in reversed(entries):
            self._waiting.setdefault(entry.message.session_key, deque()).appendleft(entry)


def turn_ended(
    inbound: InboundMessage,
    turn_id: str,
    event_ids: tuple[str, ...],
    outcome: Literal["done", "failed", "stopped", "waiting", "held"],
) -> TurnEnded:
    """Return the event that a turn is over, or goes on later."""
    place = (inbound.channel, inbound.chat_id, turn_id)
    return TurnEnded(
        *place,
        event_ids,
        outcome,
        initiator=inbound.origin.initiator,
        thread_id=inbound.thread_id,
        session_key=inbound.session_override,
    )


def refusal_notice(
    inbound: InboundMessage, error: StorageError, is_owners: Callable[[InboundMessage], bool]
) -> Notice:
    """Return the notice to a message's sender that the disk rejects it."""
    if isinstance(error, SessionDamaged):
        text = (
            "Your message is pending because this conversation's file is damaged. Send /new to "
            "set the file aside and get your answer in a new conversation."
        )
    elif is_owners(inbound):
        why = str(error).rstrip(". ")
        text = (
            f"Your message is pending: {why}. {error.hint} It will be answered once this is fixed."
        )
    else:
        text = "Your message is pending. It will be answered once the owner has fixed a problem."
    return Notice(inbound.channel, inbound.chat_id, text, inbound.thread_id)
