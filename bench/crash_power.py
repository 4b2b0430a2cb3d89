"""The fault campaign for a power loss: the gateway starts again without the data that no sync kept.

The conversation of `bench.crash` takes place while three new chats get their first replies at once,
and a program sends requests with an `Idempotency-Key` to the API, which it repeats in each process.
At the Nth write, fsync, rename and send (before it, in the middle, after it), once more while the
next process recovers, at random moments, and after the planned stop, power is lost. The next
process finds a possible content of the disk: only synced content and names, or also all names, or a
random part of the rest (`bench.powerloss`). In the end, after one more power loss:

- every message and request is answered, with the same text each time,
- no effect of a tool happened twice, and none whose result is in the conversation is missing,
- every message is once in its session file, with the scope of the chat,
- no file is damaged, and the journal was never rebuilt,
- a reply came again only if it was sent in the last second before a power loss.

    python -m bench.crash_power              every N, and 300 random moments (an hour)
    python -m bench.crash_power --every 10   a sample (minutes)
    python -m bench.crash_power --short      a handful
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from bench import crash
from bench.common import load_once
from bench.faults import Campaign, Plans, every_call, run
from bench.injection import AFTER, BEFORE, TORN
from bench.transcript import faults_of_transcript, messages_of
from bench.wire import Platform
from nanobot.app.gateway import Gateway
from nanobot.channel import ChannelHost
from nanobot.channel.keys import ApiKeys
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.session.records import Metadata, decode
from nanobot_api import ApiChannel
from tests.ports import free_port

_CHATS = {"e": "1", "f": "2", "g": "3", "h": "4"}
_REQUESTS = {"k1": "talk", "k2": "talk", "k3": "other"}
"""The requests of the program, with their conversations."""
_SPOKEN = {
    "wire:1": crash.SPOKEN,
    "wire:2": ("f1", "f2"),
    "wire:3": ("g1",),
    "wire:4": ("h1",),
    "api:program:talk": ("k1", "k2"),
    "api:program:other": ("k3",),
}
"""The messages that each session must hold."""
_EFFECTS = {"call-0": "first", "call-1": "second", "call-2": "third"}
_UNKNOWN = "unknown"
"""Part of the result of a call that was interrupted."""
_LAST_SECOND = 1.0
_HANDFUL = tuple((n, (BEFORE, TORN, AFTER)[n % 3]) for n in range(70, 770, 100))


class Model(crash.Model):
    """Never gives the same answer twice."""

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        reply = await super().complete(prompt, options, on_text)
        return reply if reply.tool_calls else Reply(f"{reply.text} ({secrets.token_hex(4)})")


@dataclass
class Outside(Platform):
    """The chats, the program with its `key`, and the time of each reply and power loss."""

    port: int = 0
    key: str = ""
    answers: Mapping[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    times: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def hear(self, line: str) -> bool:
        known = len(self.delivered)
        is_over = super().hear(line)
        self.times += [time.monotonic()] * (len(self.delivered) - known)
        if match := re.fullmatch(r'\{"answer": "(k\d)", "text": "(.*)"\}', line):
            self.answers[match[1]].append(match[2])
        return is_over

    def look_at(self, home: Path) -> None:
        self.losses.append(time.monotonic())

    def late_repetitions(self) -> list[str]:
        """Return the replies that came again although they were sent long before a power loss."""
        last, late = dict[tuple[tuple[str, ...], str], float](), list[str]()
        for reply, at in zip(self.delivered, self.times, strict=True):
            before = last.get(reply)
            last[reply] = at
            if before is None:
                continue
            if not any(before <= loss <= min(at, before + _LAST_SECOND) for loss in self.losses):
                late.append(f"{reply} came again after {at - before:.2f} s")
        return late


class Talk(crash.Talk):
    """The conversations, all at once."""

    async def talk(self, host: ChannelHost) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().talk(host))
            group.create_task(self._talk_in_new_chats(host))
            group.create_task(self._request())

    async def _talk_in_new_chats(self, host: ChannelHost) -> None:
        for event in ("f1", "g1", "h1"):
            await self.say(host, event, f"{event} hello", _CHATS[event[0]])
        for event in ("f1", "g1", "h1"):
            await self.until(partial(self.platform.has_answered, event))
        await self.say(host, "f2", "f2 and more", _CHATS["f"])
        await self.until(partial(self.platform.has_answered, "f2"))

    async def _request(self) -> None:
        """Send each request, also if it was answered."""
        assert isinstance(self.platform, Outside)
        headers = {"Authorization": f"Bearer {self.platform.key}"}
        async with aiohttp.ClientSession(headers=headers) as client:  # no egress
            for event in _REQUESTS:
                text = ""
                while not text:
                    text = await self._post(client, event, self.platform.port)
                    await asyncio.sleep(0 if text else 0.02)  # until the gateway listens
                self._tell({"answer": event, "text": text})

    async def _post(self, client: aiohttp.ClientSession, event: str, port: int) -> str:
        body = {
            "model": "nanobot",
            "metadata": {"session_id": _REQUESTS[event]},
            "messages": [{"role": "user", "content": f"{event} a request"}],
        }
        url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"Idempotency-Key": event}
        try:
            async with client.post(url, json=body, headers=headers) as answer:
                given = await answer.json()
                return str(given["choices"][0]["message"]["content"]) if answer.ok else ""
        except aiohttp.ClientConnectionError:
            return ""


class Conversations:
    """The scenario of this campaign."""

    def furnish(self, home: Path) -> Platform:
        """Write the file that the tools edit, the configuration, and the key of the program."""
        load_once("aiohttp.web")
        crash.Conversation().furnish(home)
        port = free_port()
        (home / "config.yaml").write_text(f"http: {{port: {port}}}\n")
        (home / "config.yaml").chmod(0o600)
        keys = ApiKeys(home / "state" / "channels" / "api")
        key = keys.add("program", "", SystemClock().now(), own_words=True)
        return Outside(loses_power_at_the_end=True, port=port, key=key)

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the chats, the API, and a scripted model."""
        model = Model()
        talk = Talk(link, platform, model)
        settings = load_settings(home, {})
        channels = (talk, ApiChannel())
        talk.gateway = Gateway(settings, provider=model, channels=channels, admit_everyone=True)
        return talk.gateway

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check the answers, the effects, and the sessions."""
        assert isinstance(platform, Outside)
        wrong = platform.late_repetitions()
        events = (*crash.ANSWERED, *(one for one in sum(_SPOKEN.values(), ()) if one[0] in "fgh"))
        for event in events:
            texts = {text for events, text in platform.delivered if event in events}
            if len(texts) != 1:
                wrong.append(f"{event} was answered by {texts}")
        wrong += [f"{one} was answered by {texts}" for one, texts in platform.answers.items()
                  if len(set(texts)) != 1]  # fmt: skip
        if platform.has_answered("e5"):
            wrong.append("the stopped message was answered")
        for key, said in _SPOKEN.items():
            wrong += faults_of_transcript(home, key, re.compile(r"^([efghk]\d)"), said)
        return [*wrong, *_wrong_effects(home), *_without_scope(home)]


def _wrong_effects(home: Path) -> list[str]:
    """Return the effects that happened twice, or that the conversation has and the files lack."""
    found = Counter((home / "workspace" / "effects.txt").read_text().split())
    for notes in (home / "workspace" / "memory").glob("2*.md"):
        found.update(notes.read_text().split())
    wrong = []
    for message in messages_of(home, "wire:1"):
        if message.role == "tool" and (effect := _EFFECTS.get(message.tool_call_id)):
            allowed = (0, 1) if _UNKNOWN in message.content else (1,)
            if found[effect] not in allowed:
                wrong.append(f"effect {effect} {found[effect]} times: {message.content}")
    return wrong


def _without_scope(home: Path) -> list[str]:
    """Return the sessions whose newest metadata have no scope."""
    wrong = []
    for path in (home / "sessions").glob("*.jsonl"):
        records = map(decode, path.read_bytes().splitlines())
        found = [one for one in records if isinstance(one, Metadata)]
        if not (found and (found[-1].metadata or {}).get("scope")):
            wrong.append(f"{path.name} has no scope")
    return wrong


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode, then two losses in a row, and random moments."""
    if not step:
        return {
            "at the planned stop": campaign.run_unharmed,
            "at a handful of calls": lambda: campaign.at(*_HANDFUL),
        }
    return {
        "at the planned stop": campaign.run_unharmed,
        **every_call(campaign, step, rng),
        "at random moments": lambda: campaign.at_random(max(300 // step, 10), rng, 1.0),
    }


if __name__ == "__main__":
    sys.exit(run("bench.crash_power", __doc__, Conversations(), plans, power=True))
