"""WhatsApp as a separate process, from the helper's own tests.

It is controlled over its standard input and output. See `bridge/test/fake/README.md` for its
commands. The helper is the real one, run by a `node` that makes it trust this WhatsApp."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from nanobot.clock import Clock
from nanobot_whatsapp.linked.install import SOURCES
from tests.channels.whatsapp.linked.programs import program

PATIENCE = 30.0
"""Real seconds after which a hanging test fails."""

NUMBER, LID = "15550001111", "999000111"
"""The linked account."""
ME, ME_LID = f"{NUMBER}@s.whatsapp.net", f"{LID}@lid"
GROUP = "120363000000000001@g.us"

_PEOPLE = (
    ("ann", "15557770000", "888000111", "Ann"),
    ("bob", "4915550001", "777000111", "Bob"),
    ("lou", "15556660000", "666000111", "Lou"),
    ("eve", "15555550000", "555000111", "Eve"),
)
_LONGEST_LINE = 4 * 1024 * 1024

Happening = Mapping[str, Any]


class FakeWhatsApp:
    """A WhatsApp with Ann, Bob, Lou, Eve, and a group of Ann and Bob. `happened` has all events
    since `begin`, in order."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[Happening]] = {}
        self._changed = asyncio.Event()
        self._clock: Clock | None = None
        self._reading = asyncio.create_task(self._read())
        self.trust = ""
        self.happened: list[Happening] = []

    @classmethod
    async def start(cls, node: Path) -> FakeWhatsApp:
        """Start a fake. `stop` ends it."""
        main = SOURCES / "test" / "fake" / "main.mjs"
        process = await asyncio.create_subprocess_exec(
            node, main, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE
        )
        fake = cls(process)
        fake.trust = str((await fake.until("ready"))["trust"])
        for key, number, lid, name in _PEOPLE:
            await fake.do("person", key=key, number=number, lid=lid, name=name)
        await fake.do("group", group=GROUP, subject="Friends", members=["ann", "bob"])
        return fake

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def begin(self, clock: Clock) -> None:
        """Forget the events of other tests. Messages are dated by `clock`."""
        self._clock = clock
        await self.do("acks", mode="ok")
        self.happened.clear()

    def node(self, path: Path, node: Path) -> Path:
        """Create a `node` at `path` for the setting of that name. Its helpers connect to this
        fake."""
        preload = SOURCES / "test" / "trust.mjs"
        script = f"NANOBOT_FAKE_WHATSAPP='{self.trust}' exec '{node}' --import '{preload}' \"$@\""
        return program(path, script)

    async def do(self, command: str, **fields: object) -> Happening:
        """Run one of its commands, and return the answer."""
        number = next(self._ids)
        answer: asyncio.Future[Happening] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        assert self._process.stdin is not None
        line = json.dumps({"id": number, "do": command, **fields})
        self._process.stdin.write(line.encode() + b"\n")
        done = await answer
        assert done["ok"], done.get("error")
        return done

    async def say(self, sender: str, text: str, **more: object) -> str:
        """Send a message to the account, or to a `group`, and return its id."""
        assert self._clock is not None
        told = {"from": sender, "text": text, "at": int(self._clock.now().timestamp()), **more}
        return str((await self.do("say", **told))["message"])

    async def until(self, event: str, **where: object) -> Happening:
        """Wait for the first event of this kind with these fields."""
        return (await self.times(1, event, **where))[0]

    async def times(self, number: int, event: str, **where: object) -> Sequence[Happening]:
        """Wait for `number` events of this kind with these fields."""
        async with asyncio.timeout(PATIENCE):
            while len(found := self.all(event, **where)) < number:
                await self._change()
        return found

    def all(self, event: str, **where: object) -> Sequence[Happening]:
        """Return all events of this kind with these fields."""
        wanted = {"event": event, **where}
        return [one for one in self.happened if wanted.items() <= one.items()]

    async def receive(self, reader: str, number: int, to: str = "") -> Sequence[Happening]:
        """Wait until a person has `number` messages, and return them. `to` is the chat, by default
        all.

        A phone shows a message once, and so does this."""
        async with asyncio.timeout(PATIENCE):
            while len(found := self.read_by(reader, to)) < number:
                await self._change()
        return found

    def read_by(self, reader: str, to: str = "") -> Sequence[Happening]:
        """Return the messages that a person has received."""
        return [one for one in self.all("received") if reader in one["by"] and to in one["to"]]

    async def texts(self, reader: str, number: int, to: str = "") -> Sequence[str]:
        """Wait for messages like `receive`, and return their texts."""
        return [str(one["text"]) for one in await self.receive(reader, number, to)]

    @property
    def violations(self) -> Sequence[str]:
        """Return the client's violations of the protocol."""
        return [str(one["text"]) for one in self.all("violation")]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "event" in said:
                self.happened.append(said)
                self._changed.set()
            else:
                self._answers.pop(said["id"]).set_result(said)
