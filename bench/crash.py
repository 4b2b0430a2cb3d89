"""The fault campaign: a gateway is killed at every step of a conversation, and started again.

The conversation has three messages, two tools with effects, a message steered into a running turn,
a `/new` and a `/stop`. A gateway process is killed with SIGKILL at the Nth write, fsync, rename and
send, for every N (before the call; in the middle of it; after it for sends), and at random moments,
up to three times in a row. After each, a new process goes on until the conversation is over. Then:

- every message is answered (a stopped one by "Stopped."),
- every effect happened at most once, and exactly once unless the kill fell into the tool itself,
- every file is readable and every message stands in the session exactly once,
- a reply came twice only if the kill fell into its sending.

    python -m bench.crash               every N, and 1,000 random moments (minutes)
    python -m bench.crash --short       a sample of both
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from loguru import logger

from bench.common import report
from nanobot.app import build_gateway
from nanobot.bus.events import (
    InboundMessage,
    Media,
    OutboundPart,
    Progress,
    Receipt,
    ToolStarted,
)
from nanobot.channel import ChannelHost, Limits
from nanobot.clock import SystemClock
from nanobot.config import load_settings
from nanobot.errors import SendRefused
from nanobot.gateway.gateway import Gateway
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.session.records import decode

BEFORE, TORN, AFTER = 0, 1, 2
PATIENCE = 30.0
ANSWERED = ("e1", "e2", "e3", "e4", "e6", "e7")
SPOKEN = ("e1", "e2", "e4", "e5", "e7")
TEXTS = {
    "e1": "e1 write it down",
    "e2": "e2 and this too",
    "e3": "/new",
    "e4": "e4 a plain question",
    "e5": "e5 something endless",
    "e6": "/stop",
    "e7": "e7 the last one",
}


@dataclass
class Platform:
    """What the chat platform knows, which no kill touches: messages taken, replies delivered."""

    tried: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    delivered: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    def has_answered(self, event: str) -> bool:
        """Whether a reply to this event was delivered."""
        return any(event in events for events, _ in self.delivered)

    def hear(self, line: str) -> bool:
        """One line from the gateway; True for the last."""
        told = json.loads(line)
        if "try" in told:
            self.tried.add(told["try"])
        elif "ack" in told:
            self.acked.add(told["ack"])
        elif "sent" in told:
            self.delivered.append((tuple(told["sent"]), told["text"]))
        return "over" in told


class Model:
    """Decides by the newest message: e1 calls two tools with effects, e5 one and then hangs."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See the class."""
        spoken = [m for m in prompt.messages if m.role == "assistant" and not m.tool_calls]
        start = prompt.messages.index(spoken[-1]) + 1 if spoken else 1
        tail = prompt.messages[start:]
        said = [m.text.splitlines()[-1][:2] for m in tail if m.role == "user"]
        if said[-1] == "e5":
            own = tail[max(i for i, m in enumerate(tail) if m.role == "user") :]
            if not any(m.role == "tool" for m in own):
                return self._call(2, "edit_file", "third")
            self.hangs.set()
            await asyncio.Event().wait()
        done = sum(m.role == "tool" for m in tail)
        if said[0] == "e1" and done < 2:
            return self._call(done, ("edit_file", "note")[done], ("first", "second")[done])
        return Reply(f"answer to {' '.join(said)}")

    async def close(self) -> None:
        """Nothing to release."""

    @staticmethod
    def _call(number: int, tool: str, text: str) -> Reply:
        arguments = {"text": text}
        if tool == "edit_file":
            arguments = {"path": "effects.txt", "old_text": "END", "new_text": f"{text}\nEND"}
        return Reply("", (ToolCall(f"call-{number}", tool, json.dumps(arguments)),))


