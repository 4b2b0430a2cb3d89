"""The people of a soak, as a process: a fake Telegram with many long conversations, and faults.

    python -m bench.soak_people --chats 20 --pause 3 --faults 0.1 --seed 1

prints the base URL, and then answers each line of standard input with one line of JSON: `?` with
the progress, `stop` with the same, after which each person sends one last message until that is
answered, and `report` with all messages. Every fifth chat is a group. A person waits for the
answer, and then for a while. Now and then they send two messages at once, a picture, or a
command."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from bench.soak_model import TOOLS, TOPICS, lines
from bench.soak_verdict import MARK, Line, is_notice, lines_in_order
from tests.doubles.telegram import FakeTelegram

FIRST_PERSON = 101
GROUP = -1_000_000_000_000
_GROUP_EVERY = 5
_PAIRS, _COMMANDS, _PICTURES, _WITH_A_TOOL = 0.1, 0.04, 0.03, 0.4
_COMMANDS_GIVEN = ("/help", "/memory", "/new", "/status", "/compact")
_MOST_NOTES = 12
"""Largest number of notes of a person. Today's notes are in every prompt, and hundreds an hour,
which no real person writes, would make memory grow all the time."""
_HALF_OPEN_SECONDS = 10.0
_SENDS_BETWEEN = 4
"""The failed send, its repetition, and sends rejected or left out in between."""
_RARE = 0.05
"""Relative frequency of faults that delay everyone: another program that polls, a poll that
hangs."""

Kinds = tuple[Callable[[], object], ...]


def chat_of(number: int) -> int:
    """Return the id of a chat by its number from 0. A negative id is a group."""
    person = FIRST_PERSON + number
    return GROUP - person if number % _GROUP_EVERY == _GROUP_EVERY - 1 else person


@dataclass(slots=True)
class SharedState:
    """State shared by all people. `stopping`: no new conversation begins."""

    telegram: FakeTelegram
    random: Random
    pause: float
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: int = 0
    said: int = 0


class Person:
    """A person in a chat."""

    def __init__(self, scene: SharedState, chat: int) -> None:
        self._scene, self._telegram, self._random = scene, scene.telegram, scene.random
        self.chat, self._user = chat, chat if chat > 0 else GROUP - chat
        self._lines: list[tuple[int, Line]] = []
        self._ids: dict[str, int] = {}
        self._notes_wanted = 0

    async def live(self) -> None:
        """Talk until the scene ends, and then until a last message is answered with its mark."""
        if self.chat < 0:
            self._telegram.group(self.chat, "Group")
        while not await self._rests():
            await self._talk()
        while not await self._is_answered(self._say("goodbye")):
            await self._rests()

    def lines(self) -> list[Line]:
        """Return the chat so far."""
        return list(lines_in_order([*self._lines, *self._answers()]))

    async def _rests(self) -> bool:
        """Wait for a while. Return True if the scene ends."""
        pause = self._random.expovariate(1.0 / self._scene.pause)
        try:
            await asyncio.wait_for(self._scene.stopping.wait(), min(pause, 10 * self._scene.pause))
        except TimeoutError:
            return False
        return True

    async def _talk(self) -> None:
        chance = self._random.random()
        private = self.chat > 0
        if private and chance < _COMMANDS:
            command = self._random.choice(_COMMANDS_GIVEN)
            said = [self._note(self._next("c"), self._post(command))]
        elif private and chance < _COMMANDS + _PICTURES:
            said = [self._show_picture()]
        else:
            said = [self._wish() for _ in range(2 if self._random.random() < _PAIRS else 1)]
        await self._is_answered(*said)

    def _wish(self) -> str:
        wish = self._random.choice(TOOLS) if self._random.random() < _WITH_A_TOOL else "nothing"
        if wish == "note":
            self._notes_wanted += 1
            wish = wish if self._notes_wanted <= _MOST_NOTES else "nothing"
        topic = self._random.choice(TOPICS)
        mark = self._say(f"please {wish}. Let us speak of {topic}. {'And so on. ' * 8}")
        if wish == "spawn":  # the subagent reports later, under this mark
            self._lines.append((self._ids[mark], Line("", f"r{mark[1:]}")))
        return mark

    def _say(self, text: str) -> str:
        mark = self._next("m")
        mention = f"@{self._telegram.username} " if self.chat < 0 else ""
        return self._note(mark, self._post(f"{mention}{mark}: {text}"))

    def _show_picture(self) -> str:
        mark = self._next("m")
        caption = f"{mark}: what is this?"
        return self._note(mark, self._telegram.photo(caption=caption, user=self._user))

    def _post(self, text: str) -> int:
        return self._telegram.say(text, user=self._user, chat=self.chat)

    def _next(self, kind: str) -> str:
        self._scene.numbers += 1
        return f"{kind}{self._scene.numbers}"

    def _note(self, mark: str, message_id: int) -> str:
        """Record a sent message, and return its mark."""
        self._ids[mark] = message_id
        self._lines.append((message_id, Line("", mark)))
        self._scene.said += 1
        return mark

    async def _is_answered(self, *marks: str) -> bool:
        """Wait for the answers to the newest messages, or for a text that replaces one. Return True
        for the answers."""
        first = self._ids[marks[0]]

        def outcome() -> str:
            later = [one for at, one in self._answers() if at > first and not is_notice(one.text)]
            found = [mark for one in later for mark in MARK.findall(one.text)]
            if set(found).issuperset(marks):
                return "answered"
            return "excused" if any(not MARK.search(one.text) for one in later) else ""

        return await self._telegram.wait_for(outcome, patience=None) == "answered"

    def _answers(self) -> list[tuple[int, Line]]:
        """Return the bot's final messages with ids. Previews do not count."""
        sent = self._telegram.messages(self.chat)
        return [(one.message_id, Line(one.text)) for one in sent if not one.silent]


