"""The fault campaign from a WhatsApp message to its answer: helper and gateway die at every step.

WhatsApp is the fake of the helper's own tests, in a process that is never killed. The helper is the
real one with the unmodified client, so everything is encrypted, and people read the answers with
their own keys. There is a private chat with a message that runs a tool with an effect, another that
joins its turn, a picture, a message that comes twice, an edit of a pending and of a running
message, commands, a new connection, a reply of several parts, and a file that is sent with the
message tool. There is also a group with mentions and a picture, a person whose number becomes known
later, and a stranger. These processes are killed with SIGKILL at the Nth write, fsync, rename and
send (before it, in the middle, after it), once more while they recover, and at random moments: the
helper, both at once at a step of the helper, and the gateway, with and without its helper. In other
runs the disk fails for the helper for a while. The other parts:

- 1,000 messages from 20 people have arrived while nothing ran.
- The connection is cut at a send, and there is none for up to a minute.
- 30 chats wait, and the model hangs for one.
- Messages are edited at each moment of their turns.
- A new session starts behind a pending message.

Then:

- every message is answered, in the order of its chat; every message confirmed to WhatsApp was in
  the helper's spool or in the journal whenever a process died,
- people see nothing twice: a message in flight at a kill comes again under the same id, which
  phones know,
- every effect happened at most once, conversations are complete, every message could be decrypted,
  the device is still linked, and no file was set aside as damaged.

    python -m bench.crash_whatsapp              every N, and 300 random moments (many hours)
    python -m bench.crash_whatsapp --every 20   a sample (about an hour)
    python -m bench.crash_whatsapp --short      a handful

It needs Node.js, and the helper built in place with its test dependencies (`npm ci; npm run
build`)."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from bench.common import load_once
from bench.faults import Campaign, Plans, Tally, every_call, run
from bench.helper_faults import HelperCampaign
from bench.injection import TORN
from bench.scenes import EDITED, RENEWED, crowd, edit_at_each_moment, renew_behind_a_message
from bench.scripted import GIVEN_UP, MARK, UntilOver, faults_of_chats, let_end
from bench.telegram_talk import LONG, HastyClock, Model
from bench.transcript import faults_of_transcript, files_of_transcript
from bench.whatsapp_side import People, Script, WhatsAppPlatform, faults_of_helper
from bench.whatsapp_talk import (
    FRIEND,
    GROUP,
    LIDS,
    NUMBERS,
    OWNER,
    STRANGER,
    converse,
    converse_briefly,
    prepare,
)
from bench.wire import Platform
from nanobot.app.gateway import Gateway
from nanobot.config.load import load_settings

_CONFIG = """
owner: {{whatsapp: ["{owner}"]}}
channels:
  whatsapp:
    enabled: true
    node: {node}
    groups: mention
    allow_groups: {{"{group}": ["*"]}}
    allow_from: {friends}
limits: {{messages_per_minute: 0}}
memory: {{window: 1000000}}
agent: {{shutdown_grace_seconds: 1}}
"""
_SPEED = 4
_AWAY = "the-model-is-away"
_ANYBODY = "person0"
_CROWD = [f"person{n}" for n in range(30)]
_UNAVAILABLE = 503
_OUTAGES = (3, 8, 60)
_LONG = 240.0
_HELPER_CALLS = 400
"""Approximate calls of the helper in a conversation."""
_MODULES = ("nanobot_whatsapp", "nanobot_whatsapp.linked.transport", "markdown_it")
_HANDFUL = ((50, TORN, True),)
_OWNER_KEY, _FRIEND_KEY = f"whatsapp:{NUMBERS[OWNER]}", f"whatsapp:{LIDS[FRIEND]}@lid"
_GROUP_KEY = f"whatsapp:{GROUP}"
_BRIEF = ["p1", "p2", "p3", "p4"]
_SPOKEN = (*_BRIEF, "p6", "x4", "p5", "x5", "p8", "p9", "p10")
"""The conversation's messages. A message edited while pending has the edited text."""