class Wire:
    """A channel whose platform is the process at the other end of a socket."""

    def __init__(self, link: socket.socket, platform: Platform, model: Model) -> None:
        self.name, self.limits = "wire", Limits()
        self._link, self._platform, self._model = link, platform, model
        self._changed = asyncio.Event()
        self._tool_started = False
        self.gateway: Gateway | None = None

    async def run(self, host: ChannelHost) -> None:
        """Say what has not been said, each when its time has come."""
        await self._say(host, "e1")
        await self._until(lambda: self._tool_started or self._platform.has_answered("e1"))
        await self._say(host, "e2")
        await self._until(lambda: all(map(self._platform.has_answered, ("e1", "e2"))))
        for event in ("e3", "e4"):
            await self._say(host, event)
            await self._until(partial(self._platform.has_answered, event))
        await self._say(host, "e5")
        if "e6" not in self._platform.tried:
            await self._model.hangs.wait()
        for event in ("e6", "e7"):
            await self._say(host, event)
            await self._until(partial(self._platform.has_answered, event))
        self._tell({"over": True})
        assert self.gateway is not None
        self.gateway.request_stop()
        await asyncio.Event().wait()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver to the platform."""
        self._tell({"sent": part.event_ids, "text": part.content})
        self._changed.set()
        return Receipt()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """There are no files."""
        raise SendRefused(f"there is no {media.ref}")

    async def show(self, event: Progress) -> None:
        """Note that a tool runs."""
        if isinstance(event, ToolStarted):
            self._tool_started = True
            self._changed.set()

    async def _say(self, host: ChannelHost, event: str) -> None:
        if event in self._platform.acked:
            return
        self._tell({"try": event})
        now = SystemClock().now()
        await host.publish((InboundMessage("wire", "1", "someone", TEXTS[event], event, now),))
        self._tell({"ack": event})

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _tell(self, told: dict[str, object]) -> None:
        line = json.dumps(told)
        self._link.send(line.encode() + b"\n")
        self._platform.hear(line)


def run_gateway(home: Path, platform: Platform, link: socket.socket, n: int, mode: int) -> None:
    """The child: a real gateway that dies at call `n` (0: never)."""
    logger.remove()
    settings = load_settings(home, {})
    model = Model()
    channel = Wire(link, platform, model)
    gateway = build_gateway(settings, provider=model, channels=(channel,), admit_everyone=True)
    channel.gateway = gateway
    logger.remove()
    library = ctypes.CDLL(None)
    library.crash_arm.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int)
    library.crash_arm(n, mode, link.fileno())
    asyncio.run(gateway.run(signals=False))
    link.send(json.dumps({"over": True, "calls": library.crash_count()}).encode() + b"\n")


def life(home: Path, platform: Platform, n: int, mode: int, seconds: float = PATIENCE) -> str:
    """One process from start to its end: `killed`, `over`, or `hung` (after `seconds`, killed)."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        try:
            run_gateway(home, platform, theirs, n, mode)
        except BaseException as error:  # noqa: BLE001 - a child must never return
            os.write(2, f"gateway failed: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    theirs.close()
    deadline = time.monotonic() + seconds
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
    if timed_out:
        return "hung"
    if os.WIFSIGNALED(status):
        return "killed"
    return "over" if over and os.WEXITSTATUS(status) == 0 else "failed"


def new_home(folder: Path, name: str) -> Path:
    """A home with the file that the tools edit."""
    home = folder / name
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "effects.txt").write_text("END\n")
    return home


def faults(home: Path, platform: Platform, kills: int) -> list[str]:
    """What is wrong in the end; empty when all promises were kept."""
    wrong = [f"{event} unanswered" for event in ANSWERED if not platform.has_answered(event)]
    if platform.has_answered("e5"):
        wrong.append("the stopped message was answered")
    replies = Counter(platform.delivered)
    twice = sum(count - 1 for count in replies.values())
    if twice > kills:
        wrong.append(f"{twice} replies came twice")
    effects = Counter((home / "workspace" / "effects.txt").read_text().split())
    for notes in (home / "workspace" / "memory").glob("2*.md"):
        effects.update(notes.read_text().split())
    wrong += [
        f"effect {e} {effects[e]} times" for e in ("first", "second", "third") if effects[e] > 1
    ]
    return wrong + _session_faults(home)


