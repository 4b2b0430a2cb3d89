"""The summary of one stretch of conversation by one call of the model, however the model behaves.

An unusable answer (`changes` reads it) is requested once more, with the reason. Then the stretch is
archived raw. If the model is out, the result is None: the caller decides whether the stretch can
wait. After three failures in a row the model is not called for five minutes. A turn that needs room
waits for half a minute in all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate

from loguru import logger
from msgspec import Struct

from nanobot.clock import Clock
from nanobot.errors import (
    ContextTooLong,
    NanobotError,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    TurnStopped,
)
from nanobot.memory.consolidation.planning import PromptGauge
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.history import HistoryEntry, with_stamp
from nanobot.memory.line_changes import Operation
from nanobot.memory.model_text import Echoes
from nanobot.memory.recall import MOST_SHOWN
from nanobot.memory.scopes import Memory
from nanobot.memory.taint import origins_of
from nanobot.messages import Message
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Provider,
    Reply,
    Toolset,
    ToolSpec,
    estimate_tokens,
    system_message,
    user_message,
)
from nanobot.tasks import Background
from nanobot.templates import render
from nanobot.text import pluralize, shorten

_ATTEMPTS = 2
_FAILURES = 3
_PAUSE, _OUT_SECONDS = 300.0, 60.0
TURN_SECONDS = 30.0
"""How long a turn waits for the model to make room. It does not call a model that is out again."""
_LEAST_ROOM = 400


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
SAVE_MEMORY = ToolSpec(
    name="save_memory",
    description="Save the consolidation of the conversation to memory.",
    parameters={
        "type": "object",
        "properties": {
            "history_entry": _TEXT
            | {
                "description": (
                    "A paragraph of 2 to 5 sentences on key events, decisions and topics. Starts "
                    "with [YYYY-MM-DD HH:MM]. With detail that a text search would look for."
                ),
            },
            "memory_update": _TEXT
            | {
                "description": (
                    "The full updated long-term memory as Markdown: all existing facts and the new "
                    "ones. Unchanged if nothing is new."
                ),
            },
            "key_facts": _TEXTS | {"description": "Facts of one line each, with dates resolved."},
            "quotes": _TEXTS
            | {"description": "First words of lines of USER's that are kept whole, as written."},
        },
        "required": ["history_entry", "memory_update"],
    },
)

KEPT = "[marked to keep]"
"""Marks important words of the person."""

_MARKS = {
    "": "",
    "attached": "[what stands in brackets is not the person's own words]",
    "forwarded": "[forwarded: not the person's own words]",
    "person": "[said by another person, {name}]",
    "tool": "[untrusted content from {name}]",
}
"""Text for the origin of a message, by kind."""

_MOST_CHARACTERS = {"user": 24_000, "assistant": 6_000, "tool": 2_000}
_SHARE_OF_ROOM = {"user": 0.5, "assistant": 0.25, "tool": 0.125}
_LEAST_TOKENS = 24
_RAW_CHARACTERS = 1_200
_RAW_LINE = 160


class Chunk(Struct, frozen=True):
    """The messages `first` to `last` of a conversation; `messages` lacks retracted ones."""

    session: str
    first: int
    last: int
    messages: tuple[Message, ...]

    @property
    def contents(self) -> tuple[Message, ...]:
        """The messages with content for memory."""
        spoken = (message for message in self.messages if message.origin != "nanobot")
        return tuple(message for message in spoken if message.content.strip() or message.media)

    @property
    def origins(self) -> tuple[str, ...]:
        """Sources of untrusted content."""
        return tuple(sorted(origins_of(self.messages)))


class Draft(Struct, frozen=True):
    """An uncommitted entry. `held` are changes of memory that need approval."""

    entry: HistoryEntry
    held: tuple[Operation, ...] = ()


class Summariser:
    """Calls `provider`, with requests that `gauge` limits. A conversation has one call at a
    time."""

    def __init__(
        self, provider: Provider, clock: Clock, gauge: PromptGauge, background: Background
    ) -> None:
        self._provider, self._clock = provider, clock
        self._gauge, self._background = gauge, background
        self._system = system_message(render("consolidate.md"))
        self._tools = Toolset.of([SAVE_MEMORY])
        fields = SAVE_MEMORY.parameters["properties"].values()
        described = [str(field.get("description", "")) for field in fields]
        # Our texts in a request, which a model may copy.
        self._echoes = Echoes([self._system.text, _HEAD, _MEMORY, _CONVERSATION, *described])
        self._fixed = estimate_tokens(self._system.text + self._tools.wire.decode()) + 100
        self._failures, self.problem = 0, ""
        """`problem`: why the model failed often in a row, or refused; else empty."""
        self._out_until = 0.0
        self._calls: dict[str, asyncio.Task[Draft | None]] = {}
        self._stopped: set[asyncio.Task[Draft | None]] = set()

    @property
    def is_out(self) -> bool:
        """True if the model failed to answer a moment ago. Urgent callers need not try."""
        return self._clock.monotonic() < self._out_until

    @property
    def is_resting(self) -> bool:
        """True if the model is not called for now, after too many failures."""
        return self._failures >= _FAILURES and self.is_out

    def end_call(self, key: str, *, stopped: bool = False) -> None:
        """End the call for the conversation `key`, because it takes longer than a turn waits, or
        because its turn was `stopped`."""
        if (call := self._calls.get(key)) is not None:
            call.cancel()
            if stopped:
                self._stopped.add(call)

    async def summarise(self, chunk: Chunk, memory: Memory) -> Draft | None:
        """Return the draft for a stretch, or None if the model is out or too slow. Raise
        `TurnStopped`."""
        if self.is_resting:
            return None
        key = chunk.session
        call = self._background.start(self._summarise(chunk, memory), name=f"summarise {key}")
        self._calls[key] = call
        try:
            await asyncio.wait([call])
        finally:
            del self._calls[key]
            is_stopped = call in self._stopped
            self._stopped.discard(call)
        if not call.cancelled():
            return call.result()
        if is_stopped:
            raise TurnStopped("the turn was stopped")
        # Not a failure: a slow model still serves callers with time.
        logger.warning("{}: not consolidated: the model is too slow", key)
        self._out_until = max(self._out_until, self._clock.monotonic() + _OUT_SECONDS)
        return None

    def raw(self, chunk: Chunk) -> Draft:
        """Return the draft for a stretch without a summary."""
        entry = HistoryEntry(
            cursor=0,
            timestamp=self._clock.now(),
            type="raw",
            session=chunk.session,
            first=chunk.first,
            last=chunk.last,
            summary=with_stamp(raw_summary(chunk), self._end_of(chunk)),
            origin=chunk.origins,
        )
        return Draft(entry)

    async def _summarise(self, chunk: Chunk, memory: Memory) -> Draft | None:
        base, shown = await asyncio.to_thread(self._memory_shown, memory, chunk)
        room = self._gauge.request_tokens() - self._fixed - estimate_tokens(shown)
        room, again = max(_LEAST_ROOM, room), ""
        options = CallOptions(use="memory", tool_choice=SAVE_MEMORY.name)
        for _ in range(_ATTEMPTS):
            asked = user_message(request_text(shown, chunk, room, again))
            try:
                prompt = Prompt((self._system, asked), self._tools)
                reply = await self._provider.complete(prompt, options)
            except (ContextTooLong, ProviderGarbage) as error:
                room, again = room // 2, str(error).rstrip(".")
                continue
            except ProviderError as error:
                logger.warning("{}: not consolidated: {}", chunk.session, error)
                self._record_failure(
                    _OUT_SECONDS, str(error), is_final=isinstance(error, ProviderRejected)
                )
                return None
            # In a thread, because an answer may be long.
            draft = await asyncio.to_thread(self._read, reply, chunk, base)
            if isinstance(draft, Draft):
                self._failures, self._out_until, self.problem = 0, 0.0, ""
                return draft
            again = draft
        logger.warning("{}: archived without a summary: {}", chunk.session, again)
        self._record_failure(0.0, again)
        return self.raw(chunk)

    def _read(self, reply: Reply, chunk: Chunk, base: str) -> Draft | str:
        from nanobot.memory.consolidation.changes import read_draft  # not needed at the start

        raw, end = self.raw(chunk).entry, self._end_of(chunk)
        return read_draft(reply, chunk, base, raw, end, self._echoes)

    def _record_failure(self, seconds: float, why: str, *, is_final: bool = False) -> None:
        self._failures += 1
        if is_final or self._failures >= _FAILURES:
            times = "" if self._failures == 1 else f" {self._failures} times in a row"
            self.problem = f"consolidation failed{times}: {why}"
        if self._failures >= _FAILURES:
            logger.warning("consolidation failed {} times and is paused", self._failures)
            seconds = _PAUSE
        self._out_until = max(self._out_until, self._clock.monotonic() + seconds)

    def _end_of(self, chunk: Chunk) -> datetime:
        times = (message.timestamp for message in reversed(chunk.messages))
        return next(filter(None, times), None) or self._clock.now()

    def _memory_shown(self, memory: Memory, chunk: Chunk) -> tuple[str, str]:
        """Return the long-term memory for comparison with the answer, and for the request. It takes
        at most half of a request."""
        most = min(self._gauge.request_tokens() // 2, MOST_SHOWN)
        try:
            said = (message.content for message in chunk.contents)
            text = memory.recall.select_related(LONG_TERM, said, most)
            return text, text if memory.store.facts(LONG_TERM) else ""
        except NanobotError as error:
            logger.warning("consolidating without the current memory: {}", error)
            return "", ""


_HEAD = "Process this conversation and call the save_memory tool with your consolidation."
_MEMORY, _CONVERSATION = "## Current Long-term Memory", "## Conversation to Process"


def request_text(memory: str, chunk: Chunk, room: int, again: str = "") -> str:
    """Return the user message of a consolidation.

    `memory` is the long-term memory for the request, or empty. `room` limits the conversation's
    tokens. `again` is the problem with the last answer."""
    head = _HEAD
    if again:
        head += f"\n\nYour last answer could not be used: {again}."
    return (
        f"{head}\n\n{_MEMORY}\n{memory.strip() or '(empty)'}\n\n"
        f"{_CONVERSATION}\n{conversation(chunk.contents, room)}"
    )


def conversation(messages: Sequence[Message], room: int) -> str:
    """Return the lines of these messages, shortened to about `room` tokens in all, so that the
    request fits the model's window.

    A line is `[2026-03-10T18:00] USER: …`, `ASSISTANT [tools: a, b]: …` or `TOOL: …`, with `?` for
    an unknown time. Further lines are indented, so that no part of a message can pass for a
    message. A long message is shown by its head and tail, a tool's result more briefly than the
    person's words. If that is still too long, the longest messages are shortened to one length that
    fits."""
    texts = [head_and_tail(render_content(message), _limit(message, room)) for message in messages]
    costs = [estimate_tokens(text) for text in texts]
    left = room - sum(estimate_tokens(render_head(message)) + 2 for message in messages)
    if sum(costs) > left:
        level = find_common_length(costs, left)
        texts = [
            head_and_tail(text, level) if cost > level else text
            for text, cost in zip(texts, costs, strict=True)
        ]
    indented = ("\n  ".join(text.splitlines()) for text in texts)
    rows = zip(messages, indented, strict=True)
    return "\n".join(f"{render_head(message)} {text}".rstrip() for message, text in rows)


def head_and_tail(text: str, tokens: int) -> str:
    """Return `text`, or its head and tail if it has more than about `tokens`."""
    cost = estimate_tokens(text)
    if cost <= tokens:
        return text
    keep = max(0, int(len(text) * tokens / cost) - 48)
    head = keep * 3 // 4
    tail = text[len(text) - (keep - head) :]
    return f"{text[:head]} [… {len(text) - keep} characters left out …] {tail}".strip()


def raw_summary(chunk: Chunk) -> str:
    """Return an entry's text for a stretch without a summary: how it began, in its own words."""
    said = [words for message in chunk.contents if (words := message.own_words.strip())]
    said = said or [
        render_content(message) for message in chunk.contents if message.role == "assistant"
    ]
    lines = [shorten(text, _RAW_LINE) for text in said]
    fitting = sum(size <= _RAW_CHARACTERS for size in accumulate(map(len, lines)))
    excerpt = " / ".join([*lines[:fitting], *(["…"] if fitting < len(lines) else [])])
    count = pluralize(len(chunk.messages), "message")
    kept = f"{count}, not summarised; the full text is in the archive."
    return f"{kept} Excerpt: {excerpt}" if excerpt else kept


