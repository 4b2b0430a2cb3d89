"""What has been counted since this gateway started: the ends of turns, and their tokens."""

from __future__ import annotations

from collections import Counter

from nanobot.agent.hooks import AgentHook
from nanobot.bus.events import TurnEnded


class Tally(AgentHook):
    """`turns` by how they ended, and the tokens of those that ended."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0

    async def turn_ended(self, ended: TurnEnded) -> None:
        self.turns[ended.outcome] += 1
        self.prompt_tokens += ended.prompt_tokens
        self.completion_tokens += ended.completion_tokens
