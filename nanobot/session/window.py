"""Which messages of a conversation may be sent to a model: policy only, no files.

A model's API refuses a tool result without its call and a call without its results. So messages are
taken in groups: a call and all its results, side by side, or none of them. Such damage comes from
files cut by hand and from other programs. What is left begins at a user message, except where
consolidation took the beginning of a turn that was too long for a prompt.

Every message is judged once, when it is added; asking for the window afterwards costs a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import PurePath

from nanobot.messages import Message
from nanobot.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, estimate_tokens

_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})


def message_tokens(message: Message) -> int:
    """About how many tokens a message takes in a prompt, its calls and images included."""
    total = MESSAGE_OVERHEAD + estimate_tokens(message.content) + estimate_tokens(message.notice)
    for call in message.tool_calls:
        total += MESSAGE_OVERHEAD + estimate_tokens(call.name) + estimate_tokens(call.arguments)
    images = sum(PurePath(path).suffix.lower() in _IMAGES for path in message.media)
    return total + images * IMAGE_TOKENS


class Window:
    """The sendable messages among those added so far. `continues`: the first ones go on with a turn
    whose beginning was consolidated."""

    def __init__(self, messages: Iterable[Message] = (), *, continues: bool = False) -> None:
        self._continues = continues
        self._valid: list[Message] = []
        self._user_turns: list[int] = []
        self._group: list[Message] = []
        self._missing_results: list[str] = []
        self._count: Callable[[Message], int] = message_tokens
        self._totals = [0]
        self.extend(messages)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages that follow those already here."""
        for message in messages:
            if message.role == "tool":
                self._add_result(message)
            else:
                self._add_spoken(message)

    def select(
        self, max_messages: int, max_tokens: int, count: Callable[[Message], int]
    ) -> list[Message]:
        """The newest of them within both limits (0: no limit); where something is left out, from
        a user message on.

        `count` must give the same message the same number every time: results are kept.
        """
        start = 0
        if 0 < max_messages < len(self._valid):
            start = len(self._valid) - max_messages
        if max_tokens > 0:
            totals = self._counted(count)
            start = max(start, bisect_left(totals, totals[-1] - max_tokens))
        if start == 0:
            return self._valid.copy()
        turn = bisect_left(self._user_turns, start)
        return self._valid[self._user_turns[turn] :] if turn < len(self._user_turns) else []

    def _add_spoken(self, message: Message) -> None:
        self._group = []
        if message.role == "user":
            self._user_turns.append(len(self._valid))
        elif not self._user_turns and not self._continues:
            return
        if message.tool_calls and message.role == "assistant":
            self._group = [message]
            self._missing_results = [call.id for call in message.tool_calls]
        else:
            self._valid.append(message)

    def _add_result(self, message: Message) -> None:
        if not self._group or message.tool_call_id not in self._missing_results:
            return
        self._group.append(message)
        self._missing_results.remove(message.tool_call_id)
        if not self._missing_results:
            self._valid += self._group
            self._group = []

    def _counted(self, count: Callable[[Message], int]) -> list[int]:
        if count != self._count:
            self._count, self._totals = count, [0]
        for message in self._valid[len(self._totals) - 1 :]:
            self._totals.append(self._totals[-1] + count(message))
        return self._totals
