"""Delivery of the outbox to channels.

Every chat has its own lane, so a slow or rate-limited chat delays no other."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.session_queue import Lanes, Screen
from nanobot.bus.events import ApprovalClosed, OutboundPart, Receipt
from nanobot.bus.journal import MOST_DOUBTS, NOTICE, QUESTION, OutboxPart
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql import when_stored
from nanobot.bus.sql_journal import Journal
from nanobot.channel import WRITING, Channel, ClosesChoices, Reachable
from nanobot.clock import Clock, pause_after, with_timeout
from nanobot.errors import (
    NanobotError,
    SendError,
    SendLater,
    SendRefused,
    SendUnknown,
    StorageError,
)
from nanobot.tasks import TURN, Background, is_cancelled

MOST_ATTEMPTS = 300
"""Attempts until a part is dead and a person decides: a day, with five minutes in between."""

LEFTOVERS = 8
"""Leftover parts that a channel sends at once. A kill leaves at most so many in doubt."""
_SLOW_SECONDS = 5.0
"""Seconds after which a send no longer delays other leftovers."""

_UNWRITTEN_SECONDS = 3.0
"""Seconds that a stop waits for a part of which nothing is written yet."""

_LONGEST_PAUSE = 300.0
_DOUBT_PAUSE = 60.0
"""Seconds before a part that may have arrived is repeated, as a slow platform may still deliver
it."""

_NOT_ARRIVED = (SendLater, StorageError)
"""Errors of a channel if a part certainly did not arrive. `StorageError` is from a channel that
writes to a file."""

_LONGEST_FIRST_PAUSE = 3600.0
"""Seconds. A stored time that is further away means that the clock was set back."""

_QUESTIONS = 256
"""Delivered questions to remember, whose buttons may have to be removed."""

_CLOSE_SECONDS = 300.0
"""Timeout in seconds for a channel to close a question."""


async def without_voice(part: OutboundPart) -> OutboundPart | None:
    """Return the part, or None if it is a voice message, which can't be spoken."""
    return None if part.words else part


