"""Whether a nanobot works, and who is told: health, the watchdog's pulse, and a stalled event loop.

Three words: `ok`; `degraded`, where something needs a person but the rest goes on (a channel is
off, a message failed, a backup did not work); `failing`, where messages are not taken in or not
kept. Only what a new process would fix, a poll or a journal that hangs, makes it `stuck` as well:
the watchdog is not fed then, and ends the process. `nanobot status`, `/health`, `/metrics` and the
watchdog all use this judgement.

- `Vitals` looks at a running gateway without ever waiting for what hangs.
- `Pulse` feeds the watchdog as long as the event loop turns and nothing is stuck, and reports
  changes.
- The stall thread writes into the log what a blocked event loop is doing, once each time.
- `Notifier` speaks the protocol of `sd_notify(3)`. It never raises and never holds the caller up;
  without a service manager (`NOTIFY_SOCKET`) it does nothing. A gateway that becomes a new one in
  the same process says `restarting`, and the new one says `ready`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from loguru import logger

from nanobot.bus.journal import Journal, QueueCounts
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.gateway.supervisor import ChannelState
from nanobot.tasks import Background

Verdict = Literal["ok", "degraded", "failing"]

JOURNAL_SECONDS = 60.0
"""A disk that takes longer than this for one empty transaction hangs."""


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that is not as it should be. `stuck`: a new process would mend it."""

    level: Literal["degraded", "failing"]
    text: str
    hint: str = ""
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class JournalSeen:
    """How the journal answered: `waiting` seconds that it owes an answer, or why it refused."""

    waiting: float = 0.0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict, and what it rests on, the worst first."""

    concerns: tuple[Concern, ...] = ()

    @property
    def state(self) -> Verdict:
        """The worst of it in a word."""
        levels = {concern.level for concern in self.concerns}
        return "failing" if "failing" in levels else "degraded" if levels else "ok"

    @property
    def stuck(self) -> bool:
        """Whether to start anew."""
        return any(concern.stuck for concern in self.concerns)

    def as_json(self) -> dict[str, object]:
        """For `status` and `/health`."""
        return {
            "state": self.state,
            "concerns": [
                {"level": concern.level, "text": concern.text, "hint": concern.hint}
                for concern in self.concerns
            ],
        }


def judge(
    channels: Sequence[ChannelState],
    now: float,
    journal: JournalSeen,
    queue: QueueCounts,
    others: Sequence[Concern] = (),
) -> Health:
    """The health at `now` (monotonic seconds), with what else is known to be wrong."""
    found = [*_of_journal(journal), *_of_channels(channels, now), *_of_queue(queue), *others]
    return Health(tuple(sorted(found, key=lambda concern: concern.level, reverse=True)))


def _of_journal(journal: JournalSeen) -> Iterator[Concern]:
    if journal.refusal:
        hint = "Make room on the disk, or see to it; messages wait at their platforms meanwhile."
        yield Concern("failing", f"the journal takes nothing: {journal.refusal}", hint)
    elif journal.waiting > JOURNAL_SECONDS:
        text = f"the journal has not answered for {journal.waiting:.0f} s"
        yield Concern("failing", text, "See to the disk.", stuck=True)


def _of_channels(channels: Sequence[ChannelState], now: float) -> Iterator[Concern]:
    for channel in channels:
        if channel.due is not None and channel.due < now and channel.state == "running":
            assert channel.heard_at is not None  # what is due was heard of before
            silent = now - channel.heard_at
            text = f"{channel.name}: nothing was heard from the platform for {silent:.0f} s"
            yield Concern("failing", text, "`nanobot logs` may say why.", stuck=True)
        elif channel.state == "off":
            hint = "Once that is mended: `nanobot agent -m /restart`."
            yield Concern("degraded", f"{channel.name} is off: {channel.detail}", hint)
        elif channel.state == "backoff":
            yield Concern("degraded", f"{channel.name} crashed: {channel.detail}")
        elif channel.state == "running" and channel.detail:
            yield Concern("degraded", f"{channel.name}: {channel.detail}")


def _of_queue(queue: QueueCounts) -> Iterator[Concern]:
    mend = "`nanobot queue list` shows them; `retry` and `drop` mend them."
    if queue.put_off:
        text = f"the model cannot be reached; messages that wait for it: {queue.put_off}"
        yield Concern("degraded", text, "`nanobot doctor` says more.")
    if queue.failed:
        yield Concern("degraded", f"messages that failed: {queue.failed}", mend)
    if queue.dead:
        yield Concern("degraded", f"parts of replies that cannot be delivered: {queue.dead}", mend)


T = TypeVar("T")

_PATIENCE = 3.0
"""Seconds that a look waits for the journal, which otherwise answers in one of them a thousand
times."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen; `queue` is as of the last time that the journal answered."""

    health: Health
    queue: QueueCounts
    journal_answers: bool


