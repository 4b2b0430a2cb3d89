"""WhatsApp in a fault campaign: a fake with its people, and the helper that is killed on the way to
it. The fake runs in its own processes."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

from bench.scripted import GIVEN_UP, ScriptedPlatform, inbox_of, marks_of
from bench.whatsapp_network import TRUST, Network, network

_SCRIPT = """#!/bin/sh
[ "$1" = --version ] && exec node --version
for plan in {home}/plan-*; do
  [ -f "$plan" ] || break
  read -r CRASH_AT < "$plan"
  mv "$plan" {home}/used-"${{plan##*-}}"
  export CRASH_AT CRASH_MARK={home}/died-"${{plan##*-}}" LD_PRELOAD={library}
  break
done
NANOBOT_FAKE_WHATSAPP='{trust}' exec node --import {preload} "$@"
"""
"""Replaces `node`. The next helper that it starts dies according to the first plan."""


class State(TypedDict):
    """The state of the fake. `said`: ids of messages for the inbox. `confirmed`: ids confirmed to
    WhatsApp. `texts`: the visible messages of each chat. `again`: number of messages repeated under
    their ids, which phones do not show."""

    said: list[str]
    confirmed: list[str]
    texts: dict[str, list[str]]
    again: dict[str, int]
    violations: list[str]


class People:
    """Implements `scripted.ScriptedPeople` and plays `script`. The id of a private chat is the
    person's key, that of a group its JID."""

    def __init__(self, fake: Network, folder: Path, script: Script) -> None:
        self.fake, self._folder, self._script = fake, folder, script
        self.address = fake.trust
        self._people: dict[str, str] = {}
        self._state = State(said=[], confirmed=[], texts={}, again={}, violations=[])
        self._given_up: Counter[str] = Counter()
        fake.heard = self._hear

    async def perform(self) -> None:
        """See `ScriptedPeople`."""
        await self._script(self)

    def state(self) -> State:
        return self._state

    async def meet(self, key: str, number: str, lid: str) -> None:
        """Add a person to the network."""
        await self.fake.do("person", key=key, number=number, lid=lid, name=key.title())
        self._people |= {f"{number}@s.whatsapp.net": key, f"{lid}@lid": key}

    async def link(self) -> None:
        """Link the helper's folder to the account as a device."""
        await self.fake.do("seed", folder=str(self._folder))

    async def say(self, who: str, text: str, *, heard: bool = True, **more: object) -> str:
        """Send a person's message and return its id. `heard`: it is for the inbox. `more` are
        options of the fake's `say`."""
        answer = await self.fake.do("say", **{"from": who, "text": text, **more})
        message: str = answer["message"]
        if heard:
            self._state["said"].append(message)
        return message

    async def write(self, chat: str, text: str) -> str:
        """See `bench.scenes.Talk`."""
        return await self.say(chat, text)

    async def correct(self, chat: str, message: object, text: str) -> None:
        """See `bench.scenes.Talk`."""
        await self.say(chat, text, edit=message)

    async def until_told(self, chat: str, text: str) -> None:
        """See `bench.scenes.Talk`."""
        await self.fake.until(lambda: any(text in t for t in self.texts(chat)))

    def texts(self, chat: str) -> Sequence[str]:
        """Return the messages in a chat."""
        return self._state["texts"].get(chat, [])

    async def until_answered(self, chat: str, mark: str) -> None:
        """Wait until the newest message in a chat has this mark, or reports that it was dropped."""

        known = self._given_up[chat]

        def is_answered() -> bool:
            texts = self.texts(chat)
            given_up = texts.count(GIVEN_UP) > known
            return given_up or (bool(texts) and mark in marks_of(texts[-1]))

        await self.fake.until(is_answered)
        self._given_up[chat] = self.texts(chat).count(GIVEN_UP)

    def _hear(self, event: dict[str, Any]) -> None:
        state = self._state
        match event["event"]:
            case "confirmed":
                state["confirmed"].append(event["id"])
            case "received":
                self._take_received(event)
            case "violation":
                state["violations"].append(event["text"])
            case "unreadable" | "refused":
                state["violations"].append(json.dumps(event))

    def _take_received(self, event: dict[str, Any]) -> None:
        chat = self._people.get(event["to"], event["to"])
        file = f" [{event['media']['name']}]" if event.get("media") else ""
        if any(key != "me" for key in event["by"]):
            self._state["texts"].setdefault(chat, []).append(event["text"] + file)
        else:
            again = self._state["again"]
            again[chat] = again.get(chat, 0) + 1


