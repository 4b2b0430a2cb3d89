"""A status as a value: what `nanobot status` prints, and what `/metrics` counts.

Plain values all the way down, which become JSON at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from nanobot.bus.sqlite_reports import QueueCounts, TurnCounts
from nanobot.gateway.figures import ProcessFigures
from nanobot.gateway.health import Health
from nanobot.gateway.supervisor import ChannelSeen


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