class Vitals:
    """`others` tell what else is wrong, each with one concern at most."""

    def __init__(
        self,
        channels: Callable[[], Iterable[ChannelState]],
        journal: Journal,
        clock: Clock,
        background: Background,
        others: Sequence[Callable[[], Concern | None]] = (),
    ) -> None:
        self._channels, self._journal, self._clock = channels, journal, clock
        self._background, self._others = background, others
        self._asking: asyncio.Task[QueueCounts] | None = None
        self._asked_at = 0.0
        self._queue = QueueCounts()

    async def look(self) -> Look:
        """How things stand now. Returns within seconds, whatever hangs."""
        journal = await self._ask_journal()
        concerns = [concern for other in self._others if (concern := other()) is not None]
        channels = list(self._channels())
        health = judge(channels, self._clock.monotonic(), journal, self._queue, concerns)
        return Look(health, self._queue, not journal.waiting and not journal.refusal)

    async def _ask_journal(self) -> JournalSeen:
        if self._asking is None:
            self._asked_at = self._clock.monotonic()
            counting = self._journal.reports.counts()
            self._asking = self._background.start(counting, name="look at the journal")
        asking = self._asking
        alarm = self._background.start(self._clock.sleep(_PATIENCE), name="look no longer")
        await asyncio.wait((asking, alarm), return_when=asyncio.FIRST_COMPLETED)
        alarm.cancel()
        if not asking.done():
            return JournalSeen(waiting=self._clock.monotonic() - self._asked_at)
        if self._asking is asking:
            self._asking = None
        try:
            self._queue = asking.result()
        except StorageError as error:
            return JournalSeen(refusal=str(error))
        return JournalSeen(refusal=self._journal.refusal)


_LIMIT = 30.0


class StallWatch:
    """Watches the thread that calls `start`, which is to call `beat` from then on. `limit` seconds
    without are too long."""

    def __init__(self, limit: float = _LIMIT) -> None:
        self._limit = limit
        self._beaten = threading.Event()
        self._over = False
        self._watched = 0

    def start(self) -> None:
        """Begin to watch."""
        self._watched = threading.get_ident()
        threading.Thread(target=self._watch, name="stall watch", daemon=True).start()

    def beat(self) -> None:
        """The event loop turns."""
        self._beaten.set()

    def stop(self) -> None:
        """Watch no longer."""
        self._over = True
        self._beaten.set()

    def _watch(self) -> None:
        while not self._over:
            since = time.monotonic()
            if not self._beaten.wait(self._limit):
                self._tell(time.monotonic() - since)
                self._beaten.wait()
            self._beaten.clear()

    def _tell(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._watched)
        where = "".join(traceback.format_stack(frame)) if frame else "its thread has ended"
        logger.error("the event loop has not turned for {:.0f} s; it is at\n{}", seconds, where)


_NOTIFY_SECONDS = 1.0
"""Seconds to wait for a manager whose queue is full."""

_LONGEST_STATUS = 300
"""Characters of a status: one line of `systemctl status`."""


