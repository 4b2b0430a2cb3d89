"""WhatsApp's Cloud API in a fault campaign: a `FakeGraphAPI` with its people, in its own
process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TypedDict

from bench.scripted import ScriptedPlatform
from bench.unconfirmed import ALWAYS
from tests.doubles.graph import FakeGraphAPI
from tests.ports import free_port


class State(TypedDict):
    """The state of the fake. `texts` holds the messages of each chat."""

    texts: dict[str, list[str]]
    violations: list[str]


class CloudPeople:
    """Implements `scripted.ScriptedPeople` and `unconfirmed.UnconfirmedPeople`, and plays `script`.

    A chat is the number of a person. `address` is the settings that lead to the fake, as JSON."""

    def __init__(self, graph: FakeGraphAPI, script: Script) -> None:
        self._graph, self._script = graph, script
        self.address = json.dumps(graph.settings())

    async def perform(self) -> None:
        """See `ScriptedPeople`."""
        await self._script(self)

    def state(self) -> State:
        """See `ScriptedPeople`."""
        texts: dict[str, list[str]] = {}
        for sent in self._graph.messages(None):
            texts.setdefault(sent.person, []).append(sent.text)
        return State(texts=texts, violations=[str(one) for one in self._graph.violations])

    def confirm_nothing(self, chat: str, status: int, body: bytes) -> None:
        """See `UnconfirmedPeople`."""
        self._graph.garble(
            "messages", body, status=status, times=ALWAYS, person=chat, after="effect"
        )

    def heal(self) -> None:
        """See `UnconfirmedPeople`."""
        self._graph.heal()

    def press(self, chat: str, label: str) -> None:
        """See `UnconfirmedPeople`."""
        asked = [sent for sent in self._graph.messages(chat) if label in sent.labels]
        self._graph.press(asked[-1].id, label, person=chat)

    async def write(self, chat: str, text: str) -> str:
        """See `UnconfirmedPeople`."""
        return self._graph.say(text, person=chat)

    async def until_told(self, chat: str, *texts: str) -> None:
        """See `UnconfirmedPeople`."""
        await self._graph.wait_for(
            lambda: any(text in said for said in self._graph.texts(chat) for text in texts),
            patience=None,
        )


Script = Callable[[CloudPeople], Awaitable[None]]
"""Plays the people and returns when they have received everything that they wait for."""


class CloudPlatform(ScriptedPlatform):
    """A fake Graph API that plays `script` and posts to `port` of this machine."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.port = free_port()
        super().__init__()

    @asynccontextmanager
    async def cast(self) -> AsyncIterator[CloudPeople]:
        """See `ScriptedPlatform`."""
        async with FakeGraphAPI() as graph:
            graph.webhook.deliver_to(f"http://127.0.0.1:{self.port}/whatsapp")
            yield CloudPeople(graph, self._script)

    def state(self) -> State:
        """See `ScriptedPlatform`."""
        state: State = super().state()
        return state

    def count_repetitions(self) -> list[int]:
        """See `Platform`."""
        said = self.state()["texts"].values()
        return [len(texts) - len(list(groupby(texts))) for texts in said]
