"""Telegram in a fault campaign: a `FakeTelegram` with its people, in its own process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import TypedDict

from bench.scripted import GIVEN_UP, ScriptedPlatform, inbox_of, marks_of
from bench.unconfirmed import ALWAYS
from tests.doubles.telegram import FakeTelegram

_EDIT = re.compile(r":e.*$")


class State(TypedDict):
    """The state of the fake. `said` has the inbox key of each update that must be there, `texts`
    the final messages in each chat, and `shown` the number of previews."""

    confirmed: int
    said: dict[int, tuple[str, str]]
    texts: dict[str, list[str]]
    shown: dict[str, int]
    violations: list[str]


class People:
    """Implements `scripted.ScriptedPeople`, plays `script`, and records the resulting updates."""

    def __init__(self, telegram: FakeTelegram, script: Script) -> None:
        self.telegram, self._script = telegram, script
        self.address = telegram.base_url
        self.said: dict[int, tuple[str, str]] = {}
        self._given_up: dict[int, int] = {}

    async def perform(self) -> None:
        """See `ScriptedPeople`."""
        await self._script(self)

    def note(self, chat: int, events: Iterable[object]) -> None:
        """Record that the newest updates are these events, for the inbox."""
        keys = [(str(chat), str(event)) for event in events]
        first = self.telegram.last_update - len(keys) + 1
        self.said |= dict(enumerate(keys, first))

    def say(self, chat: int, text: str, user: int = 0) -> int:
        """Send a message to nanobot and return its id."""
        message = self.telegram.say(text, user=user or chat, chat=chat)
        self.note(chat, [message])
        return message

    async def write(self, chat: int, text: str) -> int:
        """See `bench.scenes.Talk`."""
        return self.say(chat, text)

    async def correct(self, chat: int, message: object, text: str) -> None:
        """See `bench.scenes.Talk`."""
        assert isinstance(message, int)
        self.edit(chat, message, text)

    def edit(self, chat: int, message: int, text: str) -> None:
        """Edit a message. The edit is for the inbox."""
        self.telegram.edit(message, text)
        self.note(chat, [f"{message}:e"])

    async def until_told(self, chat: int, *texts: str) -> None:
        """See `bench.scenes.Talk`."""
        await self.telegram.wait_for(
            lambda: any(text in said for said in self.telegram.texts(chat) for text in texts),
            patience=None,
        )

    async def until_answered(self, chat: int, mark: str) -> None:
        """Wait until the newest message in a chat has this mark, or reports that it was dropped."""

        known = self._given_up.get(chat, 0)

        def is_answered() -> bool:
            return mark in marks_of(self._newest(chat)) or self._excuses(chat) > known

        await self.telegram.wait_for(is_answered, patience=None)
        self._given_up[chat] = self._excuses(chat)

    def confirm_nothing(self, chat: int, status: int, body: bytes) -> None:
        """See `bench.unconfirmed.UnconfirmedPeople`."""
        self.telegram.garble(
            "sendMessage", body, status=status, times=ALWAYS, chat=chat, after="effect"
        )

    def heal(self) -> None:
        """See `bench.unconfirmed.UnconfirmedPeople`."""
        self.telegram.heal()

    def press(self, chat: int, label: str) -> None:
        """See `bench.unconfirmed.UnconfirmedPeople`."""
        asked = [sent for sent in self.telegram.messages(chat) if label in sent.labels]
        query = self.telegram.press(asked[-1].message_id, label, user=chat)
        self.note(chat, [f"callback:{query}"])

    def _excuses(self, chat: int) -> int:
        return self.telegram.texts(chat).count(GIVEN_UP)

    def _newest(self, chat: int) -> str:
        lasting = [sent.text for sent in self.telegram.messages(chat) if not sent.silent]
        return lasting[-1] if lasting else ""

    def state(self) -> State:
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
"""Plays the people and returns when they have received everything that they wait for."""


class TelegramPlatform(ScriptedPlatform):
    """A fake Telegram that plays `script`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        super().__init__()

    @asynccontextmanager
    async def cast(self) -> AsyncIterator[People]:
        """See `ScriptedPlatform`."""
        async with FakeTelegram() as telegram:
            yield People(telegram, self._script)

    def state(self) -> State:
        state: State = super().state()
        state["said"] = {int(update): (c, e) for update, (c, e) in state["said"].items()}
        return state

    def count_repetitions(self) -> list[int]:
        """See `Platform`. A message in flight at a kill comes again right after itself, or is a
        preview with a lost id, and stays."""
        state = self.state()
        by_chat = {c: len(said) - len(list(groupby(said))) for c, said in state["texts"].items()}
        for chat, standing in state["shown"].items():
            by_chat[chat] = by_chat.get(chat, 0) + standing
        return list(by_chat.values())

    def look_at(self, home: Path) -> None:
        """Check after a process died that every update confirmed to Telegram is in the inbox."""
        self.ended += 1
        state = self.state()
        confirmed = {key for n, key in state["said"].items() if n < state["confirmed"]}
        stored = {(chat, _EDIT.sub(":e", event)) for chat, event in inbox_of(home, "telegram")}
        if missing := confirmed - stored:
            self.lost.append(f"confirmed and not in the journal: {sorted(missing)}")
