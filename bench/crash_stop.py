"""The fault campaign for a stopped answer.

A model over real HTTP streams the beginning of a story and then nothing more. Once the person has
seen that text, they send `/stop`, and after its answer "go on". The gateway is killed with SIGKILL
at the Nth write, fsync, rename and send (before it, in the middle, after it), once more while it
recovers, and at random moments. After each kill a new process continues until the conversation is
over. If the journal of a killed process says that the turn was stopped, then

- the session has the text so far exactly once, followed by the note that the turn was stopped,
- the chat, whose draft has disappeared, got the text marked as stopped,
- the prompt of the next message contains both once,

and otherwise the turn ran again and was stopped then. No file is damaged, and only a message that
was being sent at a kill comes twice.

    python -m bench.crash_stop              every N, and 300 random moments (half an hour)
    python -m bench.crash_stop --every 10   a sample (minutes)
    python -m bench.crash_stop --short      the calls around the end of the stop
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bench import injection
from bench.common import load_once
from bench.faults import Campaign, Plans, every_call, run
from bench.injection import AFTER, BEFORE, TORN
from bench.transcript import faults_of_transcript, messages_of
from bench.wire import Platform, Wire
from nanobot.app.gateway import Gateway
from nanobot.bus.events import Progress, TextDelta, TurnStarted
from nanobot.channel import ChannelHost, Limits
from nanobot.config.load import load_settings
from nanobot.messages import TURN_STOPPED
from nanobot.providers.offline.model import OfflineModel
from tests.doubles.openai.answers import Answer, ChatRequest, Exchange, Step
from tests.doubles.openai.server import FakeOpenAI

STORY = "Once upon a time a boat lay at the shore. It was painted in the colour of the sea, and"
KEPT = f"{STORY}\n\n[stopped]"
_CONFIG = """
owner: {{wire: [someone]}}
model: {{base_url: "{url}", name: scripted}}
heartbeat: {{every: off}}
dream: {{enabled: false}}
"""
_NOTE = "(stopped)"  # as strict servers get it
_MODULES = ("aiohttp", "dulwich.objects", "httpcore2")
_HANDFUL = ((-24, TORN), (-16, AFTER), (-10, BEFORE), (-5, TORN), (-1, AFTER), (3, BEFORE))
"""Calls before and after the answer to `/stop`. The commit is a few calls before it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of an answer, which never ends."""

    text: str

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        frames = Answer(self.text).frames(exchange)
        response = await exchange.send([one for one in frames if b'"content"' in one])
        await exchange.closing.wait()
        return response


def answer(request: ChatRequest) -> Step:
    """Tell the story to e1, and how much of it is in the prompt to e3."""
    texts = [str(message["content"]) for message in request.messages]
    if "e3" not in texts[-1]:
        return Beginning(STORY)
    told, stopped = (sum(text.count(one) for text in texts) for one in (STORY, _NOTE))
    return Answer(f"the story came {told} times, and was stopped {stopped} times")


class ModelServer:
    """The model: a server in its own process, which ends with this one."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        if os.fork() == 0:
            self._link.close()
            self._serve(theirs)
        theirs.close()
        self.base_url = self._link.makefile().readline().strip()

    def _serve(self, link: socket.socket) -> None:
        """Run in the child. Does not return."""
        logging.disable()  # its clients are killed on purpose
        try:
            asyncio.run(self._answer(link))
        except BaseException:  # noqa: BLE001 - a child must never return
            traceback.print_exc()
        finally:
            os._exit(0)

    async def _answer(self, link: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=link)
        async with FakeOpenAI(answer) as server:
            writer.write(server.base_url.encode() + b"\n")
            await reader.read()


@dataclass
class Chat(Platform):
    """The chat. `shown`: the process under way has shown the whole text so far. `kept`: the process
    that stopped the turn had shown it (None: no process has). `stopped_at` is the call at which the
    answer to `/stop` was sent."""

    shown: bool = False
    kept: bool | None = None
    stopped_at: int = 0

    def hear(self, line: str) -> bool:
        if line.startswith('{"shown"'):
            self.shown = True
            return False
        if line.startswith('{"stopped_at"'):
            self.stopped_at = int(line.removeprefix('{"stopped_at": ').rstrip("}"))
            return False
        return super().hear(line)

    def look_at(self, home: Path) -> None:
        if self.kept is None and _state_of(home, "e1") == "stopped":
            self.kept = self.shown
        self.shown = False


