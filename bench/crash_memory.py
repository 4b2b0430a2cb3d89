"""The fault campaign on memory: a gateway is killed at every step of remembering, and continues.

A conversation states facts, is consolidated (by tokens, by the window's length, by `/compact` and
after `/new`), and archived. The agent writes notes and long-term facts, Dream learns and retires a
changed fact, one fact is forgotten, and one change is undone. A gateway process is killed with
SIGKILL at the Nth write, fsync, rename and send (before it, in the middle, after it), once more
while it recovers, and at random moments. The models word each learned fact differently every time,
so that a fact learned twice shows. `bench.memory_faults` has the invariants.

    python -m bench.crash_memory              every N, and 300 random moments (hours)
    python -m bench.crash_memory --every 25   a sample (some minutes)
    python -m bench.crash_memory --short      a handful
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import sys
from pathlib import Path

from bench.common import write_session
from bench.faults import Campaign, Plans, every_call, run
from bench.injection import AFTER, BEFORE, BROKEN, FULL, TORN
from bench.memory_faults import KEY, OLD, faults_of_memory
from bench.wire import Platform, Wire
from nanobot.app.gateway import Gateway
from nanobot.channel import ChannelHost
from nanobot.config.load import load_settings
from nanobot.messages import ToolCall
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink

SAID = {
    "a1": "m1: the boiler of the house stands in the cellar",
    "a2": "u1: I drink juniper tea in the morning",
    "a3": "write down n1: the plumber came by at noon",
    "a4": "m2: the spare key hangs behind the kitchen clock",
    "b1": "/compact",
    "b2": "/dream",
    "b3": "keep k1: the wireless network is called Seagull",
    "b4": "u2: my sister Clara lives in Turin",
    "b5": "m3: the tax office wants its papers by May" + "\n(and so on, at length)" * 250,
    "b6": "/note n2: water the lemon tree",
    "b8": "/note",
    "b7": "m4: the bicycle has a blue saddle",
    "c1": "/new",
    "c2": "m5: the garage is rented from Mrs Hall",
    "c3": "/compact",
    "c4": "/dream",
    "c5": "u3: my sister Clara lives in Rome now",
    "c6": "m6: the piano was tuned in April",
    "c7": "/compact",
    "c8": "/dream",
    "c9": "/memory search boiler",
}
"""The messages in order. m are facts for the consolidation, u for Dream (u3 replaces u2), k for the
agent's own tool. n are notes, and a bare `/note` marks the previous message to keep."""

FORGOTTEN = "juniper tea"
LAST = {"z1": "that was all", "z2": "/compact", "z3": "/dream", "z4": "/memory"}

_CONFIG = """
model: {context_window: 9000, max_completion_tokens: 1000}
memory: {window: 8}
"""
_FACT = re.compile(r"\b([mu]\d): ([^\n\[(]+)")
_HANDFUL = ((430, TORN), (120, AFTER), (500, BEFORE))
"""After the commit of a `/compact`, in a `/dream`, and in the sealing by `/new`."""
_BUSY = 1440
"""Number of calls before the search index, a cache, is built."""

_IDLE = ("and", "so", "then", "there", "here", "just", "very", "too", "again", "only")

_FAILED = re.compile("cannot use|can't|could not|Free some space|cannot be reached")
_VERSION = re.compile(r"^- (\d+)  .*\[Agent\]", re.MULTILINE)


