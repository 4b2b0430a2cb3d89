"""Measure the cost of a team, without faults except the measured ones. See
`bench.team.__main__`."""

from __future__ import annotations

import asyncio
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from bench import table
from bench.reporting import report
from bench.team.campaign import RunningTeam, run_team
from bench.team.cost import cost_of_a_turn, cost_of_looks, cost_of_telling, start_measuring
from bench.team.database import NAME
from bench.team.talk import Chat, Platform, Talk

_PATIENCE = 60.0
_ENDLESS = 100_000
_WARM_SECONDS, _WINDOW_SECONDS = 8.0, 24.0
_HELD = """
    SELECT worker.name, lease.scope FROM lease JOIN worker ON worker.id = lease.worker
    WHERE lease.scope NOT LIKE 'channel:%'
"""


async def measure(*, short: bool) -> int:
    """Print the tables. Return exit code 1 if a target was missed."""
    healing = await _healing(kills=2 if short else 8)
    report("team: a worker dies", healing)
    restart = await _rolling_restart(rounds=1 if short else 2)
    report("team: a rolling restart", restart)
    counts = (1, 2) if short else (1, 2, 4)
    report("team: throughput with 200 ms of model latency", await _throughput(counts, 64, 0.2))
    # A slow model shows how workers share work even with few processors.
    report("team: throughput with 2 turns of 2 s at a time", await _throughput(counts, 2, 2.0))
    cost = await cost_of_a_turn(chats=10, messages=10 if short else 20, rounds=1 if short else 3)
    report("team: a turn in the database", cost)
    report("team: looking for work", await cost_of_looks((100, 1_000, 10_000)))
    report("team: notifications", cost_of_telling(listeners=40))
    return 1 if find_missed_targets(healing | restart | cost) else 0


def find_missed_targets(figures: Mapping[str, object]) -> list[str]:
    """Return the labels of the missed targets."""
    return [one.label for one in table.figures({"bench": "", **figures}) if one.met is False]


async def _healing(kills: int) -> dict[str, float]:
    """Kill a worker, and measure the time until its chats are answered."""
    rng = random.Random(1)
    waits: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        async with run_team(Path(folder), rng, workers=4, chats=40, messages=0) as team:
            talk = Talk(team.platforms, rng, at_once=40, effects=0.0)
            async with talk.listening():
                people = _people(team.platforms[:2])
                for number in range(kills):
                    await _say_all(talk, people)
                    held = await asyncio.to_thread(_scopes_by_worker, team)
                    name = max(held, key=lambda one: len(held[one]))
                    worker = next(one for one in team.workers.all if one.name == name)
                    chosen = [(one, chat) for one, chat in people if chat.person in held[name]]
                    for_good = number % 2 == 0
                    if for_good:
                        worker.may_run.clear()
                    began = time.monotonic()
                    worker.signal(signal.SIGKILL)
                    waits[for_good] += await _say_all(talk, chosen, since=began)
                    worker.may_run.set()
                    await team.workers.until_ready(worker)
    return {
        "chats that a worker had which was killed for good": len(waits[True]),
        "answered elsewhere, median [s]": statistics.median(waits[True]),
        "slowest [s] (target <= 10)": max(waits[True]),
        "chats that a worker had which was started again": len(waits[False]),
        "answered there or elsewhere, median [s]": statistics.median(waits[False]),
        "slowest of them [s] (target <= 10)": max(waits[False]),
    }


