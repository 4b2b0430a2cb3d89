"""One run of the campaign from beginning to end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.soak_processes import Program
from bench.team.database import TeamDatabase, team_database
from bench.team.fault_injector import FAILOVER, HANG, LABELS, FaultInjector
from bench.team.owner import Owner
from bench.team.talk import ByProgram, OnTelegram, OnWhatsApp, Platform, Talk
from bench.team.verdict import Troubles, judge
from bench.team.workers import Balancer, Workers
from nanobot.channel.keys import ApiKeys
from nanobot.clock import SystemClock
from tests.doubles.graph import FakeGraphAPI
from tests.doubles.telegram import TOKEN, FakeTelegram

PATIENCE = 120.0
"""Seconds without any answer after which open messages are lost."""
_EFFECTS, _QUESTIONS, _FILES = 0.1, 0.05, 0.05
_GROUPS = 10
"""One in this many chats is a group."""
_SAYING_SECONDS = 15.0
_HARM_SECONDS = 30.0
"""Time limit for running faults after all messages are answered."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a campaign. `faults` by kind."""

    workers: int
    chats: int
    messages: int
    at_once: int
    faults: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RunningTeam:
    """All running participants."""

    workers: Workers
    database: TeamDatabase
    platforms: Sequence[Platform]
    balancer: Balancer
    owner: Owner


@contextlib.asynccontextmanager
async def run_team(
    folder: Path,
    rng: random.Random,
    *,
    workers: int,
    chats: int,
    messages: int,
    groups: int = 0,
    latency: float = 0.2,
    grace: float = 5.0,
    turns: int = 64,
    alone: bool = False,
    database: TeamDatabase | None = None,
    standby: bool = False,
) -> AsyncIterator[RunningTeam]:
    """Run a team in `folder`, with people on all platforms.

    `groups` of the chats are groups. A given `database` is used. `alone`: run a gateway without a
    team, which doesn't use the database.
    """
    async with contextlib.AsyncExitStack() as stack:
        if database is None:
            database = stack.enter_context(team_database())
        await stack.enter_async_context(database.relaying())
        if standby:
            await asyncio.to_thread(database.attach_standby)
        telegram = await stack.enter_async_context(FakeTelegram(webhook_retry=0.2))
        graph = await stack.enter_async_context(FakeGraphAPI(retry=0.2))
        model = stack.enter_context(Program("bench.team.model", latency=latency))
        team = Workers(folder, [f"worker{number}" for number in range(1, workers + 1)])
        balancer = await stack.enter_async_context(Balancer(team, rng))
        programs = max(1, chats // 10)
        shares = (chats - programs + 1) // 2, (chats - programs) // 2
        private = range(1001, 1001 + shares[0] - groups)
        on_telegram = OnTelegram(telegram, private, messages, groups)
        numbers = range(491_510_001, 491_510_001 + shares[1])
        on_whatsapp = OnWhatsApp(graph, numbers, messages)
        people = [f"telegram:{number}" for number in range(5001, 5001 + programs)]
        keys = await asyncio.to_thread(_make_keys, team.shared, people)
        telegram.webhook.route = f"{balancer.url}/telegram"
        team.configure(
            [""] if alone else [database.relayed_dsn, *[database.dsn] * (workers - 1)],
            model=model.address,
            balancer=balancer.url,
            telegram=telegram.base_url,
            token=TOKEN,
            telegram_people=[*on_telegram.chats, *(one.partition(":")[2] for one in people)],
            whatsapp_people=[*on_whatsapp.chats],
            whatsapp="\n    ".join(f"{key}: '{value}'" for key, value in graph.settings().items()),
            has_telegram=True,
            has_whatsapp=True,
            has_api=True,
            grace=grace,
            turns=turns,
        )
        stack.push_async_callback(team.stop)
        await team.start()
        graph.webhook.deliver_to(f"{balancer.url}/whatsapp")
        platforms = on_telegram, on_whatsapp, ByProgram(balancer.url, keys, messages)
        yield RunningTeam(team, database, platforms, balancer, Owner(telegram, team, rng))


async def campaign(size: Size, seed: int, keep: str = "") -> tuple[dict[str, object], list[str]]:
    """Run the campaign. Return the figures and the broken promises."""
    rng = random.Random(seed)
    with contextlib.ExitStack() as stack:
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory()))
        async with run_team(
            folder, rng, workers=size.workers, chats=size.chats, messages=size.messages,
            groups=size.chats // _GROUPS, standby=any(map(size.faults.get, (FAILOVER, HANG))),
        ) as team:  # fmt: skip
            talk = Talk(
                team.platforms, rng, at_once=size.at_once,
                effects=_EFFECTS, questions=_QUESTIONS, files=_FILES,
            )  # fmt: skip
            injector = FaultInjector(team.workers, team.database, talk, size.faults, rng)
            began = time.monotonic()
            harming = asyncio.create_task(injector.run())
            saying = asyncio.create_task(_say(talk, injector))
            owning = asyncio.create_task(team.owner.answer_forever())
            try:
                await talk.run(PATIENCE)
                seconds = time.monotonic() - began
                await asyncio.wait([harming], timeout=_HARM_SECONDS)
                if harming.done():
                    harming.result()
                await team.owner.until_all_closed(_HARM_SECONDS)
            finally:
                for task in (saying, harming, owning):
                    task.cancel()
                await asyncio.gather(saying, harming, owning, return_exceptions=True)
            await team.workers.stop()
            troubles = Troubles(
                [one.at for one in team.workers.ends], injector.paused, injector.away
            )
            verdict = judge(talk, team.owner, team.workers.shared, troubles)
            faults = [*verdict.faults, *team.workers.tracebacks()]
        ends = Counter(one.code for one in team.workers.ends)
    figures: dict[str, object] = {
        "workers": size.workers,
        "messages": talk.total,
        "seconds": round(seconds),
        **{LABELS[kind]: injector.done[kind] for kind in size.faults},
        "workers that ended as others had taken over": ends[75],
        **verdict.figures(),
    }
    return figures, faults


def _make_keys(shared: Path, people: Sequence[str]) -> dict[str, str]:
    """Create an API key for each of the people, by name."""
    shared.mkdir(mode=0o700, parents=True)
    keys = ApiKeys(shared / "state" / "channels" / "api")
    now = SystemClock("UTC").now()
    named = ((f"k{n}", person) for n, person in enumerate(people, 1))
    return {name: keys.add(name, person, now, own_words=True) for name, person in named}


async def _say(talk: Talk, injector: FaultInjector) -> None:
    """Print the progress on standard error."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(_SAYING_SECONDS)
        done = dict(injector.done)
        seconds = time.monotonic() - began
        print(f"{seconds:.0f} s: {talk.answered} of {talk.total}, {done}", file=sys.stderr)
