"""The fault campaign: a gateway is killed at every step of a conversation, and started again.

The conversation has three messages, two tools with effects, a message steered into a running turn,
a `/new` and a `/stop`. A gateway process is killed with SIGKILL at the Nth write, fsync, rename and
send, for every N (before the call, in the middle of it, and after it for sends), and at random
moments, up to three times in a row. After each kill a new process continues until the conversation
is over. Then:

- every message is answered (a stopped one by "Stopped."),
- every effect happened at most once, and exactly once unless the kill fell into the tool itself,
- every file is readable and every message is in the session exactly once,
- a reply came twice only if the kill fell into its sending.

    python -m bench.crash               every N, and 1,000 random moments (minutes)
    python -m bench.crash --short       a sample of both
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from bench.faults import Campaign, Plans, Tally, run
from bench.injection import AFTER, BEFORE, TORN
from bench.transcript import faults_of_transcript
from bench.wire import Platform, Wire
from nanobot.app.gateway import Gateway
from nanobot.bus.events import Progress, ToolStarted
from nanobot.channel import ChannelHost
from nanobot.config.load import load_settings
from nanobot.messages import ToolCall
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink

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


_SAMPLED = 130
_SAMPLE = range(20, 20 + 3 * _SAMPLED, _SAMPLED)
"""The calls of the short form. A whole conversation makes a few more."""


class Model:
    """Decides by the newest message: e1 calls two tools with effects, e5 one and then hangs."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
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
        """Do nothing."""

    @staticmethod
    def _call(number: int, tool: str, text: str) -> Reply:
        arguments = {"text": text}
        if tool == "edit_file":
            arguments = {"path": "effects.txt", "old_text": "END", "new_text": f"{text}\nEND"}
        return Reply("", (ToolCall(f"call-{number}", tool, json.dumps(arguments)),))


class Talk(Wire):
    """The conversation. e2 arrives while e1's tools run, and e6 while e5 hangs."""

    def __init__(self, link: socket.socket, platform: Platform, model: Model) -> None:
        super().__init__(link, platform)
        self._model = model
        self._tool_started = False

    async def talk(self, host: ChannelHost) -> None:
        answered = self.platform.has_answered
        await self._say(host, "e1")
        await self.until(lambda: self._tool_started or answered("e1"))
        await self._say(host, "e2")
        await self.until(lambda: all(map(answered, ("e1", "e2"))))
        for event in ("e3", "e4"):
            await self._say(host, event)
            await self.until(partial(answered, event))
        await self._say(host, "e5")
        if "e6" not in self.platform.tried:
            await self._model.hangs.wait()
        for event in ("e6", "e7"):
            await self._say(host, event)
            await self.until(partial(answered, event))

    async def show_progress(self, event: Progress) -> None:
        """Note that a tool runs."""
        if isinstance(event, ToolStarted):
            self._tool_started = True
            self.notify_waiters()

    async def _say(self, host: ChannelHost, event: str) -> None:
        await self.say(host, event, TEXTS[event])


class Conversation:
    """The scenario of this campaign."""

    def furnish(self, home: Path) -> Platform:
        """Write the file that the tools edit."""
        (home / "workspace").mkdir(parents=True)
        (home / "workspace" / "effects.txt").write_text("END\n")
        return Platform()

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with only this channel and a scripted model."""
        model = Model()
        channel = Talk(link, platform, model)
        settings = load_settings(home, {})
        gateway = Gateway(settings, provider=model, channels=(channel,), admit_everyone=True)
        channel.gateway = gateway
        return gateway

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check that every message was answered, and that each effect happened once."""
        wrong = [f"{event} unanswered" for event in ANSWERED if not platform.has_answered(event)]
        if platform.has_answered("e5"):
            wrong.append("the stopped message was answered")
        effects = Counter((home / "workspace" / "effects.txt").read_text().split())
        for notes in (home / "workspace" / "memory").glob("2*.md"):
            effects.update(notes.read_text().split())
        wrong += [
            f"effect {e} {effects[e]} times" for e in ("first", "second", "third") if effects[e] > 1
        ]
        return wrong + faults_of_transcript(home, "wire:1", re.compile(r"^(e\d)"), SPOKEN)


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode, then random moments."""

    def at_calls(mode: int, share: int) -> Tally:
        """Kill at every call, or at every `share`th in the short form."""
        if step:
            return campaign.at_every_call(mode, 1 + step * share // 3, step)
        return campaign.at(*((n + _SAMPLED * share // 3, mode) for n in _SAMPLE))

    return {
        "before each write, fsync, rename, send": lambda: at_calls(BEFORE, 0),
        "in the middle of each": lambda: at_calls(TORN, 1),
        "after each": lambda: at_calls(AFTER, 2),
        "at random moments": lambda: campaign.at_random(1000 // step if step else 2, rng, 0.25),
    }


if __name__ == "__main__":
    sys.exit(run("bench.crash", __doc__, Conversation(), plans))
