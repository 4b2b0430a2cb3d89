"""Shows a turn's progress in the chat it belongs to: a hook like any other."""

from __future__ import annotations

import json
from typing import Protocol

from nanobot.agent.hooks import AgentHook
from nanobot.bus.events import Progress, TextDelta, ToolOutput, ToolStarted, TurnEnded, TurnStarted
from nanobot.messages import ToolCall
from nanobot.tooling import Caller

_HINT_CHARACTERS = 80


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
        self._show(caller, ToolStarted(*place, tool_hint(call), caller.thread_id))

    def tool_output(self, caller: Caller, call: ToolCall, text: str) -> None:
        place = (caller.channel, caller.chat_id, caller.turn_id)
        self._show(caller, ToolOutput(*place, text, caller.thread_id))

    async def turn_ended(self, ended: TurnEnded) -> None:
        if ended.begun_by in {"person", "report"}:
            self._screen.show(ended)

    def _show(self, caller: Caller, event: Progress) -> None:
        if caller.watched:
            self._screen.show(event)


def tool_hint(call: ToolCall) -> str:
    """A short line for people: the tool's name and its first short text argument."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.name
    values = arguments.values() if isinstance(arguments, dict) else ()
    first = next((value for value in values if isinstance(value, str) and value), "")
    return f"{call.name} {' '.join(first.split())}".strip()[:_HINT_CHARACTERS]
