"""The status of a nanobot, one answer for `nanobot status`, `/status`, `/health` and `/metrics`.

A running gateway is asked; without one, the files tell what they can. The answer is plain values
all the way down, which become JSON at the edge.

`/health` answers 200 while messages are taken in and kept (`ok` or `degraded`) and 503 otherwise,
with the same health in JSON as `nanobot status --json`. `/metrics` is the text format of
Prometheus. Neither contains a word of a conversation.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.agent.hooks import Chronicle
from nanobot.bus.events import TERMINAL
from nanobot.bus.journal import JournalReports, QueueCounts, TurnCounts
from nanobot.channel import WebhookReply, WebhookRequest
from nanobot.clock import Clock
from nanobot.commands import Operation
from nanobot.errors import NanobotError
from nanobot.gateway.channels import ChannelSeen
from nanobot.gateway.health import Health, HealthMonitor
from nanobot.gateway.webserver import WebServer
from nanobot.logs import Counted
from nanobot.providers.counter import Prices
from nanobot.session.manager import SessionManager

if TYPE_CHECKING:
    from prometheus_client.core import Metric

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


def _process_figures() -> dict[str, int]:
    """Of this process, as Linux tells them: bytes of memory, and how much of what is limited."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 - less this one
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
    }


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
class Work:
    """What a running gateway knows besides. `since_start` are turns by outcome, tokens of turns,
    and lines of the log, since this process began; `process` is what it takes."""

    pid: int
    uptime_seconds: int
    health: Health
    turns_running: int
    channels: tuple[ChannelSeen, ...]
    turns: Mapping[str, int]
    since_start: Mapping[str, int]
    process: Mapping[str, int]

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "pid": self.pid,
            "uptime_seconds": self.uptime_seconds,
            "health": self.health.as_json(),
            "turns_running": self.turns_running,
            "channels": [asdict(channel) for channel in self.channels],
            "since_start": {"turns": self.turns, **self.since_start},
            "process": self.process,
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
            "journal_answers": self.today is not None,
            "queue": asdict(self.queue),
            **({"today": asdict(self.today)} if self.today else {}),
            "sessions": self.sessions,
            "sizes": dict(self.sizes),
        }


_SIZES_SECONDS = 60.0
"""For so long the sizes of a home hold: they take a look at every file."""


@dataclass(frozen=True, slots=True)
class Live:
    """What only a running gateway knows; it began at `born` on the monotonic clock."""

    born: float
    turns_running: Callable[[], int]
    monitor: HealthMonitor
    chronicle: Chronicle
    counted: Counted

    def work(self, health: Health, now: float) -> Work:
        """All of it."""
        return Work(
            pid=os.getpid(),
            uptime_seconds=round(now - self.born),
            health=health,
            turns_running=self.turns_running(),
            channels=tuple(state.seen(now) for state in self.monitor.channels.values()),
            turns=dict(self.chronicle.turns),
            since_start={
                "prompt_tokens": self.chronicle.prompt_tokens,
                "completion_tokens": self.chronicle.completion_tokens,
                "errors": self.counted.errors,
                "warnings": self.counted.warnings,
            },
            process=_process_figures(),
        )


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
        self.about, self._reports, self._sessions = about, reports, sessions
        self._prices, self._clock, self._live = prices, clock, live
        self._sizes: Mapping[str, int] = {}
        self._sizes_until = -1.0

    def table(self) -> Mapping[str, Operation]:
        """The operation, as it is called over the socket."""
        return {"status": self.status}

    async def status(self, _: Mapping[str, object]) -> dict[str, object]:
        """All of it, for programs. Returns within seconds, whatever hangs."""
        return (await self.report()).as_json()

    async def report(self) -> Report:
        """All of it. Returns within seconds, whatever hangs."""
        health = await self._live.monitor.look() if self._live else Health()
        answers, now = health.journal_answers, self._clock.monotonic()
        if now >= self._sizes_until:
            self._sizes = await asyncio.to_thread(sizes, Path(self.about.home))
            self._sizes_until = now + _SIZES_SECONDS
        return Report(
            self.about,
            work=self._live.work(health, now) if self._live else None,
            queue=await self._reports.counts() if answers else health.queue,
            today=await self._today() if answers else None,
            sessions=len(await asyncio.to_thread(self._sessions.list_sessions)),
            sizes=self._sizes,
        )

    async def work(self) -> Work:
        """What a running gateway knows."""
        assert self._live is not None
        return self._live.work(await self._live.monitor.look(), self._clock.monotonic())

    async def _today(self) -> Today:
        midnight = self._clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
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