def _session_faults(home: Path) -> list[str]:
    records = [
        decode(line) for line in (home / "sessions" / "wire_1.jsonl").read_bytes().splitlines()
    ]
    wrong = ["an unreadable line"] if None in records else []
    messages = [record for record in records if isinstance(record, Message)]
    if sorted({m.seq for m in messages}) != [m.seq for m in messages]:
        wrong.append("sequence numbers repeat or fall back")
    said = Counter(m.content[:2] for m in messages if m.role == "user")
    wrong += [
        f"{event} stands {said[event]} times in the session" for event in SPOKEN if said[event] != 1
    ]
    called = Counter(call.id for m in messages for call in m.tool_calls)
    results = Counter(m.tool_call_id for m in messages if m.role == "tool")
    if called != results:
        wrong.append("calls without results")
    if list((home / "sessions").glob("*.corrupt*")):
        wrong.append("something was set aside as corrupt")
    return wrong


@dataclass
class Tally:
    """What a campaign found."""

    kills: int = 0
    duplicates: int = 0
    failures: list[str] = field(default_factory=list)

    def judge(self, label: str, home: Path, platform: Platform, ended: str, kills: int) -> None:
        """Check one conversation, and clean up after it."""
        wrong = faults(home, platform, kills) if ended == "over" else [f"the gateway {ended}"]
        self.failures += [f"{label}: {fault}" for fault in wrong]
        self.duplicates += sum(count - 1 for count in Counter(platform.delivered).values())
        shutil.rmtree(home)


def at_every_call(folder: Path, mode: int, first: int, step: int) -> Tally:
    """Kill at call `first`, `first + step`, … until conversations pass without reaching it."""
    tally = Tally()
    n, misses = first, 0
    while misses < 3:
        home, platform = new_home(folder, f"m{mode}-{n}"), Platform()
        ended = life(home, platform, n, mode)
        killed = ended == "killed"
        if killed:
            ended = life(home, platform, 0, BEFORE)
        tally.kills += killed
        misses = 0 if killed else misses + 1
        tally.judge(f"mode {mode}, call {n}", home, platform, ended, kills=1)
        n += step
    return tally


def at_random(folder: Path, count: int, seed: int) -> Tally:
    """Kill at random moments, up to three times in one conversation."""
    tally, rng = Tally(), random.Random(seed)
    while tally.kills < count:
        home, platform = new_home(folder, f"r{tally.kills}"), Platform()
        ended, kills = "hung", 0
        for _ in range(rng.randint(1, 3)):
            ended = life(home, platform, 0, BEFORE, seconds=rng.uniform(0.0, 0.25))
            kills += ended == "hung"
        if ended != "over":
            ended = life(home, platform, 0, BEFORE)
        tally.kills += kills
        tally.judge(f"random {tally.kills}", home, platform, ended, kills)
    return tally


def campaign(*, short: bool, seed: int) -> dict[str, object]:
    """Run it all; the figures."""
    figures: dict[str, object] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, step = (20, 45) if short else (1, 1)
        plans: dict[str, Callable[[], Tally]] = {
            "before each write, fsync, rename, send": lambda: at_every_call(
                folder, BEFORE, first, step
            ),
            "in the middle of each": lambda: at_every_call(folder, TORN, first + step // 3, step),
            "after each": lambda: at_every_call(folder, AFTER, first + step * 2 // 3, step),
            "at random moments": lambda: at_random(folder, 8 if short else 1000, seed),
        }
        for label, plan in plans.items():
            tally = plan()
            figures[f"kills {label}"] = tally.kills
            figures[f"replies sent twice, {label}"] = tally.duplicates
            failures += tally.failures
    return {**figures, "promises broken (target 0)": len(failures), "failures": failures}


def with_fault_injector() -> None:
    """Start this program again with the library that kills it."""
    source = Path(__file__).with_name("crashpoint.c")
    library = Path(tempfile.mkdtemp()) / "crashpoint.so"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    environ = {**os.environ, "LD_PRELOAD": str(library)}
    os.execve(sys.executable, [sys.executable, "-m", "bench.crash", *sys.argv[1:]], environ)


def main() -> int:
    """Run and print; exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--short", action="store_true", help="a sample instead of every step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if "crashpoint" not in os.environ.get("LD_PRELOAD", ""):
        with_fault_injector()
    figures = campaign(short=options.short, seed=options.seed)
    report("crash", figures)
    return 1 if figures["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