async def _rolling_restart(rounds: int) -> dict[str, float]:
    """Restart all workers one after the other while everyone talks."""
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        async with run_team(Path(folder), rng, workers=4, chats=24, messages=0) as team:
            talk = Talk(team.platforms, rng, at_once=40, effects=0.0)
            people = _people(team.platforms[:2])
            async with talk.listening():
                await _say_all(talk, people)
                before = await _say_all(talk, people)
                began = time.monotonic()
                talking = [asyncio.create_task(_go_on(talk, *one, rng)) for one in people]
                for worker in [*team.workers.all] * rounds:
                    worker.signal(signal.SIGTERM)
                    await team.workers.until_gone(worker)
                    await team.workers.until_ready(worker)
                for task in talking:
                    task.cancel()
                await asyncio.gather(*talking, return_exceptions=True)
                async with asyncio.timeout(_PATIENCE):
                    for _, chat in people:
                        await talk.until_answered(chat)
            waits = [
                chat.answered[mark] - sent
                for _, chat in people
                for mark, sent in chat.sent.items()
                if sent > began
            ]
    return {
        "workers restarted, one after the other": 4 * rounds,
        "messages": len(waits),
        "an answer when nothing is restarted, median [s]": statistics.median(before),
        "an answer during it, median [s]": statistics.median(waits),
        "slowest answer during it, model included [s] (target <= 5.2)": max(waits),
    }


async def _throughput(counts: Sequence[int], turns: int, latency: float) -> dict[str, object]:
    """Let everyone talk without pauses, with these numbers of workers that run `turns` at a
    time."""
    figures: dict[str, object] = {}
    single = 0.0
    for workers in counts:
        rng = random.Random(3)
        with tempfile.TemporaryDirectory() as folder:
            async with run_team(
                Path(folder), rng, workers=workers, chats=70, messages=_ENDLESS, turns=turns,
                latency=latency,
            ) as team:  # fmt: skip
                talk = Talk(team.platforms[:2], rng, at_once=64, effects=0.0, alone=True)
                talking = asyncio.create_task(talk.run(_PATIENCE))
                await asyncio.sleep(_WARM_SECONDS)
                look = start_measuring(team.database, team.workers.processor_seconds)
                before, began = talk.answered, time.monotonic()
                await asyncio.sleep(_WINDOW_SECONDS)
                cost = look(talk.answered - before)
                talking.cancel()
                await asyncio.gather(talking, return_exceptions=True)
        heard = [
            [at - chat.sent[mark] for mark, at in chat.answered.items() if at >= began]
            for chat in talk.chats
        ]
        waits = [wait for one in heard for wait in one]
        rate = cost.turns / cost.seconds
        single = single or rate
        one = {
            "turns a second": rate,
            "against as many times one worker's": rate / workers / single,
            "an answer, median [s]": statistics.median(waits),
            f"chats of {len(talk.chats)} that were answered": sum(map(bool, heard)),
            "processor time of the workers, a turn [ms]": cost.worker_milliseconds,
            "processor time of PostgreSQL, a turn [ms]": cost.milliseconds,
        }
        figures |= {f"{label}, workers: {workers}": value for label, value in one.items()}
    return figures


def _people(platforms: Sequence[Platform]) -> list[tuple[Platform, Chat]]:
    return [(one, chat) for one in platforms for chat in one.chats.values()]


async def _say_all(
    talk: Talk, people: Sequence[tuple[Platform, Chat]], since: float | None = None
) -> list[float]:
    """Send a message from everyone, and return how long each waited for the answer, since
    `since`."""
    for platform, chat in people:
        await _say(platform, chat)
    async with asyncio.timeout(_PATIENCE):
        for _, chat in people:
            await talk.until_answered(chat)
    last = [(chat, f"m{len(chat.sent)}") for _, chat in people]
    return [chat.answered[mark] - (since or chat.sent[mark]) for chat, mark in last]


async def _say(platform: Platform, chat: Chat) -> None:
    mark = f"m{len(chat.sent) + 1}"
    chat.sent[mark] = time.monotonic()
    await platform.say(chat, f"{mark}: hello")


async def _go_on(talk: Talk, platform: Platform, chat: Chat, rng: random.Random) -> None:
    """Talk without an end."""
    while True:
        await asyncio.sleep(rng.uniform(0.5, 2.0))
        await _say(platform, chat)
        await talk.until_answered(chat)


def _scopes_by_worker(team: RunningTeam) -> dict[str, set[str]]:
    """Return the people whose scopes each worker has."""
    held: dict[str, set[str]] = {}
    with psycopg.connect(team.database.primary.dsn(NAME)) as db:
        for name, scope in db.execute(_HELD):
            held.setdefault(name, set()).add(scope.rpartition("_")[2])
    return held