Script = Callable[[People], Awaitable[None]]
"""Plays the people and returns when they have received everything that they wait for."""


class WhatsAppPlatform(ScriptedPlatform):
    """A fake WhatsApp that plays `script` and to which the home's helper is linked. `prepare` runs
    before there is a gateway. `together`: the helper dies with the gateway."""

    def __init__(
        self, home: Path, prepare: Script, script: Script, *, together: bool = False
    ) -> None:
        self._home, self._prepare, self._script = home, prepare, script
        self._together = together
        folder_of(home).mkdir(parents=True, mode=0o700)
        super().__init__()
        self.breaks = 1
        self.node = home / "node"
        self.node.write_text(
            _SCRIPT.format(
                home=home,
                trust=self.address,
                preload=TRUST,
                library=os.environ.get("LD_PRELOAD", ""),
            )
        )
        self.node.chmod(stat.S_IRWXU)

    @asynccontextmanager
    async def cast(self) -> AsyncIterator[People]:
        """See `ScriptedPlatform`."""
        async with network() as fake:
            people = People(fake, folder_of(self._home), self._script)
            await self._prepare(people)
            yield people

    def state(self) -> State:
        state: State = super().state()
        return state

    def count_repetitions(self) -> list[int]:
        """See `Platform`."""
        return list(self.state()["again"].values())

    def look_at(self, home: Path) -> None:
        """Check that every message confirmed to WhatsApp is in the spool or in the inbox. Messages
        move from the one to the other, so they are read in that order."""
        self.ended += 1
        if self._together:
            kill_helper(home)
        state = self.state()
        confirmed = set(state["confirmed"]).intersection(state["said"])
        spooled = spool_of(home)
        stored = {event.rpartition(":")[2] for _, event in inbox_of(home, "whatsapp")}
        if missing := confirmed - spooled - stored:
            self.lost.append(f"confirmed, and neither spooled nor stored: {sorted(missing)}")

    def close(self) -> None:
        """See `Platform`. Also ends a helper that was left behind."""
        kill_helper(self._home)
        super().close()


def folder_of(home: Path) -> Path:
    """Return the folder of the adapter and its helper."""
    return home / "state" / "channels" / "whatsapp"


def spool_of(home: Path) -> set[str]:
    """Return the ids of the messages in the spool. The helper may run."""
    ids = set()
    for path in folder_of(home).glob("spool/*.json"):
        with suppress(FileNotFoundError):
            ids.add(json.loads(path.read_bytes())["id"])
    return ids


def kill_helper(home: Path) -> None:
    """Kill the home's helper, if one is alive."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int((folder_of(home) / "helper.lock").read_text())
        if str(TRUST).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def plan(home: Path, calls: Iterable[tuple[int, int, bool]]) -> None:
    """Let the next helpers die at these calls, each at one. A call has its mode, and whether the
    gateway that started it dies as well."""
    for number, (n, mode, with_gateway) in enumerate(calls, 1):
        (home / f"plan-{number}").write_text(f"{n} {mode} {int(with_gateway)}\n")


def count_deaths(home: Path) -> int:
    """Return the number of helpers that died as planned."""
    return len(list(home.glob("died-*")))


def faults_of_helper(home: Path) -> list[str]:
    """Return the faults in the files of the helper and of the adapter."""
    folder = folder_of(home)
    names = [path.relative_to(folder) for path in folder.rglob("*")]
    wrong = [f"{name} was set aside" for name in names if _is_aside(name.name)]
    credentials = folder / "auth" / "creds.json"
    logs = (folder / "auth" / "keys.jsonl", folder / "sent.jsonl")
    try:
        linked = json.loads(credentials.read_bytes()).get("account")
        for line in (line for log in logs for line in log.read_bytes().split(b"\n")[:-1]):
            json.loads(line)
        spool_of(home)
    except ValueError as error:
        return [*wrong, f"unreadable: {error}"]
    return wrong if linked else [*wrong, "the device is linked no more"]


def _is_aside(name: str) -> bool:
    words = (".corrupt-", ".logged-out-", ".damaged", "unread.")
    return any(word in name for word in words)
