"""What others may watch of a turn: the hook interface, progress in the chat, and a line in the log.

A hook that fails is logged and never breaks the turn.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from loguru import logger

from nanobot.bus.events import (
    InboundMessage,
    Progress,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.messages import ToolCall
from nanobot.tooling import ToolResult, TurnContext


class AgentHook:
    """Override what you need; every method does nothing by default."""

    def message_received(self, message: InboundMessage) -> None:
        """A message is stored and about to be routed. Be quick."""

    async def turn_started(self, caller: TurnContext, event_ids: tuple[str, ...]) -> None:
        """The agent begins to work on these events."""

    def text(self, caller: TurnContext, delta: str, restart: bool) -> None:
        """More text of the reply; `restart` voids what came before. Called often: be quick."""

    async def tool_started(self, caller: TurnContext, call: ToolCall) -> None:
        """A tool is about to run: nothing stands in its way, and where the owner had to be asked
        they have said yes. There is none for a call that does not run."""

    def tool_output(self, caller: TurnContext, call: ToolCall, text: str) -> None:
        """A running tool prints something. Called often: be quick."""

    async def tool_finished(
        self, caller: TurnContext, call: ToolCall, result: ToolResult, seconds: float
    ) -> None:
        """A tool that was started has run."""

    async def turn_ended(self, ended: TurnEnded) -> None:
        """The turn is committed; its reply is about to be sent."""


class CompositeHook(AgentHook):
    """Calls several hooks in order and keeps each one's failure to itself."""

    def __init__(self, hooks: Sequence[AgentHook]) -> None:
        self._hooks = tuple(hooks)

    def message_received(self, message: InboundMessage) -> None:
        for hook in self._hooks:
            with _contained(hook):
                hook.message_received(message)

    async def turn_started(self, caller: TurnContext, event_ids: tuple[str, ...]) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.turn_started(caller, event_ids)

    def text(self, caller: TurnContext, delta: str, restart: bool) -> None:
        for hook in self._hooks:
            with _contained(hook):
                hook.text(caller, delta, restart)

    async def tool_started(self, caller: TurnContext, call: ToolCall) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.tool_started(caller, call)

    def tool_output(self, caller: TurnContext, call: ToolCall, text: str) -> None:
        for hook in self._hooks:
            with _contained(hook):
                hook.tool_output(caller, call, text)

    async def tool_finished(
        self, caller: TurnContext, call: ToolCall, result: ToolResult, seconds: float
    ) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.tool_finished(caller, call, result, seconds)

    async def turn_ended(self, ended: TurnEnded) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.turn_ended(ended)


@contextlib.contextmanager
def _contained(hook: AgentHook) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the boundary: hooks never break a turn
        logger.opt(exception=error).warning("hook {} failed", type(hook).__name__)


class Screen(Protocol):
    """Where progress can be shown."""

    def show(self, event: Progress) -> None:
        """Best effort, in order."""
        ...


class ProgressHook(AgentHook):
    """Turns what happens into events for the channel, in conversations with a person."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def turn_started(self, caller: TurnContext, event_ids: tuple[str, ...]) -> None:
        if caller.watched:
            place = (caller.channel, caller.chat_id, caller.turn_id)
            self._screen.show(TurnStarted(*place, event_ids, caller.thread_id))

    def text(self, caller: TurnContext, delta: str, restart: bool) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, TextDelta(*place, delta, restart, caller.thread_id))

    async def tool_started(self, caller: TurnContext, call: ToolCall) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, ToolStarted(*place, call.hint, caller.thread_id))

    def tool_output(self, caller: TurnContext, call: ToolCall, text: str) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, ToolOutput(*place, text, caller.thread_id))

    async def turn_ended(self, ended: TurnEnded) -> None:
        if ended.begun_by in {"person", "report"}:
            self._screen.show(ended)

    def _show(self, caller: TurnContext, event: Progress) -> None:
        if caller.watched:
            self._screen.show(event)


class Chronicle(AgentHook):
    """A line in the log for each turn, and for those who want to see more each tool; and counts
    since the start: `turns` by how they ended, and the tokens of those that ended."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0

    async def turn_started(self, caller: TurnContext, event_ids: tuple[str, ...]) -> None:
        logger.debug("{}: a turn begins", caller.session_key)

    async def tool_finished(
        self, caller: TurnContext, call: ToolCall, result: ToolResult, seconds: float
    ) -> None:
        logger.debug("{} took {:.1f} s", call.name, seconds)

    async def turn_ended(self, ended: TurnEnded) -> None:
        self.turns[ended.outcome] += 1
        self.prompt_tokens += ended.prompt_tokens
        self.completion_tokens += ended.completion_tokens
        tokens = ended.prompt_tokens + ended.completion_tokens
        if ended.outcome == "done" and not tokens and not ended.milliseconds:
            return  # a command was answered
        used = (f"{ended.milliseconds / 1000:.1f} s", f"{tokens:,} tokens", *ended.tools)
        where = f"{ended.channel}:{ended.chat_id}"
        logger.info("{}: {} ({})", where, ended.outcome, ", ".join(dict.fromkeys(used)))