class Notifier:
    """Speaks to the service manager at `address` (empty: to nobody).

    `watchdog_seconds` is how long the manager waits for a sign of life before it kills the process,
    None where it does not: `alive()` is to be called at least twice as often.
    """

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        # "@" stands for the NUL byte that a name outside the file system begins with.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """What the manager that started this process asks for; what makes no sense is ignored."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(
            ("/", "@")
        ):  # sockets of virtual machines ("vsock:…") are not ours
            return cls()
        return cls(address, _watchdog_seconds(environ))

    def ready(self) -> None:
        """All has started (again, after `restarting`)."""
        self._tell("READY=1")

    def restarting(self) -> None:
        """This process becomes a new gateway, which will say `ready`."""
        self._tell("RELOADING=1")

    def stopping(self) -> None:
        """The end has begun, and this process will not come back from it."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        if self.watchdog_seconds is not None:
            self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for people, which `systemctl status` shows."""
        self._tell("STATUS=" + " ".join(text.split())[:_LONGEST_STATUS])

    def extend(self, seconds: float) -> None:
        """Starting or stopping will take up to `seconds` more from now, however long is usual."""
        self._tell(f"EXTEND_TIMEOUT_USEC={max(1, round(seconds * 1_000_000))}")

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as out:
            out.settimeout(_NOTIFY_SECONDS)
            out.connect(self._address)
            out.send(message.encode("utf-8", "replace"))


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    whose = environ.get("WATCHDOG_PID", "")
    if whose and whose != str(os.getpid()):  # meant for a parent of ours
        return None
    text = environ.get("WATCHDOG_USEC", "")
    microseconds = int(text) if text.isascii() and text.isdigit() else 0
    return microseconds / 1_000_000 if microseconds else None


BEAT_SECONDS = 10.0
_FEEDINGS = 3
"""The watchdog is fed so many times in the time that it allows."""
_NUMBER = re.compile(r"\d+")
_NUMBERS_SECONDS = 60.0
"""The manager is told of other numbers so often at most: a slow one would hold us up each time."""


class Pulse:
    """Beats until stopped."""

    def __init__(
        self, vitals: Vitals, notifier: Notifier, clock: Clock, stall: StallWatch | None = None
    ) -> None:
        self._vitals, self._notifier, self._clock = vitals, notifier, clock
        self._stall = stall or StallWatch()
        self._status = self._told = ""
        self._status_due = 0.0
        allowed = notifier.watchdog_seconds
        self._seconds = min(BEAT_SECONDS, allowed / _FEEDINGS) if allowed else BEAT_SECONDS
        self._running: asyncio.Task[None] | None = None

    async def run_forever(self) -> None:
        """Until `stop`."""
        self._running = asyncio.current_task()
        self._stall.start()
        try:
            while True:
                self._stall.beat()
                await self._beat()
                await self._clock.sleep(self._seconds)
        finally:
            self._stall.stop()

    def stop(self) -> None:
        """Beat no more."""
        if self._running is not None:
            self._running.cancel()

    async def _beat(self) -> None:
        try:
            look = await self._vitals.look()
        except Exception as error:  # noqa: BLE001 - the boundary: the next look may go well
            logger.opt(exception=error).error("nobody can see how nanobot is: {}", error)
            return
        if not look.health.stuck:
            self._notifier.alive()
        self._tell(look.health)

    def _tell(self, health: Health) -> None:
        told = "; ".join(concern.text for concern in health.concerns)
        status = f"{health.state}: {told}" if told else health.state
        saying = _NUMBER.sub("", status)  # how long it has been is no news for the log
        is_news, now = saying != self._told, self._clock.monotonic()
        if is_news or (status != self._status and now >= self._status_due):
            self._notifier.status(status)
            self._status, self._status_due = status, now + _NUMBERS_SECONDS
        if not is_news:
            return
        if health.state == "failing":
            logger.error("health: failing: {}", told)
        elif health.state == "degraded":
            logger.warning("health: degraded: {}", told)
        elif self._told:
            logger.info("health: ok again")
        self._told = saying
