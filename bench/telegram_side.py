"""Telegram's side of a fault campaign: a `FakeTelegram` in a process of its own, with its people.

No kill touches it. Processes of nanobot come and go on the other side of the network; when the last
thing has happened that the people wait for, a pipe tells whichever of them lives then.
"""

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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TypedDict

from bench.wire import Platform, Wire
from nanobot.agent.outcomes import GAVE_UP
from nanobot.bus.journal import GIVE_UP_AFTER
from nanobot.channel import ChannelHost
from nanobot.gateway.gateway import Gateway
from nanobot.testing.telegram import FakeTelegram

MARK = re.compile(r"\b([a-z]+\d+)\b")
"""What people say and what is answered are told apart by these: `p1`, `g2`."""


GIVEN_UP = GAVE_UP.format(GIVE_UP_AFTER)
"""What is said about a message over which that many processes have died."""

_EDIT = re.compile(r":e.*$")


class State(TypedDict):
    """What the fake knows. `said` gives the key in the inbox of each update that must be there;
    `texts` what stands in each chat for good, `shown` how many previews do."""

    confirmed: int
    said: dict[int, tuple[str, str]]
    texts: dict[str, list[str]]
    shown: dict[str, int]
    violations: list[str]


class People:
    """Says things, and knows which updates came of it."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self.telegram = telegram
        self.said: dict[int, tuple[str, str]] = {}
        self._given_up: dict[int, int] = {}

    def note(self, chat: int, events: Iterable[object]) -> None:
        """These events were the last ones, and are for the inbox."""
        keys = [(str(chat), str(event)) for event in events]
        first = self.telegram.last_update - len(keys) + 1
        self.said |= dict(enumerate(keys, first))

    def say(self, chat: int, text: str, user: int = 0) -> int:
        """A message for nanobot; its id."""
        message = self.telegram.say(text, user=user or chat, chat=chat)
        self.note(chat, [message])
        return message

    async def until_answered(self, chat: int, mark: str) -> None:
        """Wait until the newest message in a chat has this mark, or says that it will get none."""

        known = self._given_up.get(chat, 0)

        def is_answered() -> bool:
            return mark in marks_of(self._newest(chat)) or self._excuses(chat) > known

        await self.telegram.wait_for(is_answered, patience=None)
        self._given_up[chat] = self._excuses(chat)

    def _excuses(self, chat: int) -> int:
        return self.telegram.texts(chat).count(GIVEN_UP)

    def _newest(self, chat: int) -> str:
        lasting = [sent.text for sent in self.telegram.messages(chat) if not sent.silent]
        return lasting[-1] if lasting else ""

    def state(self) -> State:
        """See the class."""
        texts: dict[str, list[str]] = {}
        shown: dict[str, int] = {}
        for sent in self.telegram.messages(None):
            chat = str(sent.chat_id)
            if sent.silent:  # how a preview differs from a reply
                shown[chat] = shown.get(chat, 0) + 1
                continue
            file = f" [{sent.file.name}]" if sent.file else ""
            texts.setdefault(chat, []).append(sent.text + file)
        confirmed = self.telegram.confirmed or 0
        violations = [str(one) for one in self.telegram.violations]
        return State(
            confirmed=confirmed, said=self.said, texts=texts, shown=shown, violations=violations
        )


Script = Callable[[People], Awaitable[None]]
"""What the people do; it returns when they have all that they waited for."""


class TelegramPlatform(Platform):
    """A fake Telegram where `script` is played. `base_url` is where it is."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.over, tells = os.pipe()
        self._link, theirs = socket.socketpair()
        self.lost: list[str] = []
        self.ended = 0
        self._process = os.fork()
        if self._process == 0:
            self._link.close()
            _be_telegram(script, theirs, tells)
        theirs.close()
        os.close(tells)
        self._lines = self._link.makefile("rw")
        self.base_url = self._lines.readline().strip()

    def state(self) -> State:
        """What the fake knows now."""
        self._lines.write("?\n")
        self._lines.flush()
        state: State = json.loads(self._lines.readline())
        state["said"] = {int(update): (c, e) for update, (c, e) in state["said"].items()}
        return state

    def repeated(self) -> list[int]:
        """See `Platform`: what was on its way comes again right behind itself, or it is a preview
        whose id nobody knows any more, and stays."""
        state = self.state()
        by_chat = {c: len(said) - len(list(groupby(said))) for c, said in state["texts"].items()}
        for chat, standing in state["shown"].items():
            by_chat[chat] = by_chat.get(chat, 0) + standing
        return list(by_chat.values())

    def look_at(self, home: Path) -> None:
        """What was confirmed to Telegram must be in the inbox when a process has died."""
        self.ended += 1
        state = self.state()
        confirmed = {key for n, key in state["said"].items() if n < state["confirmed"]}
        if missing := confirmed - _inbox(home):
            self.lost.append(f"confirmed and not in the journal: {sorted(missing)}")

    def close(self) -> None:
        """See `Platform`."""
        self._lines.close()
        self._link.close()
        os.close(self.over)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


