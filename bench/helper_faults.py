"""The part of a fault campaign that kills the channel's helper and not the gateway.

The helper is a separate program that the gateway starts. A script in place of Node.js loads the
library that kills it (see `bench.whatsapp_side`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.faults import PATIENCE, Campaign, Scenario, Tally
from bench.injection import AFTER, BEFORE, BROKEN, FULL
from bench.whatsapp_side import count_deaths, plan

MOMENT = 5
"""As a mode: the number is in milliseconds after the helper's start, and not a call."""


class HelperCampaign(Campaign):
    """Kills helpers, each at a call. `with_gateway`: the gateway that started it dies as well."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        with_gateway: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(scenario, folder, patience)
        self._with_gateway = with_gateway

    def at_moments(self, count: int, rng: random.Random, longest: float) -> Tally:
        """Kill at random moments up to `longest` seconds after its start, up to three times in one
        conversation."""
        tally = Tally()
        while tally.kills < count:
            moments = [rng.randint(1, round(1000 * longest)) for _ in range(rng.randint(1, 3))]
            label = f"helper after {moments} ms"
            self._converse(tally, label, [(moment, MOMENT) for moment in moments])
        return tally

    def with_a_disk_that_refuses_it(self, count: int, rng: random.Random, most: int) -> Tally:
        """Let the disk fail for half a second from a random call up to `most`, because it is full
        or broken, without a kill."""
        tally = Tally()
        for _ in range(count):
            n, mode = rng.randint(1, most), rng.choice((FULL, BROKEN))
            self._converse(tally, f"helper refused from call {n}, mode {mode}", [(n, mode)])
            tally.refusals += 1
        return tally

    def again_and_again(self, step: int, most: int) -> Tally:
        """Kill five helpers in one conversation after their `step`th call, then five after twice as
        many, up to `most`. If the first one died in a send, so does the next."""
        tally = Tally()
        for n in range(step, most, step):
            self._converse(tally, f"five times after call {n}", [(n, AFTER)] * 5)
        return tally

    def in_one_conversation(self, *calls: tuple[int, int, bool]) -> Tally:
        """Kill helpers one after the other. True: the gateway dies as well."""
        tally = Tally()
        self._kill(tally, f"{calls}", calls)
        return tally

    def _converse(self, tally: Tally, label: str, calls: Iterable[tuple[int, int]]) -> int:
        return self._kill(tally, label, [(n, mode, self._with_gateway) for n, mode in calls])

    def _kill(self, tally: Tally, label: str, calls: Sequence[tuple[int, int, bool]]) -> int:
        home, platform = self._home()
        plan(home, calls)
        ended = ""
        for _ in range(1 + sum(with_gateway for _, _, with_gateway in calls)):
            ended = self._life(home, platform, 0, BEFORE)
            if ended != "killed":
                break
        kills = count_deaths(home)
        tally.kills += kills
        # If the disk fails, the connection also ends in the middle of a send.
        self._judge(tally, f"helper, {label}", home, platform, ended, max(kills, len(calls)))
        return kills
