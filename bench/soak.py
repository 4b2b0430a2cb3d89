"""Watch a gateway for a long time: does it grow, does every person get an answer?

    python -m bench.soak                        20 chats, a tenth of everything fails; 65 minutes
    python -m bench.soak --warm-up 5 --minutes 5 --keep D
                                    shorter; home, log and samples stay in the folder D

The gateway, a fake Telegram with its people and a fake model are separate processes. One in ten
calls of the gateway to either of the two fails, in every way that they know. The people use tools,
send pictures, give commands, and write in pairs and in groups. Their conversations are consolidated
repeatedly, and Dream learns from that.

The warm-up takes 35 minutes. In this time caches fill, people add all their notes (today's notes
are in every prompt), and every periodic event happens once. The last is that a conversation's file
has 2,000 consolidated messages, which move to the archive. Then the gateway is sampled every few
seconds for 30 minutes:

- resident memory grows by no more than 1 MiB an hour,
- the number of tasks, file descriptors, threads and child processes does not grow,
- every message has one outcome: the answer, or a text with the reason why there is none; only
  messages that Telegram accepted without confirming come twice.

The exit code is 1 if one of these does not hold."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from bench.reporting import report
from bench.soak_people import chat_of
from bench.soak_processes import Program, configure, running_gateway, status_of
from bench.soak_verdict import Line, Verdict, judge
from bench.soak_watch import MIB, Sample, growth, look, series, trend

MOST_GROWTH = 1.0
"""MiB an hour."""
_JUDGED = 15.0
"""Shortest time in minutes for judging growth. In less, chance is larger than the limit."""
_FURTHER = 1.0
"""Permitted difference of, for example, the number of tasks between the two halves of the time."""
_LAST_WORDS = 180.0
_STOPPING = 40.0


@dataclass(slots=True)
class Soak:
    """The results of a soak. `samples` begin after the warm-up."""

    samples: list[Sample] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0
    calls: int = 0
    call_faults: int = 0
    unclear: int = 0
    model: Mapping[str, object] = field(default_factory=dict)
    inbox: Mapping[str, object] = field(default_factory=dict)
    exit_code: int = 0


def watch(options: argparse.Namespace, folder: Path) -> Soak:
    """Start everything, watch it for its time, and let it finish."""
    soak, home = Soak(), folder / "home"
    with (
        Program("bench.soak_model", faults=options.faults, seed=options.seed) as model,
        Program(
            "bench.soak_people",
            chats=options.chats,
            pause=options.pause,
            faults=options.faults,
            seed=options.seed,
        ) as people,
    ):
        chats = [chat_of(number) for number in range(options.chats)]
        configure(home, model.address, people.address, chats)
        with running_gateway(home) as gateway:
            samples = take_samples(options, gateway.pid, home, (people, model))
            soak.samples = [one for one in samples if one.at >= 60.0 * options.warm_up]
            soak.seconds = samples[-1].at
            soak.model = model.ask("stop")
            until_silent(people)
            soak.inbox = _mapping(status_of(home).get("queue"))
            gateway.terminate()
            soak.exit_code = gateway.wait(_STOPPING)
        take_stock(soak, people.ask("report"))
    _keep_samples(folder / "samples.csv", samples)
    return soak


def take_samples(
    options: argparse.Namespace, pid: int, home: Path, world: Sequence[Program]
) -> list[Sample]:
    """Sample the gateway every few seconds until the time is over."""
    begun, samples = time.monotonic(), list[Sample]()
    whole = 60.0 * (options.warm_up + options.minutes)
    while (at := time.monotonic() - begun) <= whole or len(samples) < 2:
        process = _mapping(status_of(home)["process"])
        samples.append(look(pid, at, _number(process, "tasks"), home))
        people, _ = [program.ask("?") for program in world]
        _show_progress(samples[-1], people)
        time.sleep(max(0.0, begun + len(samples) * options.every - time.monotonic()))
    return samples


def until_silent(people: Program) -> None:
    """Let all people finish, for some minutes at most."""
    deadline = time.monotonic() + _LAST_WORDS
    people.ask("stop")
    while people.ask("?")["talking"] and time.monotonic() < deadline:
        time.sleep(0.2)


def take_stock(soak: Soak, report_of_people: Mapping[str, object]) -> None:
    """Judge the conversations."""
    for chat, lines in _mapping(report_of_people["chats"]).items():
        assert isinstance(lines, list)
        verdict = judge(Line(text, mark) for text, mark in lines)
        verdict.faults = [f"chat {chat}: {fault}" for fault in verdict.faults]
        soak.verdict.add(verdict)
    violations = report_of_people["violations"]
    assert isinstance(violations, list)
    soak.verdict.faults += [f"Telegram was asked what it refuses: {one}" for one in violations]
    soak.calls, soak.call_faults, soak.unclear = (
        _number(report_of_people, name) for name in ("calls", "faults", "unclear")
    )


def faults_of(soak: Soak) -> list[str]:
    """Return the broken promises as sentences."""
    wrong = list(soak.verdict.faults)
    if _minutes(soak.samples) >= _JUDGED:
        wrong += _growing(soak.samples)
    if soak.verdict.repeats > soak.unclear:
        wrong.append(f"{soak.verdict.repeats} texts came twice, and {soak.unclear} might have")
    # A dead message was sent twice without an answer. The chat shows whether it arrived.
    ended = ("failed", "dead")
    left = {name: count for name, count in soak.inbox.items() if count and name not in ended}
    if left:
        wrong.append(f"there is something left in the queues: {left}")
    if soak.exit_code:
        wrong.append(f"the gateway ended with {soak.exit_code}")
    return wrong


def _growing(samples: Sequence[Sample]) -> Iterator[str]:
    slope = trend(series(samples, lambda one: one.resident / MIB))
    if slope.slope > MOST_GROWTH:
        yield f"resident memory grows by {slope} MiB an hour"
    for name, of in COUNTS.items():
        if (more := growth(series(samples, of))) > _FURTHER:
            yield f"there are {more:g} more {name} than before"


COUNTS: Mapping[str, Callable[[Sample], int]] = {
    "tasks": lambda one: one.tasks,
    "descriptors": lambda one: one.descriptors,
    "threads": lambda one: one.threads,
    "children": lambda one: one.children,
}


def figures_of(soak: Soak) -> dict[str, object]:
    """Return the table."""
    resident = series(soak.samples, lambda one: one.resident / MIB)
    first, last = soak.samples[0], soak.samples[-1]
    figures: dict[str, object] = {
        "minutes": round(soak.seconds / 60, 1),
        "messages": soak.verdict.said,
        "messages answered": soak.verdict.answered,
        "messages that ended in a text of nanobot's own": soak.verdict.excused,
        "notices that it takes longer": soak.verdict.notices,
        "texts given up after two sends without an answer": soak.inbox.get("dead", 0),
        "texts that came twice": soak.verdict.repeats,
        "of which may": soak.unclear,
        "calls of Telegram": soak.calls,
        "calls of Telegram that failed": soak.call_faults,
        "calls of the model": soak.model["calls"],
        "calls of the model that failed": soak.model["faults"],
        "resident after warm-up [MiB]": resident[0][1],
        "resident at the end [MiB]": resident[-1][1],
        "resident memory [MiB/h] (target <= 1)": str(trend(resident)),
        "memory of its own [MiB/h]": str(trend(series(soak.samples, lambda s: s.private / MIB))),
        "databases [MiB/h]": str(trend(series(soak.samples, lambda one: one.disk / MIB))),
        "CPU a minute [s]": round((last.cpu - first.cpu) / _minutes(soak.samples), 2),
    }
    for name, of in COUNTS.items():
        points = series(soak.samples, of)
        figures[f"{name} at the end"] = points[-1][1]
        figures[f"{name}: more in the second half (target <= 1)"] = growth(points)
    wrong = faults_of(soak)
    return {**figures, "promises broken (target 0)": len(wrong), "failures": wrong}


def _minutes(samples: Sequence[Sample]) -> float:
    return (samples[-1].at - samples[0].at) / 60 or 1.0


def _mapping(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _number(data: Mapping[str, object], name: str) -> int:
    value = data[name]
    assert isinstance(value, int)
    return value


def _show_progress(sample: Sample, people: Mapping[str, object]) -> None:
    if sys.stderr.isatty():
        text = f"{sample.at:6.0f} s  {sample.resident / MIB:6.1f} MiB  {people['said']} messages"
        print(f"\r{text}", end="", file=sys.stderr, flush=True)


def _keep_samples(path: Path, samples: Sequence[Sample]) -> None:
    names = ",".join(one.name for one in fields(Sample))
    lines = [",".join(map(str, astuple(sample))) for sample in samples]
    path.write_text("\n".join([names, *lines]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--warm-up", type=float, default=35.0, help="minutes that do not count")
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes that do")
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between messages")
    parser.add_argument("--faults", type=float, default=0.1, help="the share of calls that fail")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where everything is left")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        figures = figures_of(watch(options, folder))
    report("soak", figures)
    return 1 if figures["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
