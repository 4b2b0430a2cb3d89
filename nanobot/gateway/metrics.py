"""A status as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from nanobot.bus.events import TERMINAL

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    from nanobot.gateway.report import Report, SinceStart, Today, Work

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = ("ok", "degraded", "failing")


def exposition(report: Report) -> bytes:
    """The text format, version 0.0.4."""
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
        yield from _work(report.work)
    yield _by("nanobot_queue", "Rows that are not at their end.", "state", asdict(report.queue))
    yield _one("nanobot_sessions", "Conversations.", report.sessions)
    if report.today is not None:
        yield from _today(report.today)
    yield _by("nanobot_size_bytes", "What lies in the home.", "what", report.sizes)


def _work(work: Work) -> Iterator[Metric]:
    states = {name: int(name == work.health.state) for name in _STATES}
    yield _by("nanobot_health", "1 for what the health is now.", "state", states)
    yield _one("nanobot_uptime_seconds", "Since the start.", work.uptime_seconds)
    yield _one("nanobot_turns_running", "Turns under way.", work.turns_running)
    channels = [channel for channel in work.channels if channel.name != TERMINAL]
    up = {channel.name: int(channel.state == "running") for channel in channels}
    yield _by("nanobot_channel_up", "Whether a channel runs.", "channel", up)
    heard = {c.name: c.heard_seconds for c in channels if c.heard_seconds is not None}
    meaning = "Seconds since something last came from a platform."
    yield _by("nanobot_channel_heard_seconds", meaning, "channel", heard)
    yield from _since_start(work.since_start)
    process = work.process
    yield _one("nanobot_resident_bytes", "Memory of the process.", process.resident)
    yield _one("nanobot_descriptors", "Open file descriptors.", process.descriptors)
    yield _one("nanobot_tasks", "Tasks of the event loop.", process.tasks)


def _since_start(since: SinceStart) -> Iterator[Metric]:
    yield _counted("nanobot_turns", "Turns that ended.", "outcome", since.turns)
    tokens = {"prompt": since.prompt_tokens, "completion": since.completion_tokens}
    yield _counted("nanobot_tokens", "Tokens of turns that ended.", "kind", tokens)
    logged = {"error": since.errors, "warning": since.warnings}
    yield _counted("nanobot_logged", "Lines of the log.", "level", logged)


def _today(today: Today) -> Iterator[Metric]:
    tokens = {
        "prompt": today.prompt_tokens,
        "cached": today.cached_tokens,
        "completion": today.completion_tokens,
        "memory": today.memory_tokens,
    }
    yield _by("nanobot_today_tokens", "Tokens used since midnight.", "kind", tokens)
    if today.cost is not None:
        yield _one("nanobot_today_cost", "Their cost, by model.prices.", today.cost)


def _one(name: str, meaning: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, meaning, value=value)


def _by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(name, meaning, labels=(label,)), values)


def _counted(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(name, meaning, labels=(label,)), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
