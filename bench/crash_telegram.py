"""The fault campaign from update to send: a gateway on Telegram is killed at every step.

Telegram is a `FakeTelegram` in its own process, which is never killed. The first part has a private
chat with a message that runs a tool with an effect, another that joins its turn, a photo, edits of
answered and unanswered messages, commands, a button, a reply of several parts, and a file that
is sent with the message tool. It also has a group with a streamed reply and an album, and a
stranger. The gateway, with the real adapter, is killed with SIGKILL at the Nth write, fsync, rename
and send (before it, in the middle, after it), once more while it recovers, and at random moments.
The other parts:

2. 1,000 messages from 20 chats have arrived while no gateway ran.
3. The network is down at a send.
4. 30 chats wait, and the model hangs for one.
5. Messages are edited at each moment of their turns.
6. A new session starts behind a pending message.
7. Telegram accepts messages without confirming them.

Then:

- every update is answered, in the order of its chat; every update confirmed to Telegram was in the
  journal whenever a process died; only a message over which three processes died is dropped,
- only a message in flight at a kill comes twice: of a reply in several parts no part before the
  first unconfirmed one,
- every effect happened at most once, conversations are complete, and Telegram rejected no request.

    python -m bench.crash_telegram              every N, and 300 random moments (hours)
    python -m bench.crash_telegram --every 20   a sample (some minutes)
    python -m bench.crash_telegram --short      a handful
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from bench.common import load_once
from bench.faults import Campaign, Plans, every_call, run
from bench.injection import AFTER, TORN
from bench.scenes import EDITED, RENEWED, crowd, edit_at_each_moment, renew_behind_a_message
from bench.scripted import GIVEN_UP, MARK, UntilOver, faults_of_chats, let_end
from bench.telegram_side import People, TelegramPlatform
from bench.telegram_talk import GROUP, LONG, OWNER, SPEED, STRANGER, HastyClock, Model, converse
from bench.transcript import faults_of_transcript, files_of_transcript
from bench.unconfirmed import SPEED as UNSURE_SPEED
from bench.unconfirmed import confirm_nothing, faults_of_copies
from bench.wire import Platform
from nanobot.app.gateway import Gateway
from nanobot.bus.events import Button, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from tests.doubles.telegram import TOKEN

_CONFIG = """
owner: {{telegram: ["{owner}"]}}
channels:
  telegram:
    enabled: true
    token: "{token}"
    base_url: {url}
    groups: mention
    allow_groups: {{"{group}": ["*"]}}
    allow_from: {friends}
