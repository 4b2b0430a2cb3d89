"""Base of the fault campaigns: a gateway in its own process that is killed at a chosen call.

A scenario is a conversation over a `Wire`, whose platform is this process, which is never killed.
The gateway is killed with SIGKILL at the Nth write, fsync, rename and send (by `crashpoint.c`,
which is loaded first), and new processes continue until the conversation is over. Then the scenario
returns the broken promises. With `--power`, each process starts without the unsynced changes of the
previous one (`bench.powerloss`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loguru import logger

from bench.injection import AFTER, BEFORE, TORN, arm, log_writes, options_of
from bench.powerloss import Disk, Loss
from bench.reporting import report
from bench.wire import Platform
from nanobot.app.gateway import Gateway
from nanobot.config.load import load_settings
from nanobot.providers.offline.model import OfflineModel

MODES = {BEFORE: "before each", TORN: "in the middle of each", AFTER: "after each"}
PATIENCE = 30.0
_STARTED = 60
"""Call by which a gateway has started. It cannot start on a failing disk."""
_RECOVERY_CALLS = 60
"""Approximate calls of a start before it is ready. A second kill falls into them."""


class Scenario(Protocol):
    """A conversation and its invariants."""

    def furnish(self, home: Path) -> Platform:
        """Prepare an empty home for the conversation, and return its platform."""
        ...

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a real gateway with a `Wire` that holds the conversation."""
        ...

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Return the broken promises."""
        ...


@dataclass
class Tally:
    """The results of a campaign."""

    kills: int = 0
    refusals: int = 0
    duplicates: int = 0
    failures: list[str] = field(default_factory=list)


class Campaign:
    """Runs a scenario many times in `folder`. A process that runs longer than `patience` seconds
    hangs. With `power`, the end of each process is a power loss, of a kind that it chooses."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        patience: float = PATIENCE,
        power: random.Random | None = None,
    ) -> None:
        self._scenario, self.folder, self._patience = scenario, folder, patience
        self._power, self._log = power, folder / "writes.log"
        self._count = 0

    def of(self, scenario: Scenario, patience: float = PATIENCE) -> Campaign:
        """Return a campaign of another scenario in the same folder, to run after this one."""
        return Campaign(scenario, self.folder, patience, self._power)

    def run_unharmed(self) -> Tally:
        """Run the conversation once without a kill."""
        return self.at((0, BEFORE))

    def at_every_call(
        self, mode: int, first: int = 1, step: int = 1, again: random.Random | None = None
    ) -> Tally:
        """Kill at call `first`, `first + step`, … until conversations pass without reaching it.

        With `again` the next process is killed as well, while it recovers.
        """
        tally = Tally()
        n, misses = first, 0
        while misses < 3:
            calls = [(n, mode)]
            if again is not None:
                calls.append((again.randint(1, _RECOVERY_CALLS), again.choice(tuple(MODES))))
            killed = self._converse(tally, f"mode {mode}, call {n}", calls)
            misses = 0 if killed else misses + 1
            n += step
        return tally

    def at(self, *calls: tuple[int, int]) -> Tally:
        """Kill at each of these calls, given with their modes, each in its own conversation."""
        tally = Tally()
        for n, mode in calls:
            self._converse(tally, f"mode {mode}, call {n}", [(n, mode)])
        return tally

    def one_after_another(self, *calls: tuple[int, int]) -> Tally:
        """Kill at each of these calls in one conversation, each in the process after the previous
        kill."""
        tally = Tally()
        self._converse(tally, f"calls and modes {calls}", calls)
        return tally

    def with_a_disk_that_refuses(
        self, mode: int, count: int, rng: random.Random, most: int
    ) -> Tally:
        """Let the disk fail for a while from a random call up to `most`, without a kill."""
        tally = Tally()
        for _ in range(count):
            n = rng.randint(_STARTED, most)
            home, platform = self._home()
            ended = self._life(home, platform, n, mode, seconds=3 * self._patience)
            self._judge(tally, f"refused from call {n}", home, platform, ended, kills=0)
            tally.refusals += 1
        return tally

    def at_random(self, count: int, rng: random.Random, longest: float) -> Tally:
        """Kill at random moments up to `longest` seconds, up to three times in one conversation."""
        tally = Tally()
        while tally.kills < count:
            home, platform = self._home()
            ended, kills = "hung", 0
            for _ in range(rng.randint(1, 3)):
                seconds = rng.uniform(0.0, longest)
                ended = self._life(home, platform, 0, BEFORE, seconds)
                kills += ended == "hung"
            if ended != "over":
                ended = self._life(home, platform, 0, BEFORE)
            tally.kills += kills
            self._judge(tally, f"random {tally.kills}", home, platform, ended, kills)
        return tally

    def _converse(self, tally: Tally, label: str, calls: Iterable[tuple[int, int]]) -> int:
        """Run one conversation whose processes die at these calls. Return the number of kills."""
        home, platform = self._home()
        kills, ended = 0, ""
        for n, mode in (*calls, (0, BEFORE)):
            ended = self._life(home, platform, n, mode)
            if ended != "killed":
                break
            kills += 1
        tally.kills += kills
        self._judge(tally, label, home, platform, ended, kills)
        return kills

    def _home(self) -> tuple[Path, Platform]:
        self._count += 1
        home = self.folder / f"home-{self._count}"
        home.mkdir()
        return home, self._scenario.furnish(home)

    def _judge(
        self, tally: Tally, label: str, home: Path, platform: Platform, ended: str, kills: int
    ) -> None:
        wrong = [f"the gateway {ended}: {platform}"]
        repeated = platform.count_repetitions()
        if ended == "over":
            wrong = self._scenario.faults(home, platform)
            # A kill is no damage, so a journal rebuilt after one was misjudged.
            wrong += [path.name for path in (home / "state").glob("*.damaged-*")]
            allowed = kills + platform.breaks
            if self._power is None:  # a power loss repeats the replies of a second
                wrong += [f"{n} replies came twice in a chat" for n in repeated if n > allowed]
        tally.failures += [f"{label}: {fault}" for fault in wrong]
        tally.duplicates += sum(repeated)
        platform.close()
        shutil.rmtree(home)

    def _life(
        self, home: Path, platform: Platform, n: int, mode: int, seconds: float | None = None
    ) -> str:
        """Run one process to its end. Return `killed`, `over`, or `hung` (killed after
        `seconds`)."""
        if self._power is None:
            return self._run(home, platform, n, mode, seconds)
        disk = Disk(home)
        self._log.unlink(missing_ok=True)
        ended = self._run(home, platform, n, mode, seconds)
        disk.replay(self._log)
        if ended == "over" and (unlogged := disk.differences()):
            return f"changed {unlogged} in a way that is not logged"
        if ended != "over" or platform.loses_power_at_the_end:
            disk.lose(self._power.choice(tuple(Loss)), self._power)
        return ended

    def _run(self, home: Path, platform: Platform, n: int, mode: int, seconds: float | None) -> str:
        """Run one process, as `_life`."""
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            ours.close()
            self._be_gateway(home, platform, theirs, n, mode)
        theirs.close()
        deadline = time.monotonic() + (self._patience if seconds is None else seconds)
        over, rest = False, b""
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([ours], [], [], left)[0]:
                break
            data = ours.recv(65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                over = platform.hear(line.decode()) or over
        timed_out = time.monotonic() >= deadline
        if timed_out:
            os.kill(child, signal.SIGKILL)
        ours.close()
        _, status = os.waitpid(child, 0)
        platform.look_at(home)
        if timed_out:
            return "hung"
        if os.WIFSIGNALED(status):
            return "killed"
        return "over" if over and os.WEXITSTATUS(status) == 0 else "failed"

    def _be_gateway(
        self, home: Path, platform: Platform, link: socket.socket, n: int, mode: int
    ) -> None:
        """Run a real gateway in the child, which dies at call `n` (0: never). Does not return."""
        code = 1
        try:
            logger.remove()
            if self._power is not None:
                log_writes(self._log, home)
            gateway = self._scenario.gateway(home, link, platform)
            arm(n, mode, link.fileno())
            asyncio.run(gateway.run(signals=False))
            code = 0
        except BaseException as error:  # noqa: BLE001 - a child must never return
            with contextlib.suppress(OSError):
                os.write(2, f"gateway failed: {error!r}\n".encode())
        finally:
            os._exit(code)


Plans = Mapping[str, Callable[[], Tally]]


def every_call(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Kill at every `step`th call in each mode, and then once more while the next process recovers.
    The first call is random."""
    first = rng.randint(1, step)
    return {
        "before each write, fsync, rename, send": lambda: campaign.at_every_call(
            BEFORE, first, step
        ),
        "in the middle of each": lambda: campaign.at_every_call(TORN, first + step // 3, step),
        "after each": lambda: campaign.at_every_call(AFTER, first + step * 2 // 3, step),
        "and again in recovery": lambda: campaign.at_every_call(
            AFTER, first + step // 2, step * 2, again=rng
        ),
    }


def run(
    module: str,
    doc: str | None,
    scenario: Scenario,
    plans: Callable[[Campaign, int, random.Random], Plans],
    *,
    power: bool = False,
) -> int:
    """Run the command line of a campaign. The exit code is 1 if a promise was broken.

    `plans` yields the runs by label. It gets the number of calls between tries, or 0 for a handful.
    `module` is started again with the libraries that kill it. With `power`, or the option
    `--power`, each process ends with a power loss."""
    options = options_of(module, doc, power=True)
    figures: dict[str, object] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        _build_once(Path(name))
        losses = random.Random(options.seed) if power or options.power else None
        campaign = Campaign(scenario, Path(name), power=losses)
        step = 0 if options.short else options.every
        for label, plan in plans(campaign, step, random.Random(options.seed)).items():
            tally = plan()
            if tally.refusals:
                figures[f"times that {label}"] = tally.refusals
                failures += tally.failures
                continue
            figures[f"kills {label}"] = tally.kills
            figures[f"replies sent twice, {label}"] = tally.duplicates
            failures += tally.failures
    figures |= {"promises broken (target 0)": len(failures), "failures": failures}
    report(module.rpartition(".")[2], figures)
    return 1 if failures else 0


def _build_once(folder: Path) -> None:
    """Build a gateway that never runs, so that every process inherits the loaded and compiled
    modules."""
    Gateway(load_settings(folder / "unused", {}), provider=OfflineModel())
