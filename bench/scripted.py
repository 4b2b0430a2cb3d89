"""The platform of a fault campaign, used by scripted people in a separate process.

It is never killed. nanobot's processes come and go on the other side of the network. When the last
event has happened that the people wait for, a pipe notifies the running process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import tempfile
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from bench.wire import Platform, Wire
from nanobot.agent.notifier import GAVE_UP
from nanobot.app.gateway import Gateway
from nanobot.bus.journal import GIVE_UP_AFTER
from nanobot.channel import ChannelHost

MARK = re.compile(r"\b([a-z]+\d+)\b")
"""The marks of messages and of their answers: `p1`, `g2`."""

GIVEN_UP = GAVE_UP.format(GIVE_UP_AFTER)
"""The notice about a message over which that many processes have died."""


class ScriptedPeople(Protocol):
    """The people. `address` is the address of their platform."""

    address: str

    async def perform(self) -> None:
        """Play the script. Return when they have received everything that they wait for."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Return the state of the platform, for JSON. `texts`: the final messages in each chat.
        `violations`: requests that the platform rejects."""
        ...


class ScriptedPlatform(Platform):
    """Base of the platforms. `address` is the address of the fake."""

    def __init__(self) -> None:
        super().__init__()
        self.over, tells = os.pipe()
        self._link, theirs = socket.socketpair()
        self.lost: list[str] = []
        self.ended = 0
        self._process = os.fork()
        if self._process == 0:
            self._link.close()
            _be(self.cast, theirs, tells)
        theirs.close()
        os.close(tells)
        self._lines = self._link.makefile("rw")
        self.address = self._lines.readline().strip()

    @abstractmethod
    def cast(self) -> AbstractAsyncContextManager[ScriptedPeople]:
        """Run the fake and its people. Called in their process."""

    def state(self) -> Any:
        """Return the state of the fake."""
        self._lines.write("?\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def close(self) -> None:
        """See `Platform`."""
        self._lines.close()
        self._link.close()
        os.close(self.over)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


class UntilOver(Wire):
    """A silent channel, which ends the gateway when the people are done."""

    def __init__(self, link: socket.socket, platform: ScriptedPlatform) -> None:
        super().__init__(link, platform)
        self._pipe = platform.over

    async def talk(self, host: ChannelHost) -> None:
        """Wait for the people."""
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, over.set)
        await over.wait()
        loop.remove_reader(self._pipe)


def let_end(gateway: Gateway, channel: Wire) -> Gateway:
    """Return the gateway, which `channel` may stop."""
    channel.gateway = gateway
    return gateway


def marks_of(text: str) -> list[str]:
    """Return the marks in a text, in order."""
    return MARK.findall(text)


def answers(texts: Sequence[str]) -> list[str]:
    """Return the marks in a chat in order, without immediate repetitions."""
    return [mark for text, _ in groupby(texts) for mark in marks_of(text)]


def faults_of_chats(
    platform: ScriptedPlatform, wanted: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Check that every chat holds exactly these marks in this order, except dropped messages."""
    state = platform.state()
    for chat, marks in wanted.items():
        texts = state["texts"].get(chat, [])
        found = answers(texts)
        left = [mark for mark in marks if mark in found]
        if found != (left if GIVEN_UP in texts else list(marks)):
            yield f"chat {chat} has {found}"
        if GIVEN_UP in texts and platform.ended <= GIVE_UP_AFTER:
            yield f"chat {chat} was given up too early"
    if state["violations"]:
        yield f"the platform was asked what it refuses: {state['violations']}"
    yield from platform.lost


def inbox_of(home: Path, channel: str) -> set[tuple[str, str]]:
    """Return chat and event of each message in the inbox of a home without a running gateway. A
    copy is read, because opening a journal repairs it, and the next process has to do that."""
    with tempfile.TemporaryDirectory() as name:
        for path in (home / "state").glob("journal.db*"):
            shutil.copy(path, name)
        with closing(sqlite3.connect(Path(name) / "journal.db")) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'inbox'").fetchone():
                return set()
            rows = db.execute("SELECT chat_id, event_id FROM inbox WHERE channel = ?", (channel,))
            return {(chat, event) for chat, event in rows}


def _be(
    cast: Callable[[], AbstractAsyncContextManager[ScriptedPeople]], link: socket.socket, tells: int
) -> None:
    """Run in the child. Does not return."""
    try:
        asyncio.run(_serve(cast, link, tells))
    except BaseException:  # noqa: BLE001 - a child must never return
        traceback.print_exc()
    finally:
        os._exit(0)


async def _serve(
    cast: Callable[[], AbstractAsyncContextManager[ScriptedPeople]], link: socket.socket, tells: int
) -> None:
    reader, writer = await asyncio.open_connection(sock=link)
    async with cast() as people, asyncio.TaskGroup() as group:
        performing = group.create_task(_perform(people, tells))
        writer.write(people.address.encode() + b"\n")
        while await reader.readline():
            writer.write(json.dumps(people.state()).encode() + b"\n")
        performing.cancel()


async def _perform(people: ScriptedPeople, tells: int) -> None:
    await people.perform()
    os.write(tells, b".")