class GatewayScene:
    """Base of the scenarios."""

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the real adapter and the real helper."""
        assert isinstance(platform, WhatsAppPlatform)
        channel = UntilOver(link, platform)
        settings = load_settings(home, {})
        gateway = Gateway(
            settings,
            clock=HastyClock(_SPEED),
            provider=Model(home / _AWAY),
            channels=(channel,),
            chores=False,
        )
        return let_end(gateway, channel)


class Conversation(GatewayScene):
    """The first part. `together`: the helper dies with the gateway."""

    def __init__(self, *, together: bool = False, briefly: bool = False) -> None:
        self._together, self._briefly = together, briefly

    def furnish(self, home: Path) -> Platform:
        """Create WhatsApp and the files that the tools need."""
        (home / "workspace").mkdir()
        (home / "workspace" / "effects.txt").write_text("END\n")
        script = converse_briefly if self._briefly else converse
        return _create_platform(home, script, [f"{LIDS[FRIEND]}@lid"], together=self._together)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check that every message was answered once and in order, and each effect happened
        once."""
        assert isinstance(platform, WhatsAppPlatform)
        state = platform.state()
        wrong = _faults(home, platform)
        if self._briefly:
            wrong += faults_of_chats(platform, {OWNER: _BRIEF, GROUP: ["g1"]})
            wrong += faults_of_transcript(home, _OWNER_KEY, MARK, _BRIEF)
        else:
            wrong += self._faults_of_all(home, platform)
        notes = (home / "workspace" / "memory").glob("2*.md")
        effects = {
            "first": (home / "workspace" / "effects.txt").read_text(),
            "n1": "".join(path.read_text() for path in notes),
        }
        wrong += [f"{e} happened {n} times" for e, t in effects.items() if (n := t.count(e)) > 1]
        if told := state["texts"].get(STRANGER):
            wrong.append(f"the stranger was told {told}")
        return wrong

    def _faults_of_all(self, home: Path, platform: WhatsAppPlatform) -> list[str]:
        texts = platform.state()["texts"]
        transcript = (home / "sessions" / f"whatsapp_{NUMBERS[OWNER]}.jsonl").read_text()
        sent = "Sent to this chat" in transcript or any("effects.txt" in t for t in texts[OWNER])
        private = [*_BRIEF, "p6", "p5", "p8", *LONG, *(["f1"] if sent else []), "p9", "p10"]
        group, friend = ["g1", "g2", "g3"], ["b1", "b2", "b3"]
        wrong = [
            *faults_of_chats(platform, {OWNER: private, GROUP: group, FRIEND: friend}),
            *faults_of_transcript(home, _OWNER_KEY, MARK, _SPOKEN),
            *faults_of_transcript(home, _GROUP_KEY, MARK, group),
            *faults_of_transcript(home, _FRIEND_KEY, MARK, friend),
        ]
        files = {key: files_of_transcript(home, key) for key in (_OWNER_KEY, _GROUP_KEY)}
        given_up = any(GIVEN_UP in said for said in texts.values())
        if [len(set(names)) for names in files.values()] != [1, 1] and not given_up:
            wrong.append(f"the pictures that were kept are {files}")
        return wrong


class Scene(GatewayScene):
    """Another part, in which people follow `script`. In the end each chat of `wanted` holds these
    marks, once and in order. `together`: the helper dies with the gateway."""

    def __init__(
        self,
        script: Callable[[People, Path], Awaitable[None]],
        wanted: Mapping[str, Sequence[str]],
        *,
        before: Script | None = None,
        together: bool = True,
    ) -> None:
        self._script, self.wanted = script, wanted
        self._before, self._together = before or self._meet, together
        self.numbers = {key: str(15550100000 + n) for n, key in enumerate(wanted)}

    def furnish(self, home: Path) -> Platform:
        """Create WhatsApp with these people, who all have access."""
        friends = list(self.numbers.values())
        return _create_platform(
            home,
            lambda people: self._script(people, home),
            friends,
            self._before,
            together=self._together,
        )

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check that every message was answered once and in order."""
        assert isinstance(platform, WhatsAppPlatform)
        return [*_faults(home, platform), *faults_of_chats(platform, self.wanted)]

    async def _meet(self, people: People) -> None:
        for n, (key, number) in enumerate(self.numbers.items()):
            await people.meet(key, number, str(700000000 + n))
        await people.link()


class Backlog(Scene):
    """`count` messages of `persons` people that arrived while nothing ran."""

    def __init__(self, count: int, persons: int, *, together: bool = False) -> None:
        marks = [f"m{number}" for number in range(1, count // persons + 1)]
        wanted = {f"person{n}": marks for n in range(persons)}
        super().__init__(self._wait, wanted, before=self._write, together=together)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check in addition that every conversation holds each message once."""
        wrong = super().faults(home, platform)
        for key, number in self.numbers.items():
            wrong += faults_of_transcript(home, f"whatsapp:{number}", MARK, self.wanted[key])
        return wrong

    async def _write(self, people: People) -> None:
        await self._meet(people)
        for mark in self.wanted["person0"]:
            for key in self.wanted:
                await people.say(key, f"{mark}: a question")

    async def _wait(self, people: People, home: Path) -> None:
        async with asyncio.TaskGroup() as group:
            for key, marks in self.wanted.items():
                group.create_task(people.until_answered(key, marks[-1]))


