"""One stretch of conversation, one call of the model: what comes of it, however the model behaves.

An answer that cannot be used is asked for once more, with the reason; then the stretch is archived
raw, or with as much as could be read. A model that is out is left alone (`None`): whether the
stretch can wait for it is the caller's decision. The request fits the model's window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import (
    ContextTooLong,
    NanobotError,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ToolError,
)
from nanobot.memory.consolidation.limits import Breaker
from nanobot.memory.consolidation.planning import Chunk, raw_summary, request_text
from nanobot.memory.consolidation.saving import (
    SAVE_MEMORY,
    Saved,
    Unusable,
    learned,
    read_reply,
    with_stamp,
)
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.scopes import Memory
from nanobot.memory.store import guard
from nanobot.memory.taint import quotation
from nanobot.memory.text.lines import Operation
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Provider,
    Reply,
    Toolset,
    system_message,
    user_message,
)
from nanobot.providers.tokens import estimate_tokens
from nanobot.templates import render

_ATTEMPTS = 2
_MARGIN = 0.9
_LEAST_ROOM = 400
_OUT_SECONDS = 60.0
_NOT_SHOWN = "(the rest of the file is not shown; it is kept)"


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry in the making. `held` are changes of memory that wait for the person."""

    type: Literal["consolidation", "raw"]
    summary: str
    key_facts: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    held: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shown:
    """The memory that the model knows: `base` as it stands in the file, `text` as it is shown."""

    base: str
    text: str


@dataclass(slots=True)
class _Asking:
    """How to ask the next time."""

    room: int
    again: str = ""
    kept: Saved | None = None


