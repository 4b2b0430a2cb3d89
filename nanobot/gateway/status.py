"""Status of a nanobot, for `nanobot status`, `/status`, `/health` and `/metrics`.

A running gateway reports it. Without one, it is read from the files as far as possible. The answer
consists of plain values, which become JSON at the edge.

`/health` answers 200 while messages are accepted and stored (`ok` or `degraded`) and 503 otherwise,
with the health as in `nanobot status --json`. `/metrics` is in the text format of Prometheus.
Neither contains text of a conversation."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from loguru import logger
from msgspec import Struct
from msgspec.structs import asdict

from nanobot.agent.hooks import TurnMetrics
from nanobot.bus.damage import damage_reports
from nanobot.bus.events import TERMINAL
from nanobot.bus.journal import LEARNING, in_currency, sum_usage
from nanobot.bus.sql_journal import Journal
from nanobot.channel import WebhookReply, WebhookRequest, came_by_proxy
from nanobot.clock import Clock
from nanobot.commands import CommandCall, text_argument
from nanobot.errors import ExtraMissing, NanobotError
from nanobot.gateway.health import Concern, Health, HealthMonitor
from nanobot.gateway.webserver import WebServer
from nanobot.logs import LogCounter
from nanobot.providers.port import add_costs
from nanobot.session.manager import SessionManager
from nanobot.tasks import pace
from nanobot.text import duration
from nanobot.tooling import OWNER

SHARES = {
    "memory": ("workspace/memory", "workspace/people", "workspace/groups"),
    "sessions": ("sessions",),
    "media": ("media",),
    "versions": ("state/memory.git", "state/versions"),
    "index": ("state/index.db", "state/index.db-wal", "state/catalogue.db"),
    "journal": ("state/journal.db", "state/journal.db-wal"),
    "logs": ("logs",),
    "spill": ("spill",),
}
"""Parts of a home and their paths."""


def sizes(*homes: Path) -> Mapping[str, int]:
    """Return the bytes of each of `SHARES` in these folders, by file lengths. Blocks."""
    return {
        name: sum(bytes_in(home / path) for home in homes for path in paths)
        for name, paths in SHARES.items()
    }


def bytes_in(path: Path | os.DirEntry[str]) -> int:
    """Return the size of a file or a folder. Files that vanish count as zero."""
    try:
        if not path.is_dir() or path.is_symlink():
            return os.lstat(path).st_size
        with os.scandir(path) as entries:
            return sum(map(bytes_in, pace(entries)))
    except OSError:
        return 0


_SIZES_SECONDS = 60.0
"""Seconds to cache the sizes of a home, which require a look at every file."""


class RuntimeStatus(Struct, frozen=True):
    """Status known only to a running gateway. It started at `born` on the monotonic clock.
    `pending` are the questions to the owner, `windows` the context windows of the named models, and
    of the main one under an empty name."""

    born: float
    turns_running: Callable[[], int]
    monitor: HealthMonitor
    turn_metrics: TurnMetrics
    counted: LogCounter
    pending: Callable[[], Sequence[Mapping[str, object]]] = tuple
    windows: Mapping[str, int] = {}

    def report(self, health: Health, now: float) -> dict[str, object]:
        """Return all of it. `since_start` has turns by outcome, tokens of turns, and lines of the
        log. `process` has Linux's counts of this process's limited resources."""
        turn_metrics = self.turn_metrics
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "pid": os.getpid(),
            "uptime_seconds": round(now - self.born),
            "health": health.as_json(),
            "turns_running": self.turns_running(),
            "pending_approvals": [*self.pending()],
            "channels": [state.as_json(now) for state in self.monitor.channels.values()],
            "since_start": {
                "turns": dict(turn_metrics.turns),
                "prompt_tokens": turn_metrics.prompt_tokens,
                "completion_tokens": turn_metrics.completion_tokens,
                "errors": self.counted.errors,
                "warnings": self.counted.warnings,
            },
            "process": {
                "resident": pages * os.sysconf("SC_PAGE_SIZE"),
                "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 - less this one
                "threads": threading.active_count(),
                "tasks": len(asyncio.all_tasks()),
            },
        }


class Status:
    """The status of one home. `about` are the constants `version`, `home`, `provider` and `model`.
    `live` is None without a gateway."""

    def __init__(
        self,
        about: Mapping[str, str],
        journal: Journal,
        sessions: SessionManager,
        clock: Clock,
        live: RuntimeStatus | None,
    ) -> None:
        self._about, self._journal, self._sessions = about, journal, sessions
        self._clock, self._live = clock, live
        self._sizes: Mapping[str, int] = {}
        self._sizes_until = -1.0

    async def status(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return all of it for programs, within seconds even if something hangs. If the journal
        does not answer, there is no `today`, and `queue` is from its last answer."""
        health = await self._live.monitor.check_health() if self._live else Health()
        answers, now = health.journal_answers, self._clock.monotonic()
        if now >= self._sizes_until:
            homes = [Path(self._about[key]) for key in ("home", "shared") if key in self._about]
            self._sizes = await asyncio.to_thread(sizes, *homes)
            self._sizes_until = now + _SIZES_SECONDS
        return {
            **self._about,
            "running": self._live is not None,
            **(self._live.report(health, now) if self._live else self._at_rest()),
            "journal_answers": answers,
            "queue": asdict(await self._journal.counts() if answers else health.queue),
            **({"today": await self._today()} if answers else {}),
            "sessions": await asyncio.to_thread(self._sessions.count),
            "sizes": dict(self._sizes),
        }

    async def conversation(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the facts about the conversation `key` that a terminal shows: the model of the
        last answer, or the chosen one, and the share of its context window that was used, the
        number of messages that people see, the time of the last one, and all tokens of today."""
        session = await self._sessions.get_or_create(text_argument(arguments, "key"))
        seen = [m for m in session.messages if m.role != "tool" and (m.content or m.media)]
        last = seen[-1].timestamp if seen else None
        chosen = str(session.metadata.get("model", ""))
        model, tokens = await self._last_prompt(session.key) if seen else ("", 0)
        today = sum_usage(await self._journal.usage_by_day(self._midnight().date()))
        return {
            "offline": self._about["provider"] == "offline",
            "model": model or chosen or self._about["model"],
            "context_percent": self._share(tokens, chosen),
            "messages": len(seen),
            "last": last.isoformat() if last else "",
            "tokens_today": today.prompt + today.completion,
        }

    def _share(self, tokens: int, model: str) -> int:
        """Return the percentage of a model's context window."""
        windows = self._live.windows if self._live else {}
        window = windows.get(model) or windows.get("", 0)
        return round(100 * tokens / window) if window else 0

    async def _last_prompt(self, session_key: str) -> tuple[str, int]:
        """Return the model of the last answer, and the tokens of its prompt and itself."""
        turns = await self._journal.turns(session=session_key, state="done", limit=1)
        if not turns:
            return "", 0
        report = (await self._journal.turn_record(turns[0].id)).report
        tokens = report.get("context_tokens")
        return turns[0].model, tokens if isinstance(tokens, int) else 0

    def _midnight(self) -> datetime:
        return self._clock.now().replace(hour=0, minute=0, second=0, microsecond=0)

    def _at_rest(self) -> dict[str, object]:
        state = Path(self._about["home"]) / "state"
        damages = (Concern("degraded", text, hint) for _, text, hint in damage_reports(state))
        return {
            "pid": 0,
            "uptime_seconds": 0,
            "turns_running": 0,
            "pending_approvals": [],
            "channels": [],
            "health": {**Health(tuple(damages)).as_json(), "state": "stopped"},
        }

    async def text(self, call: CommandCall) -> str:
        """Return a few lines for a chat, while a gateway runs."""
        assert self._live is not None
        if call.scope != OWNER:
            return f"Messages in this conversation: {len(call.session.messages)}"
        health, session = await self._live.monitor.check_health(), call.session
        queue, pending = health.queue, len(self._live.pending())
        uptime = round(self._clock.monotonic() - self._live.born)
        model = session.metadata.get("model") or self._about["model"]
        shows = pending and not call.message.is_group  # a group would read it
        lines = [
            f"nanobot {self._about['version']}, up {duration(uptime)}, model {model}",
            f"Messages in this conversation: {len(session.messages)} ({session.key})",
            *(await self._last_answer(session.key)),
            # Without this command itself:
            f"Running turns: {self._live.turns_running()}, pending messages: "
            f"{queue.received - 1}, failed: {queue.failed}, undelivered replies: "
            f"{queue.outbox_pending}",
            *([f"Waiting for your approval: {pending} (/approvals)"] if shows else ()),
            *(f"Problem: {concern.text}" for concern in health.concerns),
        ]
        return "\n".join(lines)

    async def _last_answer(self, session_key: str) -> Sequence[str]:
        """Return a line with the model of the last answer, perhaps a fallback, and its price, or
        nothing."""
        turns = await self._journal.turns(session=session_key, state="done", limit=1)
        if not turns or not turns[0].model:
            return ()
        (last,) = turns
        cost = in_currency(last.cost)
        used = f"{last.prompt + last.completion:,} tokens ({last.cached:,} cached)"
        return (f"Last answer: {last.model}, {used}{'' if cost is None else f', cost {cost:.4f}'}",)

    async def _today(self) -> dict[str, object]:
        """Return the turns, and the tokens of all calls, since midnight. `memory_tokens` of
        memory's own calls are in the cost, but in no other count. `cost` is None without prices."""
        midnight = self._midnight()
        used = await self._journal.usage_by_day(midnight.date())
        turns, memory = sum_usage(used), sum_usage(used, LEARNING)
        return {
            "turns": asdict(await self._journal.turn_counts(midnight)),
            "prompt_tokens": turns.prompt,
            "cached_tokens": turns.cached,
            "completion_tokens": turns.completion,
            "memory_tokens": memory.prompt + memory.completion,
            "cost": in_currency(add_costs(turns.cost, memory.cost)),
        }


def exposition(status: Mapping[str, Any]) -> bytes:
    """Return a status in the text format of Prometheus, version 0.0.4. Raise `ExtraMissing`."""
    try:
        from prometheus_client import generate_latest  # only on request
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
        from prometheus_client.registry import Collector
    except ImportError:
        raise ExtraMissing("/metrics", "metrics") from None

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            for name, meaning, label, values in _metrics(status):
                kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
                family = kind(f"nanobot_{name}", meaning, labels=(label,) if label else ())
                for key, value in values.items():
                    if value is not None:
                        family.add_metric((key,) if label else (), value)
                yield family

    return generate_latest(Once())


_COUNTERS = {"turns", "tokens", "logged"}


def _metrics(
    status: Mapping[str, Any],
) -> Iterator[tuple[str, str, str, Mapping[str, float | None]]]:
    """Yield name, meaning, label, and values by label. A single value has no label."""
    today, kinds = status.get("today", {}), ("prompt", "cached", "completion", "memory")
    yield "sessions", "Conversations.", "", {"": status["sessions"]}
    meaning = "Cost of the tokens used since midnight, based on the models' prices."
    yield "today_cost", meaning, "", {"": today.get("cost")}
    yield "queue", "Unfinished messages and parts of replies.", "state", status["queue"]
    yield "size_bytes", "Size of the home.", "what", status["sizes"]
    tokens = {kind: today.get(f"{kind}_tokens") for kind in kinds}
    yield "today_tokens", "Tokens used since midnight.", "kind", tokens
    if not status["running"]:
        return
    state, since, process = status["health"]["state"], status["since_start"], status["process"]
    for name, meaning, value in (
        ("uptime_seconds", "Seconds since nanobot started.", status["uptime_seconds"]),
        ("turns_running", "Running turns.", status["turns_running"]),
        ("resident_bytes", "Memory used by the process.", process["resident"]),
        ("descriptors", "Open file descriptors.", process["descriptors"]),
        ("tasks", "Tasks of the event loop.", process["tasks"]),
    ):
        yield name, meaning, "", {"": value}
    states = {name: int(name == state) for name in ("ok", "degraded", "failing")}
    yield "health", "1 for the current state.", "state", states
    channels = {one["name"]: one for one in status["channels"] if one["name"] != TERMINAL}
    # Idle channels are left out.
    up = {k: int(v["state"] == "running") for k, v in channels.items() if v["state"] != "idle"}
    yield "channel_up", "Whether a channel runs.", "channel", up
    heard = {name: one["heard_seconds"] for name, one in channels.items()}
    meaning = "Seconds since the last data from a platform."
    yield "channel_heard_seconds", meaning, "channel", heard
    yield "turns", "Finished turns.", "outcome", since["turns"]
    tokens = {"prompt": since["prompt_tokens"], "completion": since["completion_tokens"]}
    yield "tokens", "Tokens used by finished turns.", "kind", tokens
    logged = {"error": since["errors"], "warning": since["warnings"]}
    yield "logged", "Lines written to the log.", "level", logged


class HealthEndpoint:
    """Server of `/health` and `/metrics` on a separate `web`, until stopped. Requests need `token`.
    Without one, only this machine may ask, and not a proxy, which forwards requests of others."""

    def __init__(
        self,
        web: WebServer,
        monitor: HealthMonitor,
        status: Status,
        token: str = "",
    ) -> None:
        self._web, self._monitor, self._status = web, monitor, status
        self._token = token
        self._stop = asyncio.Event()

    async def run_forever(self) -> None:
        """Run until `stop`. If the server can't listen, log that and do nothing."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._web.close)
            try:
                await stack.enter_async_context(self._web.serve("/health", self._health))
                await stack.enter_async_context(self._web.serve("/metrics", self._measure))
            except NanobotError as error:
                logger.error("/health is not available: {} {}", error, error.hint)
                return
            await self._stop.wait()

    def stop(self) -> None:
        self._stop.set()

    def _refusal(self, request: WebhookRequest) -> WebhookReply | None:
        kind, _, sent = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(sent.strip().encode("utf-8", "replace"), self._token.encode())
        if self._token and kind.lower() == "bearer" and same:
            return None
        if not self._token:
            by_proxy = came_by_proxy(request.headers)
            return WebhookReply(403, b"By a proxy, health.token is needed.\n") if by_proxy else None
        return WebhookReply(401, headers={"WWW-Authenticate": "Bearer"})

    async def _health(self, request: WebhookRequest) -> WebhookReply:
        if refusal := self._refusal(request):
            return refusal
        health = await self._monitor.check_health()
        status = 503 if health.state == "failing" else 200
        body = json.dumps(health.as_json()).encode()
        return WebhookReply(status, body, {"Content-Type": "application/json"})

    async def _measure(self, request: WebhookRequest) -> WebhookReply:
        if refusal := self._refusal(request):
            return refusal
        try:
            body = exposition(await self._status.status({}))
        except ExtraMissing as error:
            return WebhookReply(501, f"{error.for_people()}\n".encode())
        return WebhookReply(200, body, {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
