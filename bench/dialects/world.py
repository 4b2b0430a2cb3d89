"""The world of a shape: a fake server of one kind, a whole nanobot, and a person in front of it.

After each shape these are checked: no thinking or markup was shown or sent, no false outage was
reported, each message is still in the conversation, and any server accepts the stored history."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from nanobot.bus.events import Media, TextDelta
from nanobot.messages import Message
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import Tool, ToolResult
from tests.doubles.dialects.server import KINDS, DialectServer, Script
from tests.support import Gate, Probe, read_stored, running, write_config

THOUGHT = "I ponder the blue teapot"
"""The models' thinking, which must never be shown."""

MARKUP = (
    "<think", "</think", "<tool_call", "<tools>", "<function", "</function", "[TOOL_CALLS]",
    "tool▁call", "tool_calls_section", "tool_call_begin", "minimax:", "<invoke", "<|channel|>",
    "<arg_key>", "<parameter", '"arguments"', '"parameters"',
)  # fmt: skip
"""Markup of calls and of thinking, which is never an answer."""

OUTAGE = "cannot be reached"
NEXT = "and now?"


class WrongError(AssertionError):
    """The outcome of the shape is wrong."""


def expect(found: object, wanted: object, what: str) -> None:
    """Raise `WrongError` if these differ."""
    if found != wanted:
        raise WrongError(f"{what}: {found!r}, not {wanted!r}")


def expect_words(text: str, *words: str) -> None:
    """Raise `WrongError` if a text lacks one of these words."""
    for word in words:
        if word.lower() not in text.lower():
            raise WrongError(f"the person read {text!r}, without {word!r}")


def probe(gate: Gate | None = None, *, images: Sequence[tuple[str, str]] = ()) -> Probe:
    """Return a tool that repeats its text, once `gate` is open."""

    def act(text: str) -> ToolResult:
        return ToolResult(f"saw {text}", images=tuple(images))

    return Probe(gate=gate, act=act)


@dataclass
class DialectWorld:
    """The world of one shape. `quotes`: the person's own texts hold markup, which may be shown."""

    home: Path
    kind: str
    quotes: bool = False
    outage: bool = False
    clock: FakeClock = field(default_factory=lambda: FakeClock(datetime.now(UTC), auto=True))
    servers: list[DialectServer] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    channel: FakeChannel = field(init=False)

    def __post_init__(self) -> None:
        self.set_clock(self.clock)

    def set_clock(self, clock: FakeClock) -> None:
        """Replace the clock before anything runs."""
        self.clock = clock
        self.channel = FakeChannel(clock=clock)

    @asynccontextmanager
    async def nanobot(
        self,
        script: Script = (),
        *,
        tools: Sequence[Tool] = (),
        window: int = 0,
        model: Mapping[str, object] | None = None,
        fallback: DialectServer | None = None,
        learns: bool = False,
        chores: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[DialectServer]:
        """Run the server and a nanobot that uses it.

        `model` are further settings of the model, and `settings` others, as environment
        variables."""
        async with DialectServer(KINDS[self.kind], script, window=window) as server:
            self.servers.append(server)
            async with self.using(
                server,
                tools=tools,
                model=model,
                fallback=fallback,
                learns=learns,
                chores=chores,
                settings=settings,
            ):
                yield server

    @asynccontextmanager
    async def using(
        self,
        server: DialectServer,
        *,
        tools: Sequence[Tool] = (),
        model: Mapping[str, object] | None = None,
        fallback: DialectServer | None = None,
        learns: bool = False,
        chores: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[None]:
        """Run a nanobot that uses a running server."""
        written: dict[str, object] = {
            "name": server.kind.model,
            "base_url": server.base_url,
            "api_key": "sk-a-long-secret-key",
        }
        if fallback is not None:
            own = {"name": fallback.kind.model, "base_url": fallback.base_url}
            written["fallbacks"] = [own]
        write_config(self.home, {"model": {**written, **(model or {})}})
        async with running(
            self.home,
            None,
            self.channel,
            clock=self.clock,
            tools=tools,
            configured_learner=learns,
            chores=chores,
            **dict(settings),  # type: ignore[arg-type]
        ):
            yield

    async def ask(self, text: str, chat_id: str = "1") -> str:
        """Send a message and return the whole answer."""
        self.said.append((chat_id, text))
        return await self.channel.ask(text, chat_id)

    async def say(
        self, text: str, chat_id: str = "1", *, media: tuple[Media, ...] = (), group_id: str = ""
    ) -> str:
        """Send a message."""
        if text:
            self.said.append((chat_id, text))
        return await self.channel.say(text, chat_id, media=media, group_id=group_id)

    async def gets(self, text: str, answer: str, chat_id: str = "1") -> None:
        """Send a message, and check its answer."""
        expect(await self.ask(text, chat_id), answer, f"the answer to {text!r}")

    async def goes_on(self, answer: str = "fine", chat_id: str = "1") -> None:
        """Check that the next turn works, and that the server has read every message of the
        person."""
        await self.gets(NEXT, answer, chat_id)
        whole = json.dumps(self.servers[-1].requests[-1].body, ensure_ascii=False)
        for chat, text in self.said:
            if chat == chat_id and json.dumps(text.strip(), ensure_ascii=False)[1:-1] not in whole:
                raise WrongError(f"the message {text!r} is lost")

    def judge(self) -> None:
        """Check the invariants of every shape, once its nanobot has ended."""
        for text in self.texts():
            self._judge_text(text)
        for path in sorted((self.home / "sessions").glob("*.jsonl")):
            channel, _, chat = path.stem.partition("_")
            self._judge_history(read_stored(self.home, f"{channel}:{chat}"))

    def texts(self) -> list[str]:
        """Return all sent texts, and every state of each preview."""
        found = [part.content for part in self.channel.sent]
        previews: dict[str, str] = {}
        for event in self.channel.shown:
            if isinstance(event, TextDelta):
                before = "" if event.restart else previews.get(event.turn_id, "")
                previews[event.turn_id] = before + event.text
                if not self.quotes:
                    found += [text for text in (previews[event.turn_id],) if _has_markup(text)]
        return found + list(previews.values())

    def _judge_text(self, text: str) -> None:
        if THOUGHT in text:
            raise WrongError(f"thinking was shown: {text!r}")
        if not self.quotes and _has_markup(text):
            raise WrongError(f"markup was shown: {text!r}")
        if not self.outage and OUTAGE in text:
            raise WrongError(f"a false outage: {text!r}")

    def _judge_history(self, messages: Sequence[Message]) -> None:
        ids: list[str] = []
        for message in messages:
            if THOUGHT in message.content:
                raise WrongError(f"thinking was stored: {message.content!r}")
            for call in message.tool_calls:
                ids.append(call.id)
                if not isinstance(json.loads(call.arguments), dict):
                    raise WrongError(f"stored arguments are no object: {call.arguments!r}")
        if len(set(ids)) < len(ids):
            raise WrongError(f"stored call ids are not unique: {ids}")
        if any(not 0 < len(one) <= 40 for one in ids):
            raise WrongError(f"stored call ids are too long: {ids}")


def _has_markup(text: str) -> bool:
    return any(mark in text for mark in MARKUP)


Play = Callable[[DialectWorld], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape by name, its kind of server, and the conversation with it."""

    name: str
    kind: str
    play: Play
    quotes: bool = False
    outage: bool = False

    async def run(self, home: Path) -> DialectWorld:
        """Play and judge it. Raise `WrongError`."""
        world = DialectWorld(home, self.kind, self.quotes, self.outage)
        await self.play(world)
        world.judge()
        return world
