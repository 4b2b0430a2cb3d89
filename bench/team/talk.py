"""The people of the campaign, on Telegram, on WhatsApp and through the API, and their received
messages.

A chat's messages are called `m1`, `m2`, …. They come in bursts: some are sent without waiting for
the previous answers. Some ask for effects, some of which the owner has to approve, and
some bring a file. Times are of `time.monotonic`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from bench.scripted import GIVEN_UP
from bench.team.model import MARK
from tests.doubles.graph import FakeGraphAPI
from tests.doubles.telegram import FakeTelegram

_MOST_IN_A_BURST = 4
_API_PATIENCE = 6.0
"""Seconds after which a program repeats its request."""
_SENDS = frozenset({"sendMessage", "sendRichMessage"})


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message of the bot in a chat, and the time of its request."""

    at: float
    text: str
    marks: tuple[str, ...]


@dataclass(eq=False)
class Chat:
    """One chat. `session` is the key of its conversation. `wishes` are the marks of messages that
    ask for effects, and how. `files` are the marks of messages with a file."""

    name: str
    session: str
    person: str
    count: int
    sent: dict[str, float] = field(default_factory=dict)
    heard: list[ReceivedMessage] = field(default_factory=list)
    wishes: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    answered: dict[str, float] = field(default_factory=dict)
    again: int = 0

    def hear(self, text: str, at: float) -> None:
        """Record a message of the bot."""
        marks = tuple(dict.fromkeys(MARK.findall(text)))
        self.heard.append(ReceivedMessage(at, text, marks))
        for mark in marks:
            self.answered.setdefault(mark, at)

    @property
    def given_up(self) -> int:
        """The number of notices that too many workers had died over a message."""
        return sum(GIVEN_UP in one.text for one in self.heard)

    @property
    def waits(self) -> list[str]:
        """Return the messages that were neither answered nor dropped."""
        waits = [mark for mark in self.sent if mark not in self.answered]
        return waits if len(waits) > self.given_up else []


class Platform(ABC):
    """A platform with chats."""

    def __init__(self) -> None:
        self.chats: dict[str, Chat] = {}

    @abstractmethod
    async def say(self, chat: Chat, text: str, file: bytes = b"") -> None:
        """Send a message, and a file if the platform supports files."""

    @abstractmethod
    async def listen(self, told: Callable[[], None]) -> None:
        """Record the bot's messages until cancelled. `told` is called after each."""

    def violations(self) -> list[str]:
        """Return the requests that the platform rejects."""
        return []


class OnTelegram(Platform):
    """Private chats with the people of `fake`, and groups of three people each."""

    def __init__(
        self, fake: FakeTelegram, numbers: Sequence[int], count: int, groups: int = 0
    ) -> None:
        super().__init__()
        self._fake, self._seen = fake, 0
        self._people: dict[str, Sequence[int]] = {str(number): (number,) for number in numbers}
        for number in numbers:
            fake.person(number, first_name=f"P{number}")
        for number in range(-1, -1 - groups, -1):
            fake.group(number)
            self._people[str(number)] = [numbers[3 * number + n] for n in range(3)]
        for key in self._people:
            name = f"t{key}".replace("-", "g")
            self.chats[key] = Chat(name, f"telegram:{key}", key, count)

    async def say(self, chat: Chat, text: str, file: bytes = b"") -> None:
        people = self._people[chat.person]
        user, place = people[len(chat.sent) % len(people)], int(chat.person)
        if file:
            self._fake.document(file, caption=text, user=user, chat=place)
        else:
            self._fake.say(text, user=user, chat=place)

    async def listen(self, told: Callable[[], None]) -> None:
        while True:
            await self._fake.wait_for(lambda: len(self._fake.calls) > self._seen, patience=None)
            now, calls = time.monotonic(), self._fake.calls[self._seen :]
            self._seen += len(calls)
            for call in calls:
                chat = self.chats.get(str(call.chat_id))
                silent = call.params.get("disable_notification")
                if chat and call.method in _SENDS and not silent:
                    said = {k: v for k, v in call.params.items() if k not in ("chat_id",)}
                    chat.hear(json.dumps(said, sort_keys=True), now)
            told()

    def violations(self) -> list[str]:
        return [f"Telegram: {one}" for one in self._fake.violations]


class OnWhatsApp(Platform):
    """Chats with the people of `fake`."""

    def __init__(self, fake: FakeGraphAPI, numbers: Sequence[int], count: int) -> None:
        super().__init__()
        self._fake, self._seen = fake, 0
        for number in numbers:
            key = fake.person(str(number), name=f"P{number}")
            self.chats[key] = Chat(f"w{number}", f"whatsapp:{number}", key, count)

    async def say(self, chat: Chat, text: str, file: bytes = b"") -> None:
        if file:
            self._fake.document(file, caption=text, person=chat.person)
        else:
            self._fake.say(text, person=chat.person)

    async def listen(self, told: Callable[[], None]) -> None:
        while True:
            await self._fake.wait_for(lambda: len(self._fake.calls) > self._seen, patience=None)
            now, calls = time.monotonic(), self._fake.calls[self._seen :]
            self._seen += len(calls)
            for call in calls:
                if call.operation == "messages" and call.person:
                    said = {k: v for k, v in call.fields.items() if k not in ("to", "context")}
                    self.chats[call.person].hear(json.dumps(said, sort_keys=True), now)
            told()

    def violations(self) -> list[str]:
        return [f"WhatsApp: {one}" for one in self._fake.violations]


