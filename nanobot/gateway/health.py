"""Health of a nanobot and its reports: the watchdog, systemd, a stalled event loop.

The states are `ok`; `degraded`, if something needs a person but the rest works (a channel is off, a
message or a backup failed); and `failing`, if messages are not accepted or not stored. A poll or a
journal that hangs is also `stuck`, because only a new process fixes it: the watchdog is not fed and
ends the process. `nanobot status`, `/health`, `/metrics` and the watchdog share this assessment.

- `HealthMonitor` checks a running gateway and never waits for a part that hangs.
- `Watchdog` sends signs of life while the event loop runs and nothing is stuck, and reports
  changes. Its timer writes the stack of a blocked event loop to standard error.
- `SystemdNotifier` speaks the protocol of `sd_notify(3)`. It never raises. Without a service
  manager (`NOTIFY_SOCKET`) it does nothing."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from loguru import logger
from msgspec import Struct, field

from nanobot.bus.damage import damage_reports
from nanobot.bus.journal import QueueCounts
from nanobot.bus.journal_file import documents_set_aside
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock, with_timeout
from nanobot.errors import StorageError
from nanobot.gateway.channels import ChannelState
from nanobot.memory.scopes import Memories
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background, Periodic
from nanobot.upkeep.retention import DiskReserve

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot.upkeep.backups import BackupMaker

_ASIDE = {
    "*.git.damaged-*": "a repository of memory versions",
    "versions/*/*.git.damaged-*": "a repository of memory versions",
    "channels/*/*.damaged*": "a channel's file",
}
"""Damaged files set aside in the state folder, by name pattern."""
JOURNAL_SECONDS = 60.0
"""A disk that takes longer than this for one empty transaction hangs."""


class Concern(Struct, frozen=True):
    """A problem. A new process would fix a `stuck` one."""

    level: Literal["degraded", "failing"]
    text: str
    hint: str = ""
    stuck: bool = False


class Health(Struct, frozen=True):
    """The problems, the worst first. `queue` is from the last time that the journal answered."""

    concerns: tuple[Concern, ...] = ()
    queue: QueueCounts = field(default_factory=QueueCounts)
    journal_answers: bool = True

    @property
    def state(self) -> Literal["ok", "degraded", "failing"]:
        """Level of the worst problem."""
        return self.concerns[0].level if self.concerns else "ok"

    @property
    def stuck(self) -> bool:
        """True if a new process would help."""
        return any(concern.stuck for concern in self.concerns)

    def as_json(self) -> dict[str, object]:
        """Return the health for `status` and `/health`."""
        concerns = [{"level": c.level, "text": c.text, "hint": c.hint} for c in self.concerns]
        return {"state": self.state, "concerns": concerns}


def assess(
    channels: Iterable[ChannelState],
    now: float,
    queue: QueueCounts,
    others: Iterable[Concern] = (),
    *,
    waiting: float = 0.0,
    refusal: StorageError | None = None,
) -> Health:
    """Return the health at `now` (monotonic seconds). The journal has not answered for `waiting`
    seconds, or answered with a `refusal`. `others` are further problems."""
    found = [*_of_channels(channels, now), *_of_queue(queue), *others]
    if refusal:
        hint = f"{refusal.hint} Until then, messages stay on the chat platforms.".lstrip()
        found.append(Concern("failing", f"the journal rejects writes: {refusal}", hint))
    elif waiting > JOURNAL_SECONDS:
        text = f"the journal has not responded for {waiting:.0f} s"
        found.append(Concern("failing", text, "Check the disk or the team's database.", stuck=True))
    found.sort(key=lambda concern: concern.level, reverse=True)
    return Health(tuple(found), queue, not waiting and not refusal)


def _of_channels(channels: Iterable[ChannelState], now: float) -> Iterator[Concern]:
    for channel in channels:
        if channel.due is not None and channel.due < now and channel.state == "running":
            assert channel.heard_at is not None  # implied by `due`
            silent = now - channel.heard_at
            text = f"{channel.name}: the platform has been silent for {silent:.0f} s"
            yield Concern("failing", text, "Check `nanobot logs`.", stuck=True)
        elif channel.state == "off":
            hint = "Fix the problem, then run `nanobot agent -m /restart`."
            yield Concern("degraded", f"{channel.name} is off: {channel.detail}", hint)
        elif channel.state == "backoff":
            yield Concern("degraded", f"{channel.name} crashed: {channel.detail}")
        elif channel.state == "running" and channel.detail:
            yield Concern("degraded", f"{channel.name}: {channel.detail}")


def _of_queue(queue: QueueCounts) -> Iterator[Concern]:
    hint = (
        "List them with `nanobot queue list`, then run `nanobot queue retry ID` or `nanobot "
        "queue drop ID`."
    )
    if queue.put_off:
        text = f"the model cannot be reached (pending messages: {queue.put_off})"
        yield Concern("degraded", text, "Run `nanobot doctor --ask-model`.")
    if queue.failed:
        yield Concern("degraded", f"failed messages: {queue.failed}", hint)
    if queue.dead:
        yield Concern("degraded", f"undelivered parts of replies: {queue.dead}", hint)


def storage_concerns(
    journal: Journal, state: Path, sessions: SessionManager, memories: Memories
) -> Iterator[Concern]:
    """Yield problems of storage: a crashed journal thread, which only a new process restores;
    unused documents in `state`; unreadable conversations, whose messages are pending; and
    unreadable prompt files (AGENTS.md etc., facts and notes)."""
    if journal.has_died:
        text = "the thread that writes the journal has crashed"
        yield Concern(
            "failing", text, "Restart nanobot. `nanobot logs` shows the cause.", stuck=True
        )
    for text, hint in (*documents_set_aside(state), *_list_replaced(state)):
        yield Concern("degraded", text, hint)
    for key, error in list(sessions.unreadable.items())[:1]:
        others = f" (and {len(sessions.unreadable) - 1} more)" * (len(sessions.unreadable) > 1)
        yield Concern("degraded", f"conversation {key} cannot be read{others}: {error}", error.hint)
    damaged = {f"conversation {key}": count for key, count in sessions.broken.items()}
    for name, count in list((damaged | {**memories.count_broken_lines()}).items())[:3]:
        hint = "Repair these lines in the file (one JSON object per line), or remove them."
        yield Concern("degraded", f"unreadable lines in {name}: {count}", hint)
    for path, problem in memories.unreadable():
        hint = "Repair the file. `nanobot memory restore --list` shows earlier versions."
        yield Concern("degraded", f"{path} {problem}", hint)


def _list_replaced(state: Path) -> Iterator[tuple[str, str]]:
    """Yield a text and a hint for each damaged file that was replaced."""
    for _, text, hint in damage_reports(state):
        yield text, hint
    for pattern, what in _ASIDE.items():
        for aside in sorted(state.glob(pattern)):
            hint = f"The damaged one is kept as {aside}. To dismiss this notice, remove it."
            yield f"{what} was damaged and replaced with a new one ({aside.name})", hint


def learning_concerns(problems: Iterable[Callable[[], str]]) -> Iterator[Concern]:
    """Yield repeated failures of consolidation or Dream. Each of `problems` returns a reason or an
    empty text."""
    for problem in problems:
        if text := problem():
            hint = "Nothing is lost, and nanobot will retry. Run `nanobot doctor --ask-model`."
            yield Concern("degraded", text, hint)


def upkeep_concerns(room: DiskReserve, backups: BackupMaker | None) -> Iterator[Concern]:
    """Yield problems of a nearly full disk and of backups that failed or can't be pruned."""
    if room.text:
        yield Concern("failing", room.text, room.hint)
    if backups is not None and backups.problem:
        hint = "nanobot will retry. To back up now, run `nanobot backup`."
        yield Concern("degraded", backups.problem, hint)


