"""The protocol of leases, looks and notifications without workers: counts for any number of people.

Each message comes from a random person to a random worker and takes `TURN_SECONDS`. As in
`nanobot.gateway.worker`, the worker tries the lease of the person's scope. If another one has it,
it sends `work`, and the holder looks at that scope. Each worker looks at everything twice a second
and gives back the rested scopes in one transaction and with one notification. Only workers that
were refused such a scope look at it then. The same arguments give the same counts.

`COSTS` was measured by `python -m bench.team --rest` and `--measure`. Counts times costs are the
processors that PostgreSQL needs."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict, deque
from dataclasses import dataclass

MESSAGES_A_DAY, PEAK = 20, 4
"""Messages of a person, and the busiest hour as a multiple of the average: assumptions."""
TURN_SECONDS = 5.0
"""From a message to its answer: an assumption about the model."""
WORKER_SECONDS, LOAD = 0.03, 0.6
"""A worker's processor time for a turn, and its usable share."""

_LOOK_SECONDS, _REST_SECONDS = 0.5, 20.0  # as in `nanobot.gateway.worker`
_NAMES = 200
"""Scopes that fit into one notification."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of PostgreSQL's processor time, and transactions."""

    message: float = 0.0050
    """A message with all its statements except general looks."""
    idle: float = 0.0017
    """A second of a worker without messages: two looks, a sign of life."""
    open: float = 0.0000010
    """An open message in a general look."""
    held: float = 0.0000010
    """A worker's scope in its general look."""
    delivery: float = 0.0000075
    """A notification, at each worker."""
    writes: float = 8.0
    """Transactions of an isolated message, without giving the lease back."""
    lease_writes: float = 2.0
    """Transactions saved if the worker already has the lease."""


COSTS = Costs()


@dataclass(slots=True)
class Counts:
    """Counts of `seconds` of a team. `held` and `open` are sums over all general looks."""

    workers: int
    seconds: float
    messages: int = 0
    refused: int = 0
    looks: int = 0
    single_looks: int = 0
    notifications: int = 0
    writes: float = 0.0
    held: int = 0
    open: int = 0

    def figures(self, costs: Costs = COSTS) -> dict[str, float]:
        """Rates, and the processors that PostgreSQL needs."""
        seconds, workers = self.seconds, self.workers
        return {
            "messages a second": self.messages / seconds,
            "workers": workers,
            "looks at all, a second and worker": self.looks / seconds / workers,
            "looks at one scope, a message": self.single_looks / max(self.messages, 1),
            "leases of a worker": self.held / max(self.looks, 1),
            "open messages": self.open / max(self.looks, 1),
            "notifications a second": self.notifications / seconds,
            "transactions that write, a message": self.writes / max(self.messages, 1),
            "transactions that write, a second": self.writes / seconds,
            "cores for messages": self.messages * costs.message / seconds,
            "cores for looks at all": workers * costs.idle
            + (self.held * costs.held + self.open * costs.open) / seconds,
            "cores for notifications": self.notifications * workers * costs.delivery / seconds,
        }


def simulate(
    people: int,
    workers: int = 0,
    seconds: float = 60.0,
    *,
    rate: float = 0.0,
    turn_seconds: float = TURN_SECONDS,
    costs: Costs = COSTS,
    broadcast: bool = False,
    seed: int = 1,
) -> Counts:
    """Count `seconds` of a team, once as many leases are given back as taken. Without `rate` and
    `workers` both follow from `people`. `broadcast`: each `free` makes every worker look at
    everything."""
    rate = rate or people * MESSAGES_A_DAY * PEAK / 86_400
    workers = workers or max(1, round(rate * WORKER_SECONDS / LOAD))
    return _Team(people, workers, rate, turn_seconds, costs, broadcast, seed).run(seconds)


class _Team:
    def __init__(
        self,
        people: int,
        workers: int,
        rate: float,
        turn_seconds: float,
        costs: Costs,
        broadcast: bool,
        seed: int,
    ) -> None:
        self._people, self._rate, self._turn = people, rate, turn_seconds
        self._costs, self._broadcast, self._rng = costs, broadcast, random.Random(seed)
        self._holder: dict[int, int] = {}
        self._busy: dict[int, int] = defaultdict(int)
        self._ended: dict[int, float] = {}
        """Time at which the last turn of a scope ended."""
        self._resting: list[deque[tuple[float, int]]] = [deque() for _ in range(workers)]
        self._held = [0] * workers
        self._refused: dict[int, set[int]] = defaultdict(set)
        self._open = 0
        self._counts = Counts(workers, 0.0)

    def run(self, seconds: float) -> Counts:
        """Let `seconds` pass after the time until leases come back."""
        warm = 2 * (_REST_SECONDS + self._turn)
        workers = self._counts.workers
        looks = [(n * _LOOK_SECONDS / workers, 0, n) for n in range(workers)]
        events = [*looks, (self._next(0.0), 1, 0)]
        heapq.heapify(events)
        is_warm = False
        while events[0][0] < warm + seconds:
            now, kind, about = heapq.heappop(events)
            if not is_warm and now >= warm:
                is_warm, self._counts = True, Counts(workers, seconds)
            if kind == 0:
                self._look(about, now)
                heapq.heappush(events, (now + _LOOK_SECONDS, 0, about))
            elif kind == 1:
                scope = self._take(self._rng.randrange(self._people))
                heapq.heappush(events, (now + self._turn, 2, scope))
                heapq.heappush(events, (self._next(now), 1, 0))
            else:
                self._answer(about, now)
        return self._counts

    def _next(self, now: float) -> float:
        return now + self._rng.expovariate(self._rate)

    def _take(self, scope: int) -> int:
        """Store a message at some worker."""
        counts, worker = self._counts, self._rng.randrange(self._counts.workers)
        holder = self._holder.get(scope)
        counts.messages += 1
        counts.single_looks += 1
        counts.writes += self._costs.writes
        if holder is None:
            self._holder[scope] = worker
            self._held[worker] += 1
            self._refused[scope].discard(worker)
        else:
            counts.writes -= self._costs.lease_writes
        if holder not in (None, worker):
            counts.refused += 1
            self._refused[scope].add(worker)
            counts.notifications += 1
            counts.single_looks += 1  # the holder's
        self._busy[scope] += 1
        self._open += 1
        return scope

    def _answer(self, scope: int, now: float) -> None:
        self._open -= 1
        self._busy[scope] -= 1
        self._ended[scope] = now
        self._resting[self._holder[scope]].append((now, scope))

    def _look(self, worker: int, now: float) -> None:
        """Look at everything, and give back the rested scopes."""
        counts, resting, free = self._counts, self._resting[worker], 0
        counts.looks += 1
        counts.held += self._held[worker]
        counts.open += self._open
        while resting and now - resting[0][0] > _REST_SECONDS:
            ended, scope = resting.popleft()
            if self._busy[scope] or self._ended[scope] != ended:
                continue  # a newer message arrived
            del self._holder[scope], self._busy[scope], self._ended[scope]
            self._held[worker] -= 1
            free += 1
            counts.single_looks += len(self._refused.pop(scope, ()))
        if free:
            counts.writes += 1
            counts.notifications += math.ceil(free / _NAMES)
            if self._broadcast:
                others = [n for n in range(counts.workers) if n != worker]
                counts.looks += len(others)
                counts.held += sum(self._held[n] for n in others)
                counts.open += self._open * len(others)
