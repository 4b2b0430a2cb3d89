"""The owner of the campaign, who approves half of the other people's requests, by a button in their
Telegram chat, which reaches any worker, or at any worker's socket."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time

from bench.team.workers import Worker, Workers
from nanobot.cli.client import Client
from nanobot.errors import NanobotError
from tests.doubles.telegram import FakeTelegram

NUMBER = 1
_LOOK_SECONDS = 0.2
_LONGEST_THOUGHT = 2.0
_AGAIN_SECONDS = 7.0
"""Seconds after which the owner answers again if the question still has its buttons."""
_QUESTION = re.compile(r"\becho (\w+)[\s\S]*/approve (\w+)")


class Owner:
    """`allows` has the answer to each request, however often it is asked. `asked` has the messages
    of each question, by its code."""

    def __init__(self, fake: FakeTelegram, workers: Workers, rng: random.Random) -> None:
        self._fake, self._workers, self._rng = fake, workers, rng
        self.allows: dict[str, bool] = {}
        self.asked: dict[str, list[int]] = {}
        fake.person(NUMBER, first_name="Owner")

    @property
    def open(self) -> list[str]:
        """Return the codes of questions with buttons."""
        buttons = {one.message_id for one in self._fake.messages(NUMBER) if one.buttons}
        return [code for code, ids in self.asked.items() if ids[-1] in buttons]

    async def answer_forever(self) -> None:
        """Answer questions until cancelled."""
        self._fake.say("hello", user=NUMBER)  # so that there is a chat
        seen = 0
        async with asyncio.TaskGroup() as group:
            while True:
                for message in self._fake.messages(NUMBER):
                    found = _QUESTION.search(message.text)
                    if found and message.message_id > seen:
                        wish, code = found.groups()
                        seen = message.message_id
                        self.asked.setdefault(code, []).append(seen)
                        group.create_task(self._answer(wish, code))
                await asyncio.sleep(_LOOK_SECONDS)

    async def until_all_closed(self, patience: float) -> None:
        """Wait until no question has buttons, at most `patience` seconds."""
        ends = time.monotonic() + patience
        while self.open and time.monotonic() < ends:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)

    async def _answer(self, wish: str, code: str) -> None:
        yes = self.allows.setdefault(wish, self._rng.random() < 0.5)
        await asyncio.sleep(self._rng.uniform(0.0, _LONGEST_THOUGHT))
        while code in self.open:
            worker = self._workers.idle(self._rng)
            if worker is None or self._rng.random() < 0.7:
                label = "Approve" if yes else "Deny"
                self._fake.press(self.asked[code][-1], label, user=NUMBER)
            else:
                said = {"code": code, "answer": "once" if yes else "no", "by": "the owner"}
                with contextlib.suppress(NanobotError, OSError):
                    await asyncio.to_thread(_ask, worker, said)
            await asyncio.sleep(_AGAIN_SECONDS)


def _ask(worker: Worker, said: dict[str, str]) -> None:
    with Client(worker.home, timeout=_AGAIN_SECONDS) as client:
        client.ask("approvals.answer", said)