class Summariser:
    """Asks `provider`. `budget` is how many tokens a request may have, `ratio` tells how the
    estimate of tokens has to be corrected, `model` overrides the configured model."""

    def __init__(
        self,
        provider: Provider,
        clock: Clock,
        *,
        budget: int,
        ratio: Callable[[], float],
        model: str = "",
    ) -> None:
        self._provider, self._clock = provider, clock
        self._budget, self._ratio, self._model = budget, ratio, model
        self._system = system_message(render("consolidate.md"))
        self._tools = Toolset.of([SAVE_MEMORY])
        self._fixed = estimate_tokens(self._system.text + self._tools.wire.decode()) + 100
        self._breaker = Breaker(clock)
        self._forces = True
        self._out_until = 0.0

    @property
    def is_resting(self) -> bool:
        """Whether the model failed so often that it is left alone for now."""
        return self._breaker.is_open

    @property
    def is_out(self) -> bool:
        """Whether the model did not answer a moment ago: who is in a hurry need not ask."""
        return self._clock.monotonic() < self._out_until

    def room(self, memory: Memory) -> int:
        """About how many tokens of conversation one request takes."""
        return self._room(self._shown(memory))

    async def summarise(self, chunk: Chunk, memory: Memory) -> Draft | None:
        """The draft for a stretch; None where the model is out."""
        if self._breaker.is_open:
            return None
        shown = self._shown(memory)
        asking = _Asking(self._room(shown))
        for _ in range(_ATTEMPTS):
            try:
                reply = await self._ask(shown, chunk, asking)
            except (ContextTooLong, ProviderGarbage) as error:
                asking.room //= 2
                asking.again = str(error).rstrip(".")
                continue
            except ProviderError as error:
                if self._forces and isinstance(error, ProviderRejected) and error.status == 400:
                    self._forces = False  # some models refuse to be told which tool to call
                    continue
                logger.warning("{}: no consolidation: {}", chunk.session, error)
                self._breaker.failed()
                self._out_until = self._clock.monotonic() + _OUT_SECONDS
                return None
            if (saved := self._judge(reply, shown, asking)) is not None:
                return self._draft(saved, chunk, shown)
        if asking.kept is not None:
            return self._draft(asking.kept, chunk, shown)
        logger.warning("{}: archived without a summary: {}", chunk.session, asking.again)
        self._breaker.failed()
        return self.raw(chunk)

    def gave_up(self, chunk: Chunk) -> None:
        """Nobody waited for the answer any longer. The breaker does not count this: a slow model
        still answers who has time."""
        logger.warning("{}: no consolidation: the model takes too long", chunk.session)
        self._out_until = self._clock.monotonic() + _OUT_SECONDS

    def raw(self, chunk: Chunk) -> Draft:
        """The draft for a stretch that no model reads."""
        return Draft("raw", with_stamp(raw_summary(chunk), self.when(chunk)))

    async def _ask(self, shown: _Shown, chunk: Chunk, asking: _Asking) -> Reply:
        text = request_text(shown.text, chunk, asking.room, asking.again)
        choice = SAVE_MEMORY.name if self._forces else ""
        return await self._provider.complete(
            Prompt((self._system, user_message(text)), self._tools),
            CallOptions(model=self._model, tool_choice=choice),
        )

    def _judge(self, reply: Reply, shown: _Shown, asking: _Asking) -> Saved | None:
        """What the reply saves, or None and how to ask again."""
        match read_reply(reply):
            case Unusable() as unusable:
                asking.again = unusable.reason
                asking.kept = asking.kept or unusable.partial
                return None
            case Saved() as saved:
                update = saved.memory_update
                reason = guard.refusal(shown.base, update) if update is not None else ""
                if not reason:
                    return saved
                logger.warning("the memory that a consolidation wants is refused: {}", reason)
                asking.again = f"the memory_update was refused: {reason}"
                asking.kept = replace(saved, memory_update=None)
        return None

    def _draft(self, saved: Saved, chunk: Chunk, shown: _Shown) -> Draft:
        self._breaker.succeeded()
        self._out_until = 0.0
        quoted = list(self._quoted(saved, chunk))
        tainted = bool(chunk.origins)
        result = learned(shown.base, saved.memory_update, tainted=tainted, quoted=quoted)
        summary = with_stamp(saved.history_entry, self.when(chunk))
        return Draft("consolidation", summary, saved.key_facts, result.operations, result.held)

    def _quoted(self, saved: Saved, chunk: Chunk) -> Iterator[str]:
        """The lines of the person's that the model named, whole."""
        for words in saved.quotes:
            try:
                yield quotation(words, chunk.messages, self.when(chunk).date())
            except ToolError as error:
                logger.info("{}: a quotation is left out: {}", chunk.session, error)

    def when(self, chunk: Chunk) -> datetime:
        """When a stretch of conversation ended."""
        times = (message.timestamp for message in reversed(chunk.messages))
        return next(filter(None, times), None) or self._clock.now()

    def _shown(self, memory: Memory) -> _Shown:
        """The long-term memory, at most as much of it as takes half a request."""
        try:
            text = memory.store.read_long_term()
            untouched = memory.store.is_untouched(LONG_TERM)
        except NanobotError as error:
            logger.warning("a consolidation goes without the memory so far: {}", error)
            return _Shown("", "")
        if untouched:
            return _Shown(text, "")
        most = int(self._budget * _MARGIN / self._ratio()) // 2
        if estimate_tokens(text) <= most:
            return _Shown(text, text)
        head = _first_lines(text, most)
        return _Shown(head, f"{head}\n{_NOT_SHOWN}")

    def _room(self, shown: _Shown) -> int:
        whole = int(self._budget * _MARGIN / self._ratio())
        return max(_LEAST_ROOM, whole - self._fixed - estimate_tokens(shown.text))


def _first_lines(text: str, tokens: int) -> str:
    """The beginning of `text`, whole lines of about `tokens` in all."""
    lines = list[str]()
    for line in text.splitlines():
        tokens -= estimate_tokens(line) + 1
        if tokens < 0:
            break
        lines.append(line)
    return "\n".join(lines)