class Model:
    """Answers, calls the tool that a message asks for, condenses, and dreams."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        request = prompt.messages[-1].text
        if options.tool_choice == "save_memory":
            return self._condense(request)
        if prompt.messages[0].text.startswith("# Dream, phase 1"):
            return Reply(json.dumps(self._extract(request)))
        if prompt.messages[0].text.startswith("# Dream, digest"):
            line = {"text": self._word("d1", "swam"), "days": [3, 5]}
            return Reply(json.dumps({"lines": [line]}))
        if prompt.messages[0].text.startswith("# Dream, phase 2"):
            return Reply(json.dumps(_integrate(request)))
        return _answer(prompt)

    async def close(self) -> None:
        """Do nothing."""

    def _condense(self, request: str) -> Reply:
        known, _, talk = request.partition("\n## Conversation to Process")
        memory = known.partition("## Current Long-term Memory\n")[2].strip()
        told = dict(_FACT.findall(talk))
        lines = [self._word(mark, fact) for mark, fact in told.items() if mark[0] == "m"]
        fields = {
            "history_entry": self._word(", ".join(told), "was all that we spoke of"),
            "memory_update": "\n".join([memory.replace("(empty)", ""), *lines]),
            "key_facts": [f"{mark}: {fact.strip()}" for mark, fact in told.items()],
        }
        return Reply("", (ToolCall("save", "save_memory", json.dumps(fields)),))

    def _extract(self, request: str) -> dict[str, object]:
        files, _, new = request.partition("## New entries")
        found: dict[str, list[dict[str, object]]] = {"user_updates": [], "contradictions": []}
        entries = re.split(r"^\[(\d+)\] ", new, flags=re.MULTILINE)[1:]
        for number, text in zip(entries[::2], entries[1::2], strict=True):
            for mark, fact in _FACT.findall(text):
                item: dict[str, object] = {"text": self._word(mark, fact), "entry": int(number)}
                if mark == "u3" and (old := re.search(r"^- u2 .*?(?=  ←|$)", files, re.MULTILINE)):
                    found["contradictions"].append(item | {"replaces": old[0]})
                elif mark[0] == "u":
                    found["user_updates"].append(item)
        return {**found, "processed_entries": [int(number) for number in entries[::2]]}

    def _word(self, mark: str, fact: str) -> str:
        # Word it differently each time, without a new fact: unstated facts are not learned.
        return f"- {mark} {fact.strip()}, {' '.join(self._random.choices(_IDLE, k=8))}"


def _integrate(request: str) -> dict[str, object]:
    updates = re.findall(r"^\[\d+\] (add|replace): (.*)$", request, re.MULTILINE)
    edits = []
    for kind, text in updates:
        new, _, old = text.partition(" (instead of: ")
        edits.append({"old": old.removesuffix(")") if kind == "replace" else "", "new": f"- {new}"})
    return {"edits": edits}


def _answer(prompt: Prompt) -> Reply:
    newest = max(at for at, m in enumerate(prompt.messages) if m.role == "user")
    said = prompt.messages[newest].text
    called = any(m.role == "tool" for m in prompt.messages[newest:])
    if not called and (note := re.search(r"(?<=write down )n1: .*", said)):
        arguments: dict[str, object] = {"text": note[0]}
        return Reply("", (ToolCall("call-note", "note", json.dumps(arguments)),))
    if not called and (fact := re.search(r"(?<=keep )k1: .*", said)):
        arguments = {"add": [f"- {fact[0]}"]}
        return Reply("", (ToolCall("call-keep", "update_memory", json.dumps(arguments)),))
    return Reply("I have heard it.")


class Talk(Wire):
    """The conversation. Forgetting starts again if its code was lost with a process."""

    async def talk(self, host: ChannelHost) -> None:
        for event, text in SAID.items():
            await self._insist(host, event, text)
        for attempt in range(20):
            plan = await self.ask(host, f"f{attempt}", f"/forget {FORGOTTEN}")
            code = re.search(r"/forget --yes (\w+)", plan)
            if code is None:
                break
            await self.ask(host, f"y{attempt}", f"/forget --yes {code[1]}")
        listed = await self.ask(host, "r1", "/dream-restore --list")
        if made := _VERSION.findall(listed):
            await self.ask(host, "r2", f"/dream-restore --version {made[0]}")
        for event, text in LAST.items():
            await self._insist(host, event, text)

    async def _insist(self, host: ChannelHost, event: str, text: str) -> None:
        """Send a message, and repeat a command that failed."""
        answer = await self.ask(host, event, text)
        for attempt in range(20):
            if text[0] != "/" or not _FAILED.search(answer):
                return
            await asyncio.sleep(0.1)
            answer = await self.ask(host, f"{event}+{attempt}", text)


class MemoryParts:
    """The scenario of this campaign."""

    def furnish(self, home: Path) -> Platform:
        """Write a session so long that the next consolidation archives, and old notes."""
        (home / "config.yaml").write_text(_CONFIG)
        (home / "workspace" / "memory").mkdir(parents=True)
        for day in ("2020-01-03", "2020-01-05"):
            (home / "workspace" / "memory" / f"{day}.md").write_text(
                f"# {day}\n\n- 10:00 d1 swam\n"
            )
        write_session(home, KEY, OLD, OLD)
        return Platform()

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with this channel and model, and without scheduled work."""
        channel = Talk(link, platform)
        settings = load_settings(home, {})
        gateway = Gateway(
            settings, provider=Model(), channels=(channel,), admit_everyone=True, chores=False
        )
        channel.gateway = gateway
        return gateway

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Return lost and repeated facts and messages."""
        asked = [*SAID, *LAST]
        wrong = [f"{event} unanswered" for event in asked if not platform.has_answered(event)]
        told = {**SAID, **LAST}
        return wrong + faults_of_memory(home, {e: t for e, t in told.items() if t[0] != "/"})


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode, then two kills in a row, random moments, and a failing
    disk."""
    if not step:
        return {"at a handful of calls": lambda: campaign.one_after_another(*_HANDFUL)}
    few = 300 // step
    return {
        **every_call(campaign, step, rng),
        "at random moments": lambda: campaign.at_random(few, rng, 2.0),
        "the disk was full": lambda: campaign.with_a_disk_that_refuses(FULL, few, rng, _BUSY),
        "the disk was broken": lambda: campaign.with_a_disk_that_refuses(BROKEN, few, rng, _BUSY),
    }


if __name__ == "__main__":
    sys.exit(run("bench.crash_memory", __doc__, MemoryParts(), plans))