class Dispatcher:
    """Delivery of the outbox, in order for each chat, with retries until the platform accepts a
    part. `rng` spreads the retries of many chats. `voiced` creates the voice message of a part with
    words to speak. If it returns None, the part is skipped."""

    def __init__(
        self,
        bus: MessageBus,
        channels: Mapping[str, Channel],
        journal: Journal,
        screen: Screen,
        clock: Clock,
        rng: Random,
        voiced: Callable[[OutboundPart], Awaitable[OutboundPart | None]] = without_voice,
    ) -> None:
        self._bus = bus
        self._channels, self._journal, self._screen = channels, journal, screen
        self._clock, self._rng, self._voiced = clock, rng, voiced
        self._lanes, self._closing = Lanes(), Background()
        self._slots = {name: asyncio.Semaphore(LEFTOVERS) for name in channels}
        self._leftovers: set[int] = set()
        self._slow = Background()
        self.in_hand: set[int] = set()
        """The submitted parts that have not ended."""
        self._unwritten: dict[int, asyncio.Timeout] = {}
        """Timeouts of sends that have written nothing, for example because they wait for a
        connection."""
        self._stopping = asyncio.Event()
        self._begins_until = 0.0
        self._left: set[str] = set()
        """The chats that have parts for the next start."""
        self._questions: OrderedDict[str, tuple[OutboundPart, Receipt]] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()
        """The codes of questions that this process has closed or is closing."""
        self.watch: Callable[[OutboundPart], None] = lambda _: None
        """Called with each part before it is sent."""

    async def run(self) -> None:
        """Deliver the parts of the outbox, forever."""
        async for item in self._bus.outbox():
            self.submit((item,))

    @property
    def channels(self) -> Collection[str]:
        """Names of the enabled channels."""
        return self._channels.keys()

    def resume(self, parts: Sequence[OutboxPart]) -> None:
        """Deliver the leftovers of an earlier process, a few at once."""
        self._leftovers |= {item.id for item in parts}
        self.submit(parts)

    def submit(self, parts: Sequence[OutboxPart]) -> None:
        """Deliver parts, each after the earlier parts of its chat."""
        for item in parts:
            self.watch(item.part)
            if item.part.channel in self._channels:
                chat = f"{item.part.channel}:{item.part.chat_id}"
                self.in_hand.add(item.id)
                is_new = self._stopping.is_set()
                self._lanes.submit(chat, partial(self._deliver, item, is_new=is_new))
            else:
                logger.warning(
                    "channel {} is off, so a message to it is pending", item.part.channel
                )

    def close_question(self, closed: ApprovalClosed) -> None:
        """Remove the buttons of a question once it is delivered, and show its outcome. Best effort,
        because an old button does nothing."""
        self._closed[closed.code] = None
        if len(self._closed) > _QUESTIONS:
            self._closed.popitem(last=False)
        self._closing.start(self._close(closed), name=f"close a question in {closed.channel}")

    def withdraw_questions(self, questions: Iterable[tuple[OutboxPart, str]]) -> None:
        """Close the questions of an earlier process or a dead worker (see `open_questions`)."""
        for item, platform_id in questions:
            code = item.part.key.partition("/")[0].removeprefix(QUESTION)
            if code not in self._closed:
                self._remember(item.part, Receipt(platform_id))
                place = item.part.channel, item.part.chat_id
                self.close_question(ApprovalClosed(*place, "", code, "withdrawn"))

    async def settle_questions(self, grace: float) -> None:
        """Wait up to `grace` seconds for open `close_question` calls, while channels still run."""
        await self._closing.drain(grace)

    def begin_stop(self, grace: float) -> None:
        """Leave waiting parts to the next start. Parts that wait for a connection get a moment. New
        parts, such as the reply of a turn that ends now, still begin for half of `grace`, so that
        each has the other half to arrive."""
        now = asyncio.get_running_loop().time()
        self._begins_until = now + grace / 2
        self._stopping.set()
        for cut in self._unwritten.values():
            cut.reschedule(now + min(grace / 2, _UNWRITTEN_SECONDS))

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for running deliveries, then leave the rest to the next
        start."""
        self.submit(self._bus.unread_parts())
        await self._lanes.drain(grace)

    async def _deliver(self, item: OutboxPart, *, is_new: bool) -> None:
        turn = item.part.key.partition("/")[0]  # begins with a digit, other names with a letter
        TURN.set(turn if turn[:1].isdigit() else "")
        try:
            limits = self._channels[item.part.channel].limits
            if item.doubts < MOST_DOUBTS or limits.shown_once:
                brought = await self._deliver_at_last(item, is_new=is_new)
            else:
                reason = "nanobot stopped while the message was being sent again"
                brought = await self._give_up(item, reason)
        finally:
            self.in_hand.discard(item.id)
            self._leftovers.discard(item.id)
        self._bus.send(brought)

    async def _deliver_at_last(self, item: OutboxPart, *, is_new: bool) -> Sequence[OutboxPart]:
        """Try until the part has arrived or never will. Return the parts to send next."""
        pause = min(item.next_try_at - self._clock.now().timestamp(), _LONGEST_FIRST_PAUSE)
        while True:
            if pause > 0:
                with suppress(TimeoutError):
                    await with_timeout(self._clock, pause, self._stopping.wait())
            with await self._slot(item):
                if self._stopping.is_set() and self._is_left(item, is_new=is_new):
                    return ()
                is_new = False  # the next start retries a failure
                part = await self._voiced(item.part)
                if part is None:
                    return await self._journal.mark_sent(item, "")
                item = replace(item, part=part, attempts=item.attempts + 1)
                try:
                    receipt = await self._attempt_unless_cut(item)
                except (SendError, StorageError) as error:
                    item = replace(item, doubts=item.doubts + isinstance(error, SendUnknown))
                    if _is_hopeless(item, error):
                        return await self._give_up(item, str(error))
                    item, pause = self._put_off(item, error)
                    continue
                if receipt is not None:  # otherwise it is left
                    self._remember(item.part, receipt)
                    return await self._mark_sent(item, receipt)

    async def _mark_sent(self, item: OutboxPart, receipt: Receipt) -> Sequence[OutboxPart]:
        """Record that a part has arrived. Return the parts to send next."""
        keep = not receipt.is_final or _is_question(item.part)
        may_repeat = self._channels[item.part.channel].limits.shown_once
        marked = self._journal.mark_sent(item, receipt.platform_id, keep=keep, can_wait=may_repeat)
        if may_repeat:
            when_stored(marked, self._bus.send)
            return ()
        return await marked  # so that a crash leaves only one part of the chat in doubt

    async def _slot(self, item: OutboxPart) -> ExitStack:
        """Return a leftover's permission to be sent, or an empty stack for other parts."""
        slot = ExitStack()
        if item.id in self._leftovers:
            slots = self._slots[item.part.channel]
            await slots.acquire()
            slot.callback(slots.release)

            async def free_later() -> None:
                await self._clock.sleep(_SLOW_SECONDS)
                slot.close()

            slot.callback(self._slow.start(free_later(), name="a slow send").cancel)
        return slot

    def _is_left(self, item: OutboxPart, *, is_new: bool) -> bool:
        """Return True if the next start sends a part, and therefore all later parts of its chat."""
        chat = f"{item.part.channel}:{item.part.chat_id}"
        in_time = asyncio.get_running_loop().time() < self._begins_until
        if not (is_new and in_time and chat not in self._left):
            self._left.add(chat)
        return chat in self._left

    def _remember(self, part: OutboundPart, receipt: Receipt) -> None:
        if _is_question(part):
            self._questions[part.key.partition("/")[0]] = part, receipt
            if len(self._questions) > _QUESTIONS:
                self._questions.popitem(last=False)

    async def _close(self, closed: ApprovalClosed) -> None:
        await self._lanes.run(f"{closed.channel}:{closed.chat_id}")
        delivered = self._questions.pop(f"{QUESTION}{closed.code}", None)
        channel = self._channels.get(closed.channel)
        try:
            if delivered and channel is not None and isinstance(channel, ClosesChoices):
                closing = channel.close_choices(*delivered, str(closed))
                await with_timeout(self._clock, _CLOSE_SECONDS, closing)
        except Exception as error:  # noqa: BLE001 - the boundary: an old button does no harm
            logger.warning(
                "{}: could not remove the buttons of a question: {!r}", closed.channel, error
            )
        if delivered:
            self._journal.close_question(closed.code)

    async def _attempt_unless_cut(self, item: OutboxPart) -> Receipt | None:
        """Send a part. Return None if a stop ends the attempt before anything is written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as cut:
                self._unwritten[item.id] = cut
                try:
                    return await self._attempt(item)
                finally:
                    self._unwritten.pop(item.id, None)
        return None

    async def _attempt(self, item: OutboxPart) -> Receipt:
        """Send a part. A part that may have arrived is sent only while its platform is reachable,
        so that its one repetition is not wasted. Raise `SendRefused`, one of `_NOT_ARRIVED`, or
        `SendUnknown`."""
        channel = self._channels[item.part.channel]
        with _anything_else_is(SendLater, *_NOT_ARRIVED):
            if item.doubts and isinstance(channel, Reachable):
                await channel.reach()
            await self._screen.flush(item.part.channel, item.part.chat_id)
            await self._journal.may_act()
        may_repeat = channel.limits.shown_once
        with (
            _anything_else_is(SendLater if may_repeat else SendUnknown, SendRefused, *_NOT_ARRIVED),
            self._mark_when_written(item),
        ):
            return await channel.send(item.part)

    @contextmanager
    def _mark_when_written(self, item: OutboxPart) -> Iterator[None]:
        """Mark a part as being sent, or let its channel mark it before the first request. Tasks of
        the channel that outlive the block mark nothing."""
        unmarked = [item]

        limits = self._channels[item.part.channel].limits

        def mark() -> None:
            if unmarked:
                self._unwritten.pop(item.id).reschedule(None)
                part = unmarked.pop()
                if not limits.shown_once:  # otherwise no doubt counts
                    self._journal.mark_sending(part)

        if not limits.tells_writing:
            mark()
        before = WRITING.set(mark)
        try:
            yield
        finally:
            WRITING.reset(before)
            unmarked.clear()

    def _put_off(self, item: OutboxPart, error: Exception) -> tuple[OutboxPart, float]:
        """Schedule the next attempt. Return the part and the pause in seconds."""
        pause = pause_after(item.attempts + 1, 1.0, _LONGEST_PAUSE) * self._rng.uniform(0.5, 1.0)
        if isinstance(error, SendLater):
            pause = max(pause, error.retry_after)
        elif isinstance(error, SendUnknown):
            pause = max(pause, _DOUBT_PAUSE)
        reason = str(error) or repr(error)
        logger.warning("{}: {} (next try in {:.0f} s)", item.part.key, reason, pause)
        item = replace(item, next_try_at=self._clock.now().timestamp() + pause)
        self._journal.retry_later(item, reason)
        return item, pause

    async def _give_up(self, item: OutboxPart, reason: str) -> Sequence[OutboxPart]:
        logger.error("{} cannot be delivered: {} (see `nanobot queue list`)", item.part.key, reason)
        return await self._journal.give_up(item, reason)


def _is_hopeless(item: OutboxPart, error: Exception) -> bool:
    # A notice is repeated once something else has reached its chat.
    most = 1 if item.part.key.startswith(NOTICE) else MOST_DOUBTS
    if isinstance(error, SendUnknown) and item.doubts >= most:
        return True
    return item.attempts >= MOST_ATTEMPTS or isinstance(error, SendRefused)


@contextmanager
def _anything_else_is(kind: type[SendError], *known: type[Exception]) -> Iterator[None]:
    """Convert all errors except the `known` kinds, including a channel's crash, to `kind`."""
    try:
        yield
    except known:
        raise
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise kind("the channel cancelled the send") from error
    except NanobotError as error:
        raise kind(str(error)) from error
    except Exception as error:
        # Its text may contain anything, and the reason is shown in a chat.
        logger.opt(exception=error).warning("a channel failed")
        raise kind(f"the channel failed ({type(error).__name__})") from error


def _is_question(part: OutboundPart) -> bool:
    """Return True if a part asks the owner, so that its buttons are removed afterwards."""
    return bool(part.buttons) and part.key.startswith(QUESTION)