def _state_of(home: Path, event: str) -> str:
    """Return the state of a message in a copy of the journal, because reading changes the files."""
    with tempfile.TemporaryDirectory() as folder:
        for file in (home / "state").glob("journal.db*"):
            if file.is_file():
                shutil.copy(file, folder)
        try:
            with closing(sqlite3.connect(Path(folder) / "journal.db")) as db:
                found = db.execute("SELECT state FROM inbox WHERE event_id = ?", (event,))
                return str(next(found, ("",))[0])
        except sqlite3.Error:
            return ""  # killed while it was made


class Talk(Wire):
    """The conversation, in a chat that shows drafts."""

    def __init__(self, link: socket.socket, platform: Platform) -> None:
        super().__init__(link, platform)
        self.limits = Limits(drafts=True)
        self._draft = ""

    async def talk(self, host: ChannelHost) -> None:
        answered = self.platform.has_answered
        await self.say(host, "e1", "e1 tell me a story")
        if "e2" not in self.platform.tried:
            await self.until(lambda: self._draft == STORY)
        await self.ask(host, "e2", "/stop")
        self._tell({"stopped_at": injection.calls()})
        await self.say(host, "e3", "e3 go on")
        await self.until(lambda: answered("e3"))

    async def show_progress(self, event: Progress) -> None:
        if isinstance(event, TurnStarted):
            self._draft = ""
        elif isinstance(event, TextDelta):
            self._draft = event.text if event.restart else self._draft + event.text
            if self._draft == STORY:
                self._tell({"shown": True})
            self.notify_waiters()


class Stopped:
    """The scenario of this campaign."""

    def __init__(self) -> None:
        self._model: ModelServer | None = None
        self.stopped_at = 0

    def furnish(self, home: Path) -> Platform:
        """Write the configuration."""
        if self._model is None:
            load_once(*_MODULES)
            self._model = ModelServer()
        (home / "config.yaml").write_text(_CONFIG.format(url=self._model.base_url))
        return Chat()

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with only this channel and the configured model."""
        channel = Talk(link, platform)
        settings = load_settings(home, {})
        gateway = Gateway(
            settings, learner=OfflineModel(), channels=(channel,), admit_everyone=True
        )
        channel.gateway = gateway
        return gateway

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check the session, the chat, and the next prompt."""
        assert isinstance(platform, Chat)
        self.stopped_at = platform.stopped_at
        told, sent = int(bool(platform.kept)), [text for _, text in platform.delivered]
        messages = messages_of(home, "wire:1")
        held = [at for at, one in enumerate(messages) if one.content == STORY]
        notes = [at for at, one in enumerate(messages) if one.notice == TURN_STOPPED]
        wrong = faults_of_transcript(home, "wire:1", re.compile(r"^(e\d)"), ("e1", "e3"))
        if platform.kept is None:
            wrong.append("the turn was not stopped")
        if len(notes) != 1 or [at + 1 for at in held] != notes[:told]:
            wrong.append(f"shown: {told}, stored at {held}, with its note at {notes}")
        if (KEPT in sent) != bool(told):
            wrong.append(f"shown: {told}, but the chat has {sent}")
        if f"the story came {told} times, and was stopped 1 times" not in sent:
            wrong.append(f"shown: {told}, but the next answer is {sent[-1:]}")
        return wrong


def plans(scenario: Stopped, campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode, then two kills in a row, and random moments. The short form
    kills at the calls around the answer to `/stop`."""

    def around_the_stop() -> Sequence[tuple[int, int]]:
        return [(scenario.stopped_at + after, mode) for after, mode in _HANDFUL]

    if not step:
        return {
            "unharmed": campaign.run_unharmed,
            "around the stop": lambda: campaign.at(*around_the_stop()),
        }
    return {
        "unharmed": campaign.run_unharmed,
        **every_call(campaign, step, rng),
        "at random moments": lambda: campaign.at_random(max(300 // step, 10), rng, 1.5),
    }


def main() -> int:
    """Run the command line."""
    scenario = Stopped()

    def of_scenario(campaign: Campaign, step: int, rng: random.Random) -> Plans:
        return plans(scenario, campaign, step, rng)

    return run("bench.crash_stop", __doc__, scenario, of_scenario)


if __name__ == "__main__":
    sys.exit(main())