def render_head(message: Message) -> str:
    time = message.timestamp.strftime("%Y-%m-%dT%H:%M") if message.timestamp else "?"
    used = message.role == "assistant" and message.tools_used
    tools = f" [tools: {', '.join(message.tools_used)}]" if used else ""
    return f"[{time}] {message.role.upper()}{tools}:"


def render_content(message: Message) -> str:
    kind, _, name = message.origin.partition(":")
    mark = _MARKS.get(kind, "[untrusted content from {origin}]")
    if kind == "attached" and message.role == "assistant":
        mark = ""
    mark = mark.format(name=name, origin=message.origin)
    parts = [mark, KEPT if message.kept else "", message.text.strip()]
    return " ".join(filter(None, parts))


def _limit(message: Message, room: int) -> int:
    """Return the maximum tokens of a message by itself."""
    text = min(_MOST_CHARACTERS[message.role] // 3, int(room * _SHARE_OF_ROOM[message.role]))
    return max(text, _LEAST_TOKENS)


def find_common_length(costs: Sequence[int], room: int) -> int:
    """Return the length to which all longer ones must be cut to fit within `room`."""
    left, waiting = room, len(costs)
    for cost in sorted(costs):
        if cost * waiting >= left:
            break
        left -= cost
        waiting -= 1
    return max(left // max(waiting, 1), _LEAST_TOKENS)