class UntilOver(Wire):
    """A channel that nobody talks on: it ends the gateway when the people have all they want."""

    def __init__(self, link: socket.socket, platform: TelegramPlatform) -> None:
        super().__init__(link, platform)
        self._pipe = platform.over

    async def talk(self, host: ChannelHost) -> None:
        """Wait for the people."""
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, over.set)
        await over.wait()
        loop.remove_reader(self._pipe)


def ended_by(gateway: Gateway, channel: Wire) -> Gateway:
    """The gateway, which `channel` may stop."""
    channel.gateway = gateway
    return gateway


def marks_of(text: str) -> list[str]:
    """The marks in a text, in order."""
    return MARK.findall(text)


def answers(texts: Sequence[str]) -> list[str]:
    """The marks in a chat, in order, where what came twice in a row came once."""
    return [mark for text, _ in groupby(texts) for mark in marks_of(text)]


def faults_of_chats(
    platform: TelegramPlatform, wanted: Mapping[int, Sequence[str]]
) -> Iterator[str]:
    """Every chat must hold exactly these marks, in this order, but for what was given up."""
    state = platform.state()
    for chat, marks in wanted.items():
        texts = state["texts"].get(str(chat), [])
        found = answers(texts)
        left = [mark for mark in marks if mark in found]
        if found != (left if GIVEN_UP in texts else list(marks)):
            yield f"chat {chat} has {found}"
        if GIVEN_UP in texts and platform.ended <= GIVE_UP_AFTER:
            yield f"chat {chat} was given up too early"
    if state["violations"]:
        yield f"Telegram was asked what it refuses: {state['violations']}"
    yield from platform.lost


def _be_telegram(script: Script, link: socket.socket, tells: int) -> None:
    """The child: does not return."""
    try:
        asyncio.run(_serve(script, link, tells))
    except BaseException:  # noqa: BLE001 - a child must never return
        traceback.print_exc()
    finally:
        os._exit(0)


async def _serve(script: Script, link: socket.socket, tells: int) -> None:
    reader, writer = await asyncio.open_connection(sock=link)
    async with FakeTelegram() as telegram, asyncio.TaskGroup() as group:
        people = People(telegram)
        playing = group.create_task(_play(script, people, tells))
        writer.write(telegram.base_url.encode() + b"\n")
        while await reader.readline():
            writer.write(json.dumps(people.state()).encode() + b"\n")
        playing.cancel()


async def _play(script: Script, people: People, tells: int) -> None:
    await script(people)
    os.write(tells, b".")


def _inbox(home: Path) -> set[tuple[str, str]]:
    """The keys of the inbox of a home in which nothing runs. A copy is read: looking at a journal
    mends it, and that is the next process's part."""
    with tempfile.TemporaryDirectory() as name:
        for path in (home / "state").glob("journal.db*"):
            shutil.copy(path, name)
        with closing(sqlite3.connect(Path(name) / "journal.db")) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'inbox'").fetchone():
                return set()
            rows = db.execute("SELECT chat_id, event_id FROM inbox WHERE channel = 'telegram'")
            return {(chat, _EDIT.sub(":e", event)) for chat, event in rows}
