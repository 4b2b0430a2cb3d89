"""The fault campaign from a WhatsApp message to its answer: helper and gateway die at every step.

WhatsApp is the fake of the helper's own tests, in a process that no kill touches; the helper is the
real one with the unmodified client, so everything is encrypted, and people read the answers with
keys of their own. There is a private chat with a message that runs a tool with an effect, one that
joins its turn, a picture, a message that comes twice, an edit of what waits and of what is being
answered, commands, a new connection, a reply of several parts, and a file that is sent with the
message tool; a group with mentions and a picture; somebody whose number becomes known later; and a
stranger. Killed with SIGKILL at the Nth write, fsync, rename and send (before it, in the middle,
after it), once more while they recover, and at random moments are: the helper, both at once at a
step of the helper's, and the gateway, with and without its helper. In other runs the disk refuses
the helper for a while. In the last part 1,000 messages from 20 people have come while nothing ran.
Then:

- every message is answered, in the order of its chat; what was confirmed to WhatsApp was in the
  helper's spool or in the journal whenever a process died,
- nobody sees anything twice: what was on its way when a process died comes again under the same
  id, which phones know,
- every effect happened at most once, conversations are whole, every message could be decrypted,
  the device is still linked, and no file was set aside as damaged.

    python -m bench.crash_whatsapp              every N, and 300 random moments (many hours)
    python -m bench.crash_whatsapp --every 20   a sample (about an hour)
    python -m bench.crash_whatsapp --short      a handful

It needs Node.js, and the helper built in place with what its tests need (`npm ci; npm run build`).
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections import Counter
from pathlib import Path

from bench.common import load_once
from bench.faults import Campaign, Plans, every_call, run
from bench.helper_faults import HelperCampaign
from bench.injection import TORN
from bench.staged import GIVEN_UP, MARK, UntilOver, ended_by, faults_of_chats
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
from nanobot.app import build_gateway
from nanobot.config import load_settings
from nanobot.gateway.gateway import Gateway

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
"""
_SPEED = 4
_LONG = 240.0
_HELPER_CALLS = 400
"""About so many the helper makes in a conversation."""
_MODULES = ("nanobot_whatsapp.channel", "nanobot_whatsapp.linked.transport", "markdown_it")
_HANDFUL = ((50, TORN, True),)
_OWNER_KEY, _FRIEND_KEY = f"whatsapp:{NUMBERS[OWNER]}", f"whatsapp:{LIDS[FRIEND]}@lid"
_GROUP_KEY = f"whatsapp:{GROUP}"
_BRIEF = ["p1", "p2", "p3", "p4"]
_SPOKEN = (*_BRIEF, "p6", "x4", "p5", "x5", "p8", "p9", "p10")
"""As it stands in the conversation. What is edited while it waits stands there with its edit."""


class Gatewayed:
    """What the scenarios share."""

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """With the real adapter, and the real helper."""
        assert isinstance(platform, WhatsAppPlatform)
        channel = UntilOver(link, platform)
        settings = load_settings(home, {})
        gateway = build_gateway(
            settings,
            clock=HastyClock(_SPEED),
            provider=Model(),
            channels=(channel,),
            chores=False,
        )
        return ended_by(gateway, channel)


class Conversation(Gatewayed):
    """The first part. `together`: where the gateway dies its helper does as well."""

    def __init__(self, *, together: bool = False, briefly: bool = False) -> None:
        self._together, self._briefly = together, briefly

    def furnish(self, home: Path) -> Platform:
        """WhatsApp, and what the tools need."""
        (home / "workspace").mkdir()
        (home / "workspace" / "effects.txt").write_text("END\n")
        script = converse_briefly if self._briefly else converse
        return _furnished(home, script, [f"{LIDS[FRIEND]}@lid"], together=self._together)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Whether all was answered, once and in order, and each effect happened once."""
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


class Backlog(Gatewayed):
    """The last part: `count` messages of `persons` people that came while nothing ran."""

    def __init__(self, count: int, persons: int, *, together: bool = False) -> None:
        self._people = {f"person{n}": str(15550100000 + n) for n in range(persons)}
        self._marks = [f"m{number}" for number in range(1, count // persons + 1)]
        self._together = together

    def furnish(self, home: Path) -> Platform:
        """WhatsApp, with all of them waiting."""
        friends = list(self._people.values())
        return _furnished(home, self._wait, friends, self._write, together=self._together)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Whether all were answered, once and in order."""
        assert isinstance(platform, WhatsAppPlatform)
        wrong = _faults(home, platform)
        wrong += faults_of_chats(platform, dict.fromkeys(self._people, self._marks))
        for number in self._people.values():
            wrong += faults_of_transcript(home, f"whatsapp:{number}", MARK, self._marks)
        return wrong

    async def _write(self, people: People) -> None:
        for n, (key, number) in enumerate(self._people.items()):
            await people.meet(key, number, str(700000000 + n))
        await people.link()
        for mark in self._marks:
            for key in self._people:
                await people.say(key, f"{mark}: a question")

    async def _wait(self, people: People) -> None:
        async with asyncio.TaskGroup() as group:
            for key in self._people:
                group.create_task(people.until_answered(key, self._marks[-1]))


def _furnished(
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
    """Every call in every way for each of the victims, then random moments, a disk that refuses,
    and what came meanwhile."""
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
    return {
        **_named("the helper", every_call(helper, step, rng)),
        **_named("both at the helper's", every_call(both, 2 * step, rng)),
        **_named("the gateway", every_call(campaign, 2 * step, rng)),
        **_named("both at the gateway's", every_call(together, 2 * step, rng)),
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
    }


def _named(victim: str, plans: Plans) -> Plans:
    return {f"{victim} {label}": plan for label, plan in plans.items()}


if __name__ == "__main__":
    sys.exit(run("bench.crash_whatsapp", __doc__, Conversation(), plans))
