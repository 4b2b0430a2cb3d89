"""The status of a nanobot, one answer for `nanobot status`, `/status`, `/health` and `/metrics`.

A running gateway is asked; without one, the files tell what they can. The answer is plain values
all the way down, which become JSON at the edge. `Tally` counts turns and tokens since the start.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from nanobot.agent.hooks import AgentHook
from nanobot.bus.events import TurnEnded
from nanobot.bus.journal import JournalReports, QueueCounts, TurnCounts
from nanobot.clock import Clock
from nanobot.gateway.health import Health, Vitals
from nanobot.gateway.supervisor import ChannelSeen, ChannelState
from nanobot.providers.counter import Prices
from nanobot.session.manager import SessionManager

SHARES = {
    "memory": ("workspace/memory", "workspace/people", "workspace/groups"),
    "sessions": ("sessions",),
    "media": ("media",),
    "versions": ("state/memory.git",),
    "index": ("state/index.db", "state/index.db-wal"),
    "journal": ("state/journal.db", "state/journal.db-wal"),
    "logs": ("logs",),
    "spill": ("spill",),
}
"""What a home holds, and where."""


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """This process. `resident` is in bytes."""

    resident: int
    descriptors: int
    threads: int
    tasks: int


def process_figures() -> ProcessFigures:
    """As Linux tells them. To be called on the event loop."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return ProcessFigures(
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 - less the one that this opens
        threading.active_count(),
        len(asyncio.all_tasks()),
    )


def sizes(home: Path) -> Mapping[str, int]:
    """Bytes in each of `SHARES`, counted by the files' lengths. Blocks."""
    return {name: sum(_size(home / path) for path in paths) for name, paths in SHARES.items()}


def _size(path: Path) -> int:
    """What a file or a folder holds; what goes while it is looked at counts as nothing."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
        entries = list(path.iterdir())
    except OSError:
        return 0
    return sum(map(_size, entries))


class Tally(AgentHook):
    """`turns` by how they ended, and the tokens of those that ended."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0

    async def turn_ended(self, ended: TurnEnded) -> None:
        self.turns[ended.outcome] += 1
        self.prompt_tokens += ended.prompt_tokens
        self.completion_tokens += ended.completion_tokens


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while a nanobot runs."""

    version: str
    home: str
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Today:
    """Since midnight: the turns, and the tokens of all calls. `memory_tokens` are those of memory's
    own calls; they are in the cost, and in none of the others. `cost` is None without prices."""

    turns: TurnCounts
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    memory_tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class SinceStart:
    """Since this process began: turns that ended, by outcome, their tokens, and lines of the
    log."""

    turns: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int
    errors: int
    warnings: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a running gateway knows besides."""

    pid: int
    uptime_seconds: int
    health: Health
    turns_running: int
    channels: tuple[ChannelSeen, ...]
    since_start: SinceStart
    process: ProcessFigures

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "pid": self.pid,
            "uptime_seconds": self.uptime_seconds,
            "health": self.health.as_json(),
            "turns_running": self.turns_running,
            "channels": [asdict(channel) for channel in self.channels],
            "since_start": asdict(self.since_start),
            "process": asdict(self.process),
        }


_AT_REST: Mapping[str, object] = {
    "pid": 0,
    "uptime_seconds": 0,
    "health": {"state": "stopped", "concerns": []},
    "turns_running": 0,
    "channels": [],
}


@dataclass(frozen=True, slots=True)
class Report:
    """A whole status. `work` is None where no gateway runs, `today` where the journal does not
    answer; `queue` is what it said last. `sizes` are bytes on disk."""

    about: About
    work: Work | None
    journal_answers: bool
    queue: QueueCounts
    today: Today | None
    sessions: int
    sizes: Mapping[str, int]

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            **asdict(self.about),
            "running": self.work is not None,
            **(self.work.as_json() if self.work else _AT_REST),
            "journal_answers": self.journal_answers,
            "queue": asdict(self.queue),
            **({"today": asdict(self.today)} if self.today else {}),
            "sessions": self.sessions,
            "sizes": dict(self.sizes),
        }