def outage(seconds: float) -> Scene:
    """Return a scene in which the connection is cut at a send and unavailable for `seconds`.
    Nothing is killed, and nothing may be lost."""

    async def talk(people: People, home: Path) -> None:
        await people.say(_ANYBODY, "m1: before")
        await people.until_answered(_ANYBODY, "m1")
        await people.fake.do("refuse_logins", reasons=[_UNAVAILABLE] * 1_000)
        await people.fake.do("acks", mode="lost", times=1)
        await people.say(_ANYBODY, "m2: during")
        await asyncio.sleep(seconds)
        await people.fake.do("refuse_logins", reasons=[])
        await people.until_answered(_ANYBODY, "m2")
        await people.say(_ANYBODY, "m3: after")
        await people.until_answered(_ANYBODY, "m3")

    return Scene(talk, {_ANYBODY: ["m1", "m2", "m3"]})


HANGING = Scene(
    lambda people, home: crowd(people, _CROWD),
    {person: ["m1"] for person in _CROWD[1:]} | {_CROWD[0]: []},
)
"""Processes die while 30 chats wait, and the model hangs for one of them."""

EDITS = Scene(lambda people, home: edit_at_each_moment(people, _ANYBODY), {_ANYBODY: EDITED})
"""Each edit is answered with its message or known to the next turn."""

RENEWAL = Scene(
    lambda people, home: renew_behind_a_message(people, _ANYBODY, home / _AWAY),
    {_ANYBODY: RENEWED},
)
"""A message belongs to the session in which it was sent."""


def _create_platform(
    home: Path, script: Script, friends: list[str], before: Script = prepare, *, together: bool
) -> WhatsAppPlatform:
    load_once(*_MODULES)
    platform = WhatsAppPlatform(home, before, script, together=together)
    config = _CONFIG.format(
        owner=NUMBERS[OWNER], node=platform.node, group=GROUP, friends=json.dumps(friends)
    )
    (home / "config.yaml").write_text(config)
    return platform


def _faults(home: Path, platform: WhatsAppPlatform) -> list[str]:
    wrong = faults_of_helper(home)
    for chat, texts in platform.state()["texts"].items():
        twice = [text[:40] for text, n in Counter(texts).items() if n > 1 and text != GIVEN_UP]
        wrong += [f"{chat} sees twice: {text}" for text in twice]
    return wrong


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode for each victim, then random moments, a failing disk, and the
    other parts."""
    if not step:
        brief = HelperCampaign(Conversation(briefly=True), campaign.folder)
        return {"at a handful of calls": lambda: brief.in_one_conversation(*_HANDFUL)}
    helper = HelperCampaign(Conversation(), campaign.folder)
    both = HelperCampaign(Conversation(), campaign.folder, with_gateway=True)
    together = campaign.of(Conversation(together=True))
    moments = max(300 // step, 10)
    many = Backlog(1_000, 20)
    helpers = HelperCampaign(many, campaign.folder, patience=_LONG)
    gateways = campaign.of(Backlog(1_000, 20, together=True), patience=_LONG)

    def scene(what: Scene) -> Tally:
        return campaign.of(what).at_random(max(moments // 10, 5), rng, 3.0)

    return {
        **_name_plans("the helper", every_call(helper, step, rng)),
        **_name_plans("both at the helper's", every_call(both, 2 * step, rng)),
        **_name_plans("the gateway", every_call(campaign, 2 * step, rng)),
        **_name_plans("both at the gateway's", every_call(together, 2 * step, rng)),
        "the helper again and again": lambda: helper.again_and_again(max(step // 3, 1), 120),
        "the helper at random moments": lambda: helper.at_moments(moments, rng, 3.0),
        "both at random moments of the helper": lambda: both.at_moments(moments, rng, 3.0),
        "both at random moments of the gateway": lambda: together.at_random(moments, rng, 3.0),
        "the disk refuses the helper": lambda: helper.with_a_disk_that_refuses_it(
            moments, rng, _HELPER_CALLS
        ),
        "after 1,000 messages came meanwhile": lambda: helpers.at_moments(0, rng, 1.0),
        "the helper while they are answered": lambda: helpers.at_moments(moments // 2, rng, 6.0),
        "both while they are answered": lambda: gateways.at_random(moments // 2, rng, 6.0),
        **{
            f"while there is no network for {seconds} s": campaign.of(
                outage(seconds), _LONG
            ).run_unharmed
            for seconds in _OUTAGES
        },
        "beside a chat whose model hangs": lambda: scene(HANGING),
        "while messages are edited": lambda: scene(EDITS),
        "a new session behind a message": lambda: scene(RENEWAL),
    }


def _name_plans(victim: str, plans: Plans) -> Plans:
    return {f"{victim} {label}": plan for label, plan in plans.items()}


if __name__ == "__main__":
    sys.exit(run("bench.crash_whatsapp", __doc__, Conversation(), plans))
