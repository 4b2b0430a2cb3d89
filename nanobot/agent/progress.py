"""Shows a turn's progress in the chat it belongs to: a hook like any other."""

from __future__ import annotations

from typing import Protocol

from nanobot.agent.hooks import AgentHook
from nanobot.bus.events import Progress, TextDelta, ToolOutput, ToolStarted, TurnEnded, TurnStarted
from nanobot.messages import ToolCall
from nanobot.tooling import Caller


class Screen(Protocol):
    """Where progress can be shown."""

    def show(self, event: Progress) -> None:
        """Best effort, in order."""
        ...


class ProgressHook(AgentHook):
    """Turns what happens into events for the channel, in conversations with a person."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def turn_started(self, caller: Caller, event_ids: tuple[str, ...]) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, TurnStarted(*place, event_ids, caller.thread_id))

    def text(self, caller: Caller, delta: str, restart: bool) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, TextDelta(*place, delta, restart, caller.thread_id))

    async def tool_started(self, caller: Caller, call: ToolCall) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, ToolStarted(*place, call.hint, caller.thread_id))

    def tool_output(self, caller: Caller, call: ToolCall, text: str) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, ToolOutput(*place, text, caller.thread_id))

    async def turn_ended(self, ended: TurnEnded) -> None:
        if ended.begun_by in {"person", "report"}:
            self._screen.show(ended)

    def _show(self, caller: Caller, event: Progress) -> None:
        if caller.watched:
            self._screen.show(event)
