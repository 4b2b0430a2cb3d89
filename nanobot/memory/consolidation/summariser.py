"""One stretch of conversation, one call of the model: what comes of it, however the model behaves.

An answer that cannot be used is asked for once more, with the reason; then the stretch is archived
raw. A model that is out is left alone (`None`): whether the stretch can wait for it is the caller's
decision. After three failures in a row it is left alone for five minutes. A turn that needs room
waits for half a minute in all. The request fits the model's window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import (
    ContextTooLong,
    NanobotError,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ToolError,
    TurnStopped,
)
from nanobot.memory.cleaning import Echoes
from nanobot.memory.consolidation.planning import PromptGauge
from nanobot.memory.consolidation.request import (
    SAVE_MEMORY,
    Chunk,
    Saved,
    own_words,
    raw_summary,
    read_reply,
    request_text,
)
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.history import STAMP, HistoryEntry, with_stamp
from nanobot.memory.lines import Operation
from nanobot.memory.recall import MOST_SHOWN
from nanobot.memory.scopes import Memory
from nanobot.memory.taint import is_foreign, quotation
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Provider,
    Reply,
    Toolset,
    estimate_tokens,
    system_message,
    user_message,
)
from nanobot.tasks import Background
from nanobot.templates import render

_ATTEMPTS = 2
_FAILURES = 3
_PAUSE, _OUT_SECONDS = 300.0, 60.0
_TURN_SECONDS = 30.0
"""How long a turn waits for the model to make room; it does not ask a model that is out again."""
_LEAST_ROOM = 400


class Draft(Struct, frozen=True):
    """An entry that is not committed yet. `held` are changes of memory that wait for the person."""

    entry: HistoryEntry
    held: tuple[Operation, ...] = ()


class Summariser:
    """Asks `provider`; `gauge` says how large a request may be. There is one call at a time for a
    conversation."""

    def __init__(
        self, provider: Provider, clock: Clock, gauge: PromptGauge, background: Background
    ) -> None:
        self._provider, self._clock = provider, clock
        self._gauge, self._background = gauge, background
        self._system = system_message(render("consolidate.md"))
        self._tools = Toolset.of([SAVE_MEMORY])
        self._echoes = Echoes([self._system.text, *own_words()])
        self._fixed = estimate_tokens(self._system.text + self._tools.wire.decode()) + 100
        self._failures, self.problem = 0, ""
        """`problem`: why the model failed so often in a row, or refused; empty if it did not."""
        self._out_until = 0.0
        self._calls: dict[str, asyncio.Task[Draft | None]] = {}
        self._stopped: set[asyncio.Task[Draft | None]] = set()

    @property
    def is_out(self) -> bool:
        """Whether the model did not answer a moment ago: who is in a hurry need not ask."""
        return self._clock.monotonic() < self._out_until

    @property
    def is_resting(self) -> bool:
        """Whether the model failed so often that it is not asked for now."""
        return self._failures >= _FAILURES and self.is_out

    async def end_late_calls(self, key: str) -> None:
        """End a call for the conversation `key` that takes longer than a turn waits, until
        cancelled."""
        while True:
            await self._clock.sleep(_TURN_SECONDS)
            if (call := self._calls.get(key)) is not None:
                call.cancel()

    def stop(self, key: str) -> None:
        """End the call for the conversation `key`, because its turn was stopped."""
        if (call := self._calls.get(key)) is not None:
            self._stopped.add(call)
            call.cancel()

    async def summarise(self, chunk: Chunk, memory: Memory) -> Draft | None:
        """The draft for a stretch; None where the model is out, or takes too long. Raises
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
            raise TurnStopped("the turn that needed it was stopped")
        # This is no failure: a slow model still answers who has time.
        logger.warning("{}: no consolidation: the model takes too long", key)
        self._out_until = max(self._out_until, self._clock.monotonic() + _OUT_SECONDS)
        return None

    def raw(self, chunk: Chunk) -> Draft:
        """The draft for a stretch that no model reads."""
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
        for _ in range(_ATTEMPTS):
            try:
                reply = await self._ask(request_text(shown, chunk, room, again))
            except (ContextTooLong, ProviderGarbage) as error:
                room, again = room // 2, str(error).rstrip(".")
                continue
            except ProviderError as error:
                logger.warning("{}: no consolidation: {}", chunk.session, error)
                self._failed(_OUT_SECONDS, str(error), is_final=isinstance(error, ProviderRejected))
                return None
            # A model may answer anything, of any length.
            draft = await asyncio.to_thread(self._read, reply, chunk, base)
            if isinstance(draft, Draft):
                self._failures, self._out_until, self.problem = 0, 0.0, ""
                return draft
            again = draft
        logger.warning("{}: archived without a summary: {}", chunk.session, again)
        self._failed(0.0, again)
        return self.raw(chunk)

    async def _ask(self, text: str) -> Reply:
        return await self._provider.complete(
            Prompt((self._system, user_message(text)), self._tools),
            CallOptions(use="memory", tool_choice=SAVE_MEMORY.name),
        )

    def _failed(self, seconds: float, why: str, *, is_final: bool = False) -> None:
        self._failures += 1
        if is_final or self._failures >= _FAILURES:
            times = "" if self._failures == 1 else f" {self._failures} times in a row"
            self.problem = f"consolidation failed{times}: {why}"
        if self._failures >= _FAILURES:
            logger.warning("consolidation failed {} times; it pauses", self._failures)
            seconds = _PAUSE
        self._out_until = max(self._out_until, self._clock.monotonic() + seconds)

    def _read(self, reply: Reply, chunk: Chunk, base: str) -> Draft | str:
        """The draft that an answer comes to, or what was wrong with it."""
        from nanobot.memory.consolidation.changes import (  # a start does without
            MOST_SET_ASIDE,
            checked_facts,
            checked_summary,
            memory_changes,
        )
        from nanobot.memory.support import Talk

        saved = read_reply(reply)
        if isinstance(saved, str):
            return saved
        quoted = list(self._quoted(saved, chunk))
        talk = Talk(one for one in chunk.shown if not is_foreign(one))
        changes = memory_changes(
            base,
            saved.memory_update,
            talk,
            tainted=bool(chunk.origins),
            quoted=quoted,
            echoes=self._echoes,
        )
        raw = self.raw(chunk).entry
        stamp, said = STAMP.match(saved.history_entry), saved.history_entry
        days = {f"{one.timestamp:%Y-%m-%d}" for one in chunk.messages if one.timestamp}
        head = stamp[0] if stamp and stamp[1] in days else ""
        said = said[stamp.end() :] if stamp else said
        # Untrusted content supports no fact: its entry carries the mark instead.
        summary, aside = said.strip(), list[str]()
        if not chunk.origins:
            summary, aside = checked_summary(said, talk, self._echoes)
        entry = replace(
            raw,
            type="consolidation",
            summary=with_stamp(f"{head} {summary}".lstrip(), self._end_of(chunk))
            if summary
            else raw.summary,
            key_facts=tuple(checked_facts(saved.key_facts, talk, self._echoes)),
            operations=changes.operations,
            set_aside=(*changes.set_aside, *aside)[:MOST_SET_ASIDE],
        )
        return Draft(entry, changes.held)

    def _quoted(self, saved: Saved, chunk: Chunk) -> Iterator[str]:
        """The lines of the person's that the model named, whole."""
        for words in saved.quotes:
            try:
                yield quotation(words, chunk.messages, self._end_of(chunk).date())
            except ToolError as error:
                logger.info("{}: a quotation is left out: {}", chunk.session, error)

    def _end_of(self, chunk: Chunk) -> datetime:
        """When a stretch of conversation ended."""
        times = (message.timestamp for message in reversed(chunk.messages))
        return next(filter(None, times), None) or self._clock.now()

    def _memory_shown(self, memory: Memory, chunk: Chunk) -> tuple[str, str]:
        """The long-term memory that the model knows: what its answer is compared with, and as it is
        shown; at most as much of it as takes half a request."""
        most = min(self._gauge.request_tokens() // 2, MOST_SHOWN)
        try:
            said = (message.content for message in chunk.shown)
            text = memory.recall.related(LONG_TERM, said, most)
            return text, text if memory.store.facts(LONG_TERM) else ""
        except NanobotError as error:
            logger.warning("consolidating without the current memory: {}", error)
            return "", ""
