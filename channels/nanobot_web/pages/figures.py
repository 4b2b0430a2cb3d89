"""Figures: tokens, cache hits and cost by day and chat, reply times, memory growth, and the queue.
The server draws each plot and adds its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from aiohttp import web

from nanobot_web.plots import Plot, Series, bars, lines
from nanobot_web.site import Call, Route

SPANS = (30, 90, 365)
_QUEUE = {
    "received": "pending",
    "put_off": "of these, postponed",
    "working": "being answered",
    "failed": "failed",
    "outbox_pending": "to be delivered",
    "dead": "undeliverable",
}


async def show_figures(call: Call) -> web.StreamResponse:
    days = call.number("days", SPANS[0])
    days = days if days in SPANS else SPANS[0]
    found = await call.ask("figures", days=days)
    months = _add_totals((await call.ask("memory.growth"))["months"])
    kilobytes = [round(one["all_bytes"] / 1000, 1) for one in months]
    periods = found["periods"]
    labels = [one["day"][5:] for one in periods]
    has_cost = found["total"]["cost"] is not None
    queue = {name: found["queue"][key] for key, name in _QUEUE.items()}
    return call.page(
        "figures.html",
        "Statistics",
        spans=SPANS,
        days=days,
        by=found["by"],
        found=found,
        titles=await call.titles(found["chats"]),
        has_cost=has_cost,
        tokens=_plot_tokens(labels, periods),
        hits=lines(
            labels, [Series("cached", [_hit_rate(one) for one in periods])], "% of input tokens"
        ),
        cost=bars(labels, [Series("cost", [one["cost"] for one in periods])], "currency")
        if has_cost
        else None,
        times=_plot_times(found["times"]),
        growth=bars([one["month"] for one in months], [Series("history", kilobytes)], "kB"),
        months=months,
        queue=queue,
        queued=bars(list(queue), [Series("now", list(queue.values()))], "messages"),
        most=max((_count_tokens(chat) for chat in found["chats"]), default=0),
        used=_count_tokens,
        hit_rate=_hit_rate,
    )


def _plot_tokens(labels: Sequence[str], periods: Sequence[Mapping[str, Any]]) -> Plot:
    fresh = [max(0, one["prompt"] - one["cached"]) for one in periods]
    series = [
        Series("in, new", fresh),
        Series("in, cached", [one["cached"] for one in periods]),
        Series("out", [one["completion"] for one in periods]),
    ]
    return bars(labels, series, "tokens")


def _hit_rate(one: Mapping[str, Any]) -> float | None:
    """Return the percentage of cached input tokens, or None without input."""
    return round(100 * one["cached"] / one["prompt"], 1) if one["prompt"] else None


def _count_tokens(one: Mapping[str, Any]) -> int:
    return int(one["prompt"]) + int(one["completion"])


def _plot_times(times: Sequence[Mapping[str, Any]]) -> Plot:
    series = [
        Series("median (p50)", [one["p50"] / 1000 for one in times]),
        Series("95th percentile (p95)", [one["p95"] / 1000 for one in times]),
    ]
    return lines([one["day"][5:] for one in times], series, "seconds")


def _add_totals(months: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add the totals at the end of each month."""
    entries = accumulate(one["entries"] for one in months)
    sizes = accumulate(one["bytes"] for one in months)
    return [
        {**one, "all_entries": e, "all_bytes": s}
        for one, e, s in zip(months, entries, sizes, strict=True)
    ]


ROUTES = {("GET", "/figures"): Route(show_figures)}