_TIMEOUT = 3.0
"""Seconds to wait for the journal, which usually answers within milliseconds."""


class HealthMonitor:
    """Health checks of a running gateway. `channels` are the supervisor's by name. `others` yield
    further problems."""

    def __init__(
        self,
        channels: Mapping[str, ChannelState],
        journal: Journal,
        clock: Clock,
        background: Background,
        others: Sequence[Callable[[], Iterable[Concern]]] = (),
    ) -> None:
        self.channels = channels
        self._journal, self._clock = journal, clock
        self._background, self._others = background, others
        self._asking: asyncio.Task[StorageError | None] | None = None
        self._asked_at = 0.0
        self._queue = QueueCounts()

    async def check_health(self) -> Health:
        """Return the current health within seconds, even if something hangs."""
        waiting, refusal = await self._ask_journal()
        others = [concern for other in self._others for concern in other()]
        states, now = self.channels.values(), self._clock.monotonic()
        return assess(states, now, self._queue, others, waiting=waiting, refusal=refusal)

    async def _ask_journal(self) -> tuple[float, StorageError | None]:
        """Return how many seconds the journal has not answered, and its error."""
        if self._asking is None:
            self._asked_at = self._clock.monotonic()
            self._asking = self._background.start(self._count(), name="look at the journal")
        asking = self._asking
        try:
            refusal = await with_timeout(self._clock, _TIMEOUT, asyncio.shield(asking))
        except TimeoutError:
            return self._clock.monotonic() - self._asked_at, None
        if self._asking is asking:
            self._asking = None
        return 0.0, refusal or self._journal.refusal

    async def _count(self) -> StorageError | None:
        try:
            self._queue = await self._journal.counts()
        except StorageError as error:
            return error
        return None


