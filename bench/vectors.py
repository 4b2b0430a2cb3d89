"""Measure the cost of semantic search for a gateway that does not search: its turns and its
memory, with the local model of the extra `embeddings` and without.

One home is filled and embedded, and a copy of it has the setting off. Two gateways, normal
processes, alternate in blocks of turns over their sockets, with a model in another process. CPU is
that of the gateways. The cost of their messages for the worker, which embeds them once a minute, is
counted separately. Memory is measured first, in fresh gateways: idle, after a turn, after a search,
and when the worker has ended. It ends after ten idle minutes. `--wait` waits for that. Otherwise
the worker is killed, which looks the same to the gateway.

    python -m bench.vectors [--messages N] [--turns N] [--wait] [--json]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.common import ModelServer, median, write_session
from bench.reporting import report
from bench.startup import NANOBOT, cpu_seconds, resident, running_gateway
from nanobot.cli.agent import replies
from nanobot.cli.client import Client

MESSAGES, ROUNDS, TURNS, MEMORY_ROUNDS, WARM_UP = 4_000, 9, 60, 3, 20
SETTINGS = {
    "NANOBOT_MODEL__PROVIDER": "openai",
    "NANOBOT_MODEL__NAME": "bench",
    "NANOBOT_MEMORY__WINDOW": "1000000",
    "NANOBOT_LIMITS__MESSAGES_PER_MINUTE": "0",
}
LOCAL = "NANOBOT_MEMORY__EMBEDDINGS__LOCAL"
WITH, WITHOUT = "with vectors", "without"
_SETTLED, _LOOK = 5.0, 0.5

Homes = Mapping[str, Mapping[str, str]]
"""The environments of the gateways, by label."""


class Running(NamedTuple):
    """A gateway and a connection to it."""

    home: Path
    pid: int
    client: Client

    def turns(self, session: str, number: int) -> list[float]:
        """Return the wall-clock seconds of turns, one after the other."""
        found = []
        for _ in range(number):
            begun = time.perf_counter()
            said = self.client.send_message("What shall I cook tonight?", session)
            for _ in replies(self.client, said, session):
                pass
            found.append(time.perf_counter() - begun)
        return found

    def workers(self) -> list[int]:
        """Return its child processes."""
        lists = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(pid) for path in lists for pid in path.read_text().split()]

    def wait_until_embedded(self, messages: int) -> None:
        """Return when this many messages are indexed, and no vector is pending."""
        while self._count_embedded() < messages:
            time.sleep(_LOOK)

    def _count_embedded(self) -> int:
        file = self.home / "state" / "index.db"
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
                return int(db.execute("SELECT count(*) FROM passage WHERE row >= 0").fetchone()[0])
        except sqlite3.OperationalError:  # it doesn't exist yet, or is locked
            return 0


@contextmanager
def running(environ: Mapping[str, str]) -> Iterator[Running]:
    """Run a gateway on a home."""
    home = Path(environ["NANOBOT_HOME"])
    with running_gateway(environ, NANOBOT) as (pid, _), closing(Client(home)) as client:
        yield Running(home, pid, client)


def fill(home: Path, environ: Mapping[str, str], messages: int) -> None:
    """Create a home with a conversation of this many messages, all embedded."""
    write_session(home, "cli:stored", messages, 0)
    with running({**environ, "NANOBOT_HOME": str(home), LOCAL: "true"}) as one:
        one.wait_until_embedded(messages)


@contextmanager
def copies(filled: Path, environ: Mapping[str, str]) -> Iterator[Homes]:
    """Make two copies of a home, with the setting and without."""
    with tempfile.TemporaryDirectory() as folder:
        homes = {name: Path(folder) / name for name in (WITHOUT, WITH)}
        for home in homes.values():
            shutil.copytree(filled, home)
        yield {
            name: {**environ, "NANOBOT_HOME": str(home), LOCAL: str(name == WITH).lower()}
            for name, home in homes.items()
        }


def memory(homes: Homes, is_waiting: bool) -> Iterator[tuple[str, float]]:
    """Yield the MiB of a gateway, with and without, in each state."""
    for name, environ in homes.items():
        with running(environ) as one:
            time.sleep(_SETTLED)
            yield f"idle, before the first turn, {name} [MiB]", resident(one.pid)
            one.turns("cli:memory", 1)
            yield f"idle, after it, {name} [MiB]", resident(one.pid)
            one.client.ask("memory.search", {"text": "the weather and work"})
            workers = one.workers()
            yield f"after a search, {name} [MiB]", resident(one.pid)
            for worker in workers:
                yield "the worker then [MiB]", resident(worker)
                if not is_waiting:
                    os.kill(worker, signal.SIGTERM)
            while one.workers():
                time.sleep(_LOOK)
            time.sleep(_LOOK)
            yield f"when the worker has ended, {name} [MiB]", resident(one.pid)
        assert bool(workers) == (name == WITH)


def turns(homes: Homes, messages: int, number: int) -> dict[str, object]:
    """Return the cost of a turn with and without, and the later cost of its messages."""
    cpu: dict[str, list[float]] = {name: [] for name in homes}
    wall: dict[str, list[float]] = {name: [] for name in homes}
    with ExitStack() as stack:
        gateways = {name: stack.enter_context(running(each)) for name, each in homes.items()}
        for one in gateways.values():
            one.turns("cli:warm", WARM_UP)
        time.sleep(_SETTLED)
        begun = {name: cpu_seconds(one.pid) for name, one in gateways.items()}
        for turn in range(ROUNDS):
            for name, one in gateways.items():
                before = cpu_seconds(one.pid)
                wall[name] += one.turns(f"cli:block{turn}", number)
                cpu[name].append((cpu_seconds(one.pid) - before) / number)
        said = 2 * ROUNDS * number
        gateways[WITH].wait_until_embedded(messages + said)
        whole = {name: cpu_seconds(one.pid) - begun[name] for name, one in gateways.items()}
        worker = sum(map(cpu_seconds, gateways[WITH].workers()))
        megabytes = {name: resident(one.pid) for name, one in gateways.items()}
    return {
        **{f"CPU per turn, {name} [ms]": 1000 * median(each) for name, each in cpu.items()},
        "ratio of CPU (target <= 1.05)": ratio(cpu),
        **{f"a turn by the clock, {name} [ms]": 1000 * median(each) for name, each in wall.items()},
        "ratio by the clock (target <= 1.05)": ratio(wall),
        "CPU of the gateway per turn, until all is embedded, more than without [ms]":
            1000 * (whole[WITH] - whole[WITHOUT]) / ROUNDS / number,
        "CPU of the worker per turn, two messages [ms]": 1000 * worker / ROUNDS / number,
        **{f"after these turns, {name} [MiB]": each for name, each in megabytes.items()},
    }  # fmt: skip


def ratio(measured: Mapping[str, Sequence[float]]) -> float:
    """Return the ratio with vectors to without."""
    return median(measured[WITH]) / median(measured[WITHOUT])


def main() -> None:
    parser = argparse.ArgumentParser(description="Turns and memory, with and without vectors.")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="messages embedded before")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns in a block")
    parser.add_argument("--wait", action="store_true", help="for the worker to end by itself")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    resided: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ModelServer() as server:
        filled = Path(folder) / "filled"
        environ = {**os.environ, **SETTINGS, "NANOBOT_MODEL__BASE_URL": server.base_url}
        fill(filled, environ, options.messages)
        for _ in range(1 if options.wait else MEMORY_ROUNDS):
            with copies(filled, environ) as homes:
                for label, megabytes in memory(homes, options.wait):
                    resided.setdefault(label, []).append(megabytes)
        with copies(filled, environ) as homes:
            taken = turns(homes, options.messages, options.turns)
    report("vectors", {label: median(each) for label, each in resided.items()} | taken)


if __name__ == "__main__":
    main()