class ByProgram(Platform):
    """Conversations of the API at `url`, with `keys` by name. Requests are repeated under the same
    key until there is an answer."""

    def __init__(self, url: str, keys: Mapping[str, str], count: int) -> None:
        super().__init__()
        self._url, self._keys = f"{url}/v1/chat/completions", keys
        self._told: Callable[[], None] = lambda: None
        self._refused: list[str] = []
        for name in keys:
            self.chats[name] = Chat(name, f"api:{name}:talk", name, count)

    async def say(self, chat: Chat, text: str, file: bytes = b"") -> None:
        mark = MARK.findall(text)[0]
        headers = {
            "Authorization": f"Bearer {self._keys[chat.name]}",
            "Idempotency-Key": f"{chat.name}-{mark}",
        }
        body = {
            "model": "nanobot",
            "metadata": {"session_id": "talk"},
            "messages": [{"role": "user", "content": text}],
        }
        timeout = aiohttp.ClientTimeout(total=_API_PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as client:  # no egress
            while True:
                try:
                    async with client.post(self._url, json=body, headers=headers) as answer:
                        given = await answer.json(content_type=None)
                        said = given["choices"][0]["message"]["content"] if answer.ok else given
                        # A notice about a question to the owner is no answer, and comes again too.
                        if mark in MARK.findall(str(said)) or GIVEN_UP in str(said):
                            chat.hear(str(said), time.monotonic())
                            self._told()
                            return
                        if answer.status < 500 and answer.status != 429:
                            self._refused.append(f"the API: {answer.status} {given}")
                            return
                except (aiohttp.ClientError, TimeoutError, ValueError):
                    pass
                chat.again += 1
                await asyncio.sleep(0.3)

    async def listen(self, told: Callable[[], None]) -> None:
        self._told = told
        await asyncio.Event().wait()

    def violations(self) -> list[str]:
        return self._refused


class Talk:
    """All conversations. `at_once`: number of chats that talk at the same time. `effects`,
    `questions`, `files`: share of messages that ask for effects, for effects that the owner has to
    approve, and with a file. `alone`: people wait for each answer."""

    def __init__(
        self,
        platforms: Sequence[Platform],
        rng: random.Random,
        *,
        at_once: int,
        effects: float = 0.0,
        questions: float = 0.0,
        files: float = 0.0,
        alone: bool = False,
    ) -> None:
        self.platforms, self._rng = platforms, rng
        self._room = asyncio.Semaphore(at_once)
        self._shares = [questions, effects, 1.0 - questions - effects]
        self._files, self._alone = files, alone
        self._changed = asyncio.Event()
        self.last_heard = time.monotonic()
        self._answered = 0

    @property
    def chats(self) -> list[Chat]:
        """Return the chats of all platforms."""
        return [chat for one in self.platforms for chat in one.chats.values()]

    @property
    def total(self) -> int:
        """The final number of messages."""
        return sum(chat.count for chat in self.chats)

    @property
    def answered(self) -> int:
        """The number of answered messages."""
        return sum(len(chat.answered) for chat in self.chats)

    async def run(self, patience: float) -> None:
        """Return when all messages are sent and answered, or after `patience` seconds of
        silence."""
        pairs = [(one, chat) for one in self.platforms for chat in one.chats.values()]
        self._rng.shuffle(pairs)
        async with self.listening():
            talking = asyncio.gather(*(self._converse(*pair) for pair in pairs))
            try:
                while not talking.done():
                    await asyncio.wait([talking], timeout=1.0)
                    if time.monotonic() - self.last_heard > patience:
                        break
                if talking.done():
                    talking.result()
            finally:
                talking.cancel()
                await asyncio.gather(talking, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Record the bot's messages in the background."""
        self.last_heard = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.listen(self._hear)) for one in self.platforms]
            yield
            for task in tasks:
                task.cancel()

    async def _converse(self, platform: Platform, chat: Chat) -> None:
        async with self._room:
            number, by_program = 0, isinstance(platform, ByProgram)
            while number < chat.count:
                alone = self._alone or by_program
                burst = 1 if alone else self._rng.randint(1, _MOST_IN_A_BURST)
                for _ in range(min(burst, chat.count - number)):
                    number += 1
                    mark, file = f"m{number}", b""
                    (verb,) = self._rng.choices(("ask", "do", ""), self._shares)
                    if verb:
                        chat.wishes[mark] = verb
                    if self._rng.random() < self._files and not by_program:
                        file = f"the file of {chat.name}{mark}".encode()
                        chat.files.add(mark)
                    text = f"please {verb} {chat.name}{mark}" if verb else "hello"
                    chat.sent[mark] = time.monotonic()
                    await platform.say(chat, f"{mark}: {text}", file)
                    if self._rng.random() < 0.5:
                        await asyncio.sleep(self._rng.uniform(0.0, 0.3))
                await self.until_answered(chat)

    async def until_answered(self, chat: Chat) -> None:
        """Wait until all messages of a chat are answered."""
        while chat.waits:
            self._changed.clear()
            await self._changed.wait()

    def _hear(self) -> None:
        answered = self.answered
        if answered != self._answered:
            self._answered, self.last_heard = answered, time.monotonic()
        self._changed.set()