T = TypeVar("T")

_SIZES_SECONDS = 60.0
"""For so long the sizes of a home hold: they take a look at every file."""


class Reader(Protocol):
    """Runs a function of the journal's connection, in a transaction."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Its result, once durable."""
        ...


@dataclass(frozen=True, slots=True)
class Live:
    """What only a running gateway knows. `logged` counts the errors and the warnings in its log."""

    born: float
    turns_running: Callable[[], int]
    channels: Callable[[], Iterable[ChannelState]]
    vitals: Vitals
    tally: Tally
    logged: Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Brief:
    """The little of it that goes into a chat."""

    uptime_seconds: int
    turns_running: int
    queue: QueueCounts
    health: Health


class Status:
    """The status of one home; `live` is None where no gateway runs."""

    def __init__(
        self,
        about: About,
        reports: JournalReports,
        sessions: SessionManager,
        prices: Prices,
        clock: Clock,
        live: Live | None,
    ) -> None:
        self._about, self._reports, self._sessions = about, reports, sessions
        self._prices, self._clock, self._live = prices, clock, live
        self._sizes: Mapping[str, int] = {}
        self._sizes_until = -1.0

    def table(self) -> Mapping[str, Callable[[Mapping[str, object]], Awaitable[object]]]:
        """The operation, as it is called over the socket."""
        return {"status": self.status}

    async def status(self, _: Mapping[str, object]) -> dict[str, object]:
        """All of it, for programs. Returns within seconds, whatever hangs."""
        return (await self.report()).as_json()

    async def report(self) -> Report:
        """All of it. Returns within seconds, whatever hangs."""
        look = await self._live.vitals.look() if self._live else None
        answers = look is None or look.journal_answers
        queue = look.queue if look else QueueCounts()
        return Report(
            self._about,
            work=_work(self._live, look.health, self._clock) if self._live and look else None,
            journal_answers=answers,
            queue=await self._reports.counts() if answers else queue,
            today=await self._today() if answers else None,
            sessions=len(await asyncio.to_thread(self._sessions.list_sessions)),
            sizes=await self._sizes_now(),
        )

    async def brief(self) -> Brief:
        """The least of it, while a gateway runs."""
        assert self._live is not None
        look = await self._live.vitals.look()
        uptime = round(self._clock.monotonic() - self._live.born)
        return Brief(uptime, self._live.turns_running(), look.queue, look.health)

    async def _today(self) -> Today:
        midnight = _midnight(self._clock.now())
        turns = await self._reports.usage(since=midnight)
        memory = await self._reports.learning(midnight.date())
        cost = self._prices.cost(
            prompt=turns.prompt + memory.prompt,
            cached=turns.cached + memory.cached,
            completion=turns.completion + memory.completion,
        )
        return Today(
            await self._reports.turn_counts(midnight),
            prompt_tokens=turns.prompt,
            cached_tokens=turns.cached,
            completion_tokens=turns.completion,
            memory_tokens=memory.prompt + memory.completion,
            cost=cost,
        )

    async def _sizes_now(self) -> Mapping[str, int]:
        if self._clock.monotonic() >= self._sizes_until:
            self._sizes = await asyncio.to_thread(sizes, Path(self._about.home))
            self._sizes_until = self._clock.monotonic() + _SIZES_SECONDS
        return self._sizes


def _work(live: Live, health: Health, clock: Clock) -> Work:
    now, tally = clock.monotonic(), live.tally
    errors, warnings = live.logged()
    return Work(
        pid=os.getpid(),
        uptime_seconds=round(now - live.born),
        health=health,
        turns_running=live.turns_running(),
        channels=tuple(state.seen(now) for state in live.channels()),
        since_start=SinceStart(
            dict(tally.turns), tally.prompt_tokens, tally.completion_tokens, errors, warnings
        ),
        process=process_figures(),
    )


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)