memory: {{window: 1000000}}
agent: {{shutdown_grace_seconds: 1}}
limits: {{messages_per_minute: 0}}
"""
_SPOKEN = ("p1", "p2", "p3", "p4", "x4", "p5", "x5", "p7", "p8", "p9", "p10")
_MODULES = ("nanobot_telegram.channel", "aiohttp", "markdown_it")
_HANDFUL = ((430, TORN), (250, AFTER))
_ALWAYS = 1_000_000
_CROWD = range(201, 231)
_UNSURE = range(301, 305)
_OUTAGES = (3, 8, 60)
_AWAY = "the-model-is-away"


class Conversation:
    """The first part."""

    def furnish(self, home: Path) -> Platform:
        """Create Telegram, the files that the tools need, and an outgoing message with a button."""
        load_once(*_MODULES)
        platform = TelegramPlatform(converse)
        _configure(home, platform, [])
        (home / "workspace").mkdir()
        (home / "workspace" / "effects.txt").write_text("END\n")
        asyncio.run(_offer(home))
        return platform

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the real adapter."""
        return _gateway(home, link, platform)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check that every message was answered once and in order, and each effect happened
        once."""
        assert isinstance(platform, TelegramPlatform)
        state = platform.state()
        transcript = (home / "sessions" / f"telegram_{OWNER}.jsonl").read_text()
        texts = state["texts"].get(str(OWNER), [])
        sent = "Sent to this chat" in transcript or any("effects.txt" in text for text in texts)
        private = ["o1", "p1", "p2", "p3", "p4", "p5", "p7", "p8", *LONG]
        private += ["f1", "p9", "p10"] if sent else ["p9", "p10"]
        wrong = [
            *faults_of_chats(platform, {str(OWNER): private, str(GROUP): ["g1", "g2", "g3"]}),
            *faults_of_transcript(home, f"telegram:{OWNER}", MARK, _SPOKEN),
            *faults_of_transcript(home, f"telegram:{GROUP}", MARK, ("g1", "g2", "g3")),
        ]
        files = {key: files_of_transcript(home, f"telegram:{key}") for key in (OWNER, GROUP)}
        given_up = any(GIVEN_UP in texts for texts in state["texts"].values())
        if [len(set(names)) for names in files.values()] != [1, 3] and not given_up:
            wrong.append(f"the pictures that were kept are {files}")
        notes = (home / "workspace" / "memory").glob("2*.md")
        effects = {
            "first": (home / "workspace" / "effects.txt").read_text(),
            "n1": "".join(path.read_text() for path in notes),
        }
        told = set(state["texts"].get(str(STRANGER), []))
        if len(told) > 1 or "s1:" in transcript:
            wrong.append(f"the stranger was told {told}")
        wrong += [f"{e} happened {n} times" for e, t in effects.items() if (n := t.count(e)) > 1]
        return wrong


class Scene:
    """Another part, in which people follow `script`. In the end each chat of `wanted` holds these
    marks of the model's answers, once and in order."""

    def __init__(
        self,
        script: Callable[[People, Path], Awaitable[None]],
        wanted: Mapping[int, Sequence[str]],
    ) -> None:
        self._script, self.wanted = script, wanted

    def furnish(self, home: Path) -> Platform:
        """Create Telegram with these people, who all have access."""
        platform = TelegramPlatform(lambda people: self._script(people, home))
        _configure(home, platform, [str(person) for person in self.wanted])
        return platform

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the real adapter."""
        return _gateway(home, link, platform)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check that every message was answered once and in order."""
        assert isinstance(platform, TelegramPlatform)
        return list(faults_of_chats(platform, {str(c): m for c, m in self.wanted.items()}))


