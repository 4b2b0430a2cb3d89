"""Keeping the prompt within the model's context window.

Until long-term consolidation takes a conversation's oldest part into memory, the oldest turns that
do not fit are left out of the prompt. Nothing is deleted: they stay in the session file, and
`/history` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from nanobot.agent.context import ContextBuilder
from nanobot.messages import Message
from nanobot.session.session import Session


class PromptWindow:
    """Shortens prompts. `budget` is how many tokens a prompt may have."""

    def __init__(self, context: ContextBuilder, *, budget: int) -> None:
        self._context = context
        self._budget = budget

    async def maybe_consolidate_by_tokens(
        self, session: Session, coming: Sequence[Message] = ()
    ) -> None:
        """Nothing while the prompt fits, with the `coming` messages after it; else bring it down to
        half of what there is room for."""
        tokens = self._context.tokens(session, coming)
        if tokens > self._budget:
            half = (self._budget - self._context.fixed_tokens(session)) // 2
            self._leave_out(session, tokens - self._budget + half, tokens - self._budget)

    def shrink(self, session: Session) -> bool:
        """Leave out the older half of the conversation. False when there was none to leave out."""
        history = self._context.tokens(session) - self._context.fixed_tokens(session)
        return self._leave_out(session, max(1, history // 2), 1)

    def _leave_out(self, session: Session, wanted: int, needed: int) -> bool:
        left_out = self._context.leave_out(session, wanted, needed)
        if left_out:
            logger.info(
                "session {}: {} old messages no longer fit the prompt", session.key, left_out
            )
        return bool(left_out)
