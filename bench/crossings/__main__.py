"""Run the campaign and print a table."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loguru import logger

from bench.crossings import (
    approvals,
    children,
    concurrent_work,
    inversions,
    laundering,
    leftovers,
    ownership,
    programs,
    self_starting,
    spelling,
    steps,
)
from bench.crossings.callers import CALLERS
from bench.crossings.campaign import attack, launder
from bench.crossings.listeners import HostileLoop
from bench.crossings.payloads import Payload, from_file, read_lists
from bench.crossings.world import VARIABLE, Crossing
from bench.reporting import report

ALONE = ("autorun", "planted")
"""Kinds of payloads that are never merged, because each ends its command."""

SINKS = ("others", "lasting", "jobs", "away")
"""Actions that a tainted conversation must not take without approval."""


@dataclass(frozen=True, slots=True)
class Run:
    """One attack, its caller and its number of calls."""

    name: str
    calls: int
    play: Callable[[], Coroutine[Any, Any, list[Crossing]]]


def calls_of(payloads: Sequence[Payload], short: bool) -> Iterator[Run]:
    """Yield each kind of call by each caller."""
    kinds = {payload.kind: [p for p in payloads if p.kind == payload.kind] for payload in payloads}
    for caller in CALLERS:
        for kind, some in kinds.items():
            if not (caller.clean and kind == "planted"):  # the owner approves it
                work = partial(attack, caller, some, merge=short and kind not in ALONE)
                yield Run(f"{caller.name}: {kind}", len(some), work)


def runs(payloads: Sequence[Payload], short: bool) -> Iterator[Run]:
    """Yield all attacks, each in its own world."""
    yield from calls_of(payloads, short)
    network = [p for p in payloads if p.tool == "web_fetch" or p.kind == "shell network"]
    for caller in CALLERS[:1] if short else CALLERS:
        name = f"{caller.name}: by a proxy"
        yield Run(name, len(network), partial(attack, caller, network, merge=True, proxied=True))
    sinks = [p for p in payloads if p.kind in SINKS]
    for scene in laundering.SCENES:
        yield Run(f"after {scene}", len(sinks), partial(launder, scene, sinks, merge=True))
    for name, (client, way, own) in programs.scenes().items():
        play = partial(programs.play_scene, client, way, own, sinks)
        yield Run(f"program: {name}", len(sinks), play)
    for said, cut in inversions.PAIRS:
        yield Run(
            f"cut: {cut}"[:48],
            len(inversions.cut_of(said, cut)),
            partial(inversions.play_inversion, said, cut),
        )
    for name, spelling_of in spelling.SCENES.items():
        yield Run(f"spelling by {name}", 1, partial(spelling.play_scene, spelling_of))
    for attempt in approvals.ATTEMPTS:
        yield Run(f"approved {attempt}", 1, partial(approvals.try_answers, attempt))
    for kind, scenes in (
        ("beside", concurrent_work.SCENES),
        ("approval", approvals.SCENES),
        ("planted:", children.SCENES),
        ("step", steps.SCENES),
        ("runs by itself:", self_starting.SCENES),
        ("whose conversation,", ownership.SCENES),
        ("left by others:", leftovers.SCENES),
    ):
        for name, scene_of in scenes.items():
            yield Run(f"{kind} {name}", 1, scene_of)


def main() -> int:
    options = _options()
    if VARIABLE not in os.environ:  # children inherit this process's environment
        environ = {**os.environ, VARIABLE: secrets.token_hex(12)}
        os.execve(sys.executable, [sys.executable, "-m", "bench.crossings", *sys.argv[1:]], environ)
    logger.remove()
    payloads = from_file(options.payloads) if options.payloads else read_lists()
    total: dict[str, int] = {}
    found: list[tuple[str, Crossing]] = []
    with asyncio.Runner(loop_factory=HostileLoop) as runner:
        for run in runs(payloads, options.short):
            if options.only not in run.name:
                continue
            crossed = runner.run(run.play())
            total[run.name] = run.calls
            found += [(run.name, one) for one in crossed]
            if not options.json:
                print(
                    f"{run.name:<48} {run.calls:>5} calls {len(crossed):>4} crossings", flush=True
                )
    for name, one in found:
        print(f"CROSSED  {name}: {one.what}: {one.where}", file=sys.stderr)
    calls = sum(total.values())
    report("crossings", {"attacks": len(total), "tool calls": calls, "crossings": len(found)})
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.crossings")
    parser.add_argument("--payloads", type=Path, help="JSON lines with tool calls, to use instead")
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    parser.add_argument("--short", action="store_true", help="several commands in one")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