def exposition(report: Report) -> bytes:
    """The text format of Prometheus, version 0.0.4."""
    from prometheus_client import generate_latest  # only where somebody asks for it
    from prometheus_client.registry import Collector, CollectorRegistry

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            return _metrics(report)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return generate_latest(registry)


def _metrics(report: Report) -> Iterator[Metric]:
    if report.work is not None:
        yield from _work_metrics(report.work)
    yield _by("nanobot_queue", "Rows that are not at their end.", "state", asdict(report.queue))
    yield _one("nanobot_sessions", "Conversations.", report.sessions)
    if (today := report.today) is not None:
        tokens = {
            "prompt": today.prompt_tokens,
            "cached": today.cached_tokens,
            "completion": today.completion_tokens,
            "memory": today.memory_tokens,
        }
        yield _by("nanobot_today_tokens", "Tokens used since midnight.", "kind", tokens)
        if today.cost is not None:
            yield _one("nanobot_today_cost", "Their cost, by model.prices.", today.cost)
    yield _by("nanobot_size_bytes", "What lies in the home.", "what", report.sizes)


def _work_metrics(work: Work) -> Iterator[Metric]:
    states = {name: int(name == work.health.state) for name in ("ok", "degraded", "failing")}
    yield _by("nanobot_health", "1 for what the health is now.", "state", states)
    yield _one("nanobot_uptime_seconds", "Since the start.", work.uptime_seconds)
    yield _one("nanobot_turns_running", "Turns under way.", work.turns_running)
    channels = [channel for channel in work.channels if channel.name != TERMINAL]
    up = {channel.name: int(channel.state == "running") for channel in channels}
    yield _by("nanobot_channel_up", "Whether a channel runs.", "channel", up)
    heard = {c.name: c.heard_seconds for c in channels if c.heard_seconds is not None}
    meaning = "Seconds since something last came from a platform."
    yield _by("nanobot_channel_heard_seconds", meaning, "channel", heard)
    since = work.since_start
    yield _counted("nanobot_turns", "Turns that ended.", "outcome", work.turns)
    tokens = {"prompt": since["prompt_tokens"], "completion": since["completion_tokens"]}
    yield _counted("nanobot_tokens", "Tokens of turns that ended.", "kind", tokens)
    logged = {"error": since["errors"], "warning": since["warnings"]}
    yield _counted("nanobot_logged", "Lines of the log.", "level", logged)
    yield _one("nanobot_resident_bytes", "Memory of the process.", work.process["resident"])
    yield _one("nanobot_descriptors", "Open file descriptors.", work.process["descriptors"])
    yield _one("nanobot_tasks", "Tasks of the event loop.", work.process["tasks"])


def _one(name: str, meaning: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, meaning, value=value)


def _by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, meaning, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _counted(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, meaning, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


class HealthEndpoint:
    """Serves `/health` and `/metrics` until stopped, on a `web` of its own. Without `metrics` there
    are none; with a `token` only for who sends it."""

    def __init__(
        self,
        web: WebServer,
        monitor: HealthMonitor,
        status: Status,
        *,
        metrics: bool,
        token: str = "",
    ) -> None:
        self._web, self._monitor, self._status = web, monitor, status
        self._metrics, self._token = metrics, token
        self._stop = asyncio.Event()

    async def run_forever(self) -> None:
        """Until `stop`. Where nobody can listen, the log says so, and all else goes on."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._web.close)
            try:
                await stack.enter_async_context(self._web.serve("/health", self._health))
                if self._metrics:
                    await stack.enter_async_context(self._web.serve("/metrics", self._measure))
            except NanobotError as error:
                logger.error("no /health: {} {}", error, error.hint)
                return
            await self._stop.wait()

    def stop(self) -> None:
        """Serve no more."""
        self._stop.set()

    def _refusal(self, request: WebhookRequest) -> WebhookReply | None:
        kind, _, sent = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(sent.strip().encode("utf-8", "replace"), self._token.encode())
        if not self._token or (kind.lower() == "bearer" and same):
            return None
        return WebhookReply(401, headers={"WWW-Authenticate": "Bearer"})

    async def _health(self, request: WebhookRequest) -> WebhookReply:
        if refusal := self._refusal(request):
            return refusal
        health = await self._monitor.look()
        status = 503 if health.state == "failing" else 200
        body = json.dumps(health.as_json()).encode()
        return WebhookReply(status, body, {"Content-Type": "application/json"})

    async def _measure(self, request: WebhookRequest) -> WebhookReply:
        if refusal := self._refusal(request):
            return refusal
        body = exposition(await self._status.report())
        return WebhookReply(200, body, {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