class Trouble:
    """Makes a share of the bot's calls fail.

    `unclear` counts the sends that had their effect without a confirming answer. Only these may
    come twice. A send fails in a chat only after the previous failed one was repeated, because a
    message is dropped if its delivery is unknown twice in a row."""

    def __init__(self, scene: SharedState, chats: Sequence[int], share: float) -> None:
        self._telegram, self._random, self._share = scene.telegram, scene.random, share
        self._chats, self._sends, self._seen = deque(chats), Counter[int | None](), 0
        self._spoiled = dict.fromkeys(chats, -_SENDS_BETWEEN)
        self.made = self.unclear = 0

    async def make(self) -> None:
        """Cause faults until cancelled."""
        telegram = self._telegram
        polls: Kinds = (
            lambda: telegram.fail("getUpdates", 502),
            lambda: telegram.cut("getUpdates"),
            lambda: telegram.cut("getUpdates", after="effect"),
            lambda: telegram.garble("getUpdates"),
        )
        others: Kinds = (
            self._refuse,
            lambda: telegram.fail("sendMessage", 429, parameters={"retry_after": 1}),
            self._lose_a_request,
            self._lose_an_answer,
            self._deny_an_answer,
            lambda: telegram.fail("sendChatAction", 502),
            lambda: telegram.cut("sendChatAction"),
            lambda: telegram.cut("sendMessageDraft"),
            lambda: telegram.cut("file"),
        )
        rare: Kinds = (telegram.second_poller, self._half_open)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._spoil(self._count("getUpdates"), polls, self._share))
            group.create_task(self._spoil(self._count(), others, self._share))
            group.create_task(self._spoil(self._count("getUpdates"), rare, self._share * _RARE))

    async def _spoil(self, calls: Callable[[], int], kinds: Kinds, share: float) -> None:
        """Repeatedly arm one of these kinds after a number of calls."""
        seen = 0
        while share > 0:
            seen += max(1, round(self._random.expovariate(share)))
            await self._telegram.wait_for(partial(_reaches, calls, seen), patience=None)
            self.made += 1
            self._random.choice(kinds)()

    def _count(self, method: str = "") -> Callable[[], int]:
        """Return a counter of the calls of a method, or of all calls except polls."""
        seen = found = 0

        def count() -> int:
            nonlocal seen, found
            new, seen = self._telegram.calls[seen:], len(self._telegram.calls)
            found += sum((one.method == "getUpdates") == bool(method) for one in new)
            return found

        return count

    def _refuse(self) -> None:
        for chat in self._chat():
            self._telegram.fail("sendMessage", 500, chat=chat)

    def _lose_a_request(self) -> None:
        for chat in self._chat():
            self._telegram.cut("sendMessage", chat=chat)

    def _lose_an_answer(self) -> None:
        for chat in self._chat():
            self.unclear += 1
            self._telegram.cut("sendMessage", after="effect", chat=chat)

    def _deny_an_answer(self) -> None:
        for chat in self._chat():
            self.unclear += 1
            self._telegram.fail("sendMessage", 504, after="effect", chat=chat)

    def _chat(self) -> Sequence[int]:
        """Return the next chat in which a send may fail, or none if it is too early everywhere."""
        new, self._seen = self._telegram.calls[self._seen :], len(self._telegram.calls)
        self._sends.update(call.chat_id for call in new if call.method == "sendMessage")
        for _ in range(len(self._chats)):
            self._chats.rotate(-1)
            chat = self._chats[0]
            if self._sends[chat] >= self._spoiled[chat] + _SENDS_BETWEEN:
                self._spoiled[chat] = self._sends[chat]
                return (chat,)
        return ()

    def _half_open(self) -> None:
        gate = self._telegram.half_open()
        asyncio.get_running_loop().call_later(_HALF_OPEN_SECONDS, gate.set)


def _reaches(count: Callable[[], int], goal: int) -> bool:
    return count() >= goal


async def serve(arguments: argparse.Namespace) -> None:
    """Play until standard input ends."""
    async with FakeTelegram() as telegram:
        scene = SharedState(telegram, Random(arguments.seed), arguments.pause)
        people = [Person(scene, chat_of(number)) for number in range(arguments.chats)]
        trouble = Trouble(scene, [person.chat for person in people], arguments.faults)
        async with asyncio.TaskGroup() as group:
            making = group.create_task(trouble.make())
            lives = [group.create_task(person.live()) for person in people]
            print(telegram.base_url, flush=True)
            async for line in lines():
                if line == "stop":
                    scene.stopping.set()
                    making.cancel()
                    telegram.heal()
                state: dict[str, object] = {
                    "said": scene.said,
                    "talking": sum(not life.done() for life in lives),
                    "calls": len(telegram.calls),
                    "faults": trouble.made,
                    "unclear": trouble.unclear,
                }
                if line == "report":
                    state |= _report(telegram, people)
                print(json.dumps(state), flush=True)
            for task in (making, *lives):
                task.cancel()


def _report(telegram: FakeTelegram, people: list[Person]) -> Mapping[str, object]:
    return {
        "violations": [str(one) for one in telegram.violations],
        "chats": {
            str(person.chat): [[line.text, line.mark] for line in person.lines()]
            for person in people
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument("--pause", type=float, default=3.0)
    parser.add_argument("--faults", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(serve(parser.parse_args()))
