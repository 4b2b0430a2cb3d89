"""Tells the log how turns go: a hook like any other. What was said stays out of it."""

from __future__ import annotations

from loguru import logger

from nanobot.agent.hooks import AgentHook
from nanobot.bus.events import TurnEnded
from nanobot.messages import ToolCall
from nanobot.tooling import Caller, ToolResult


class Chronicle(AgentHook):
    """A line for each turn; for those who want to see more, each tool as well."""

    async def turn_started(self, caller: Caller, event_ids: tuple[str, ...]) -> None:
        logger.debug("{}: a turn begins", caller.session_key)

    async def tool_finished(
        self, caller: Caller, call: ToolCall, result: ToolResult, seconds: float
    ) -> None:
        logger.debug("{} took {:.1f} s", call.name, seconds)

    async def turn_ended(self, ended: TurnEnded) -> None:
        tokens = ended.prompt_tokens + ended.completion_tokens
        if ended.outcome == "done" and not tokens and not ended.milliseconds:
            return  # a command was answered
        used = (f"{ended.milliseconds / 1000:.1f} s", f"{tokens:,} tokens", *ended.tools)
        where = f"{ended.channel}:{ended.chat_id}"
        logger.info("{}: {} ({})", where, ended.outcome, ", ".join(dict.fromkeys(used)))