_NOTIFY_SECONDS = 1.0
"""Seconds to wait for a manager whose queue is full."""

_LONGEST_STATUS = 300
"""Characters of a status: one line of `systemctl status`."""


class SystemdNotifier:
    """Notifier of the service manager named in `environ`, if any. `watchdog_seconds` is its timeout
    for a sign of life (`WATCHDOG=1`), after which it kills the process, or None."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        ours = address.startswith(("/", "@"))  # not sockets of virtual machines ("vsock:…")
        # "@" means the NUL byte at the start of an abstract socket name.
        self._address = re.sub("^@", "\0", address) if ours else ""
        text = environ.get("WATCHDOG_USEC", "")
        microseconds = int(text) if text.isascii() and text.isdigit() else 0
        # sd_watchdog_enabled(3): another pid means that the watchdog is not for this process.
        for_us = environ.get("WATCHDOG_PID", "") in {"", str(os.getpid())}
        wanted = self._address and microseconds and for_us
        self.watchdog_seconds = microseconds / 1_000_000 if wanted else None

    def send(self, state: str) -> None:
        """Send a state such as `READY=1`."""
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as out:
            out.settimeout(_NOTIFY_SECONDS)
            out.connect(self._address)
            out.send(state.encode("utf-8", "replace"))


BEAT_SECONDS = 10.0
_STALL_SECONDS = 30.0
"""Seconds after which an event loop counts as stalled, and its stack is written to standard
error."""
_NUMBER = re.compile(r"\d+")


class Watchdog(Periodic):
    """Periodic health check that feeds the manager's watchdog and reports changes."""

    def __init__(self, monitor: HealthMonitor, systemd: SystemdNotifier, clock: Clock) -> None:
        allowed = systemd.watchdog_seconds
        # Send three signs of life per timeout.
        super().__init__(clock, min(BEAT_SECONDS, allowed / 3) if allowed else BEAT_SECONDS)
        self._monitor, self._systemd = monitor, systemd
        self._status = self._logged = ""

    async def run_once(self) -> None:
        """Check the health. If the event loop does not return here in time, it has stalled."""
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(_STALL_SECONDS, file=sys.__stderr__)
        health = await self._monitor.check_health()
        if not health.stuck and self._systemd.watchdog_seconds is not None:
            self._systemd.send("WATCHDOG=1")
        text = "; ".join(concern.text for concern in health.concerns)
        status = f"{health.state}: {text}" if text else health.state
        if status != self._status:
            self._systemd.send("STATUS=" + " ".join(status.split())[:_LONGEST_STATUS])
        self._status = status
        self._log(health, status)

    def _log(self, health: Health, status: str) -> None:
        news = _NUMBER.sub("", status)  # durations change all the time
        if news == self._logged:
            return
        if health.state == "failing":
            logger.error("health: {}", status)
        elif health.state == "degraded":
            logger.warning("health: {}", status)
        elif self._logged:
            logger.info("health: ok again")
        self._logged = news

    def stop(self) -> None:
        super().stop()
        faulthandler.cancel_dump_traceback_later()