class Backlog(Scene):
    """The second part: `count` messages in `chats` chats that arrived while nothing ran."""

    def __init__(self, count: int, chats: int) -> None:
        marks = [f"m{number}" for number in range(1, count // chats + 1)]
        super().__init__(self._wait, dict.fromkeys(range(101, 101 + chats), marks))

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check in addition that every conversation holds each message once."""
        wrong = super().faults(home, platform)
        for person, marks in self.wanted.items():
            wrong += faults_of_transcript(home, f"telegram:{person}", MARK, marks)
        return wrong

    async def _wait(self, people: People, home: Path) -> None:
        for mark in self.wanted[101]:
            for person in self.wanted:
                people.say(person, f"{mark}: a question")
        for person, marks in self.wanted.items():
            await people.until_answered(person, marks[-1])


def outage(seconds: float) -> Scene:
    """Return the third part: at a send every connection is reset, and each new one for `seconds` of
    the gateway's clock. Nothing is killed, and nothing may be lost or come twice."""

    async def talk(people: People, home: Path) -> None:
        telegram = people.telegram
        people.say(OWNER, "m1: before")
        await people.until_answered(OWNER, "m1")
        telegram.cut("sendMessage", times=_ALWAYS)
        people.say(OWNER, "m2: during")
        sent = len(telegram.calls_of("sendMessage"))
        await telegram.wait_for(lambda: len(telegram.calls_of("sendMessage")) > sent, patience=None)
        for method in ("", "getUpdates"):
            telegram.cut(method, times=_ALWAYS)
        await asyncio.sleep(seconds / SPEED)
        telegram.heal()
        await people.until_answered(OWNER, "m2")
        people.say(OWNER, "m3: after")
        await people.until_answered(OWNER, "m3")

    return Scene(talk, {OWNER: ["m1", "m2", "m3"]})


HANGING = Scene(
    lambda people, _: crowd(people, _CROWD),
    {person: ["m1"] for person in _CROWD[1:]} | {_CROWD[0]: []},
)
"""The fourth part: processes die while 30 chats wait, and the model hangs for one of them. The
others must be answered normally."""

EDITS = Scene(lambda people, _: edit_at_each_moment(people, OWNER), {OWNER: EDITED})
"""The fifth part: each edit is answered with its message or known to the next turn."""


class Unconfirmed(Scene):
    """The seventh part: there is no third copy of a message that Telegram accepted without
    confirming."""

    def __init__(self) -> None:
        super().__init__(
            lambda people, _: confirm_nothing(people, _UNSURE), dict.fromkeys(_UNSURE, ())
        )

    def furnish(self, home: Path) -> Platform:
        """Return the platform, which fails by itself."""
        platform = super().furnish(home)
        platform.breaks = 2
        return platform

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the real adapter."""
        return _gateway(home, link, platform, speed=UNSURE_SPEED)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check the number of copies."""
        assert isinstance(platform, TelegramPlatform)
        state = platform.state()
        wrong = faults_of_copies(state["texts"], [str(person) for person in _UNSURE])
        return [*wrong, *state["violations"], *platform.lost]


RENEWAL = Scene(
    lambda people, home: renew_behind_a_message(people, OWNER, home / _AWAY), {OWNER: RENEWED}
)
"""The sixth part: a message belongs to the session in which it was sent."""


def _configure(home: Path, platform: TelegramPlatform, friends: list[str]) -> None:
    config = _CONFIG.format(
        owner=OWNER, token=TOKEN, url=platform.address, group=GROUP, friends=json.dumps(friends)
    )
    (home / "config.yaml").write_text(config)


async def _offer(home: Path) -> None:
    (home / "state").mkdir(mode=0o700)
    journal = SqliteJournal(home / "state" / "journal.db", SystemClock())
    button = Button("Yes", "p7: yes")
    message = OutboundMessage("telegram", str(OWNER), "o1 choose", buttons=(button,))
    await journal.open()
    await journal.add_outgoing("offer", Outgoing("reply", (message,)))
    await journal.close()


def _gateway(home: Path, link: socket.socket, platform: Platform, speed: float = SPEED) -> Gateway:
    assert isinstance(platform, TelegramPlatform)
    channel = UntilOver(link, platform)
    settings = load_settings(home, {})
    gateway = Gateway(
        settings,
        clock=HastyClock(speed),
        provider=Model(home / _AWAY),
        channels=(channel,),
        chores=False,
    )
    return let_end(gateway, channel)


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode, then two kills in a row, random moments, and the other
    parts."""
    if not step:
        few = campaign.of(Backlog(30, 5))
        return {
            "at a handful of calls": lambda: campaign.one_after_another(*_HANDFUL),
            "after 30 messages came meanwhile": lambda: few.at_random(1, rng, 0.6),
            "while connections are reset for 3 s": campaign.of(outage(3)).run_unharmed,
            "beside a chat whose model hangs": lambda: campaign.of(HANGING).at_random(1, rng, 1),
            "while messages are edited": lambda: campaign.of(EDITS).at_random(1, rng, 1),
            "a new session behind a message": lambda: campaign.of(RENEWAL).at_random(1, rng, 1),
            "while Telegram confirms nothing": campaign.of(Unconfirmed()).run_unharmed,
            "in between": lambda: campaign.of(Unconfirmed()).at_random(1, rng, 2),
        }
    moments = max(300 // step, 10)
    many = campaign.of(Backlog(1_000, 20), patience=120.0)
    return {
        **every_call(campaign, step, rng),
        "at random moments": lambda: campaign.at_random(moments, rng, 1.5),
        "after 1,000 messages came meanwhile": many.run_unharmed,
        "while they are answered": lambda: many.at_random(max(moments // 3, 5), rng, 5.0),
        **{
            f"while connections are reset for {seconds} s": campaign.of(
                outage(seconds)
            ).run_unharmed
            for seconds in _OUTAGES
        },
        "beside a chat whose model hangs": lambda: campaign.of(HANGING).at_random(
            max(moments // 10, 5), rng, 2.0
        ),
        "while messages are edited": lambda: campaign.of(EDITS).at_random(
            max(moments // 10, 5), rng, 2.0
        ),
        "a new session behind a message": lambda: campaign.of(RENEWAL).at_random(
            max(moments // 10, 5), rng, 2.0
        ),
        "while Telegram confirms nothing": campaign.of(Unconfirmed()).run_unharmed,
        "in between": lambda: campaign.of(Unconfirmed()).at_random(moments, rng, 4.0),
    }


if __name__ == "__main__":
    sys.exit(run("bench.crash_telegram", __doc__, Conversation(), plans))
