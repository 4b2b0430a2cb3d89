"""How far apart the calls are that show text in one chat: pure.

Telegram counts what a bot does in all, and what it does in a group within a minute. Most of that is
for replies, so previews give way: all slow down where many chats show text at once, and those of a
group after some edits.
"""

from __future__ import annotations

_DRAFT_PACE = 0.5
_EDIT_PACE = 3.0
_SLOW_EDIT_PACE = 6.0
_QUICK_EDITS = 5
"""So many edits within a minute are followed by a short pause, the others by a long one. With that
at most 13 of the 20 messages that a group takes in a minute are previews."""

_TEXTS_A_SECOND = 15
"""Of about 30 calls that Telegram takes from a bot, in all chats."""

_MINUTE = 60.0


class Pace:
    """One chat. Times are seconds of one monotonic clock."""

    def __init__(self, *, is_group: bool) -> None:
        self._is_group = is_group
        self._edits: list[float] = []

    def next(self, now: float, crowd: int = 1) -> float:
        """When text may be shown again after a call that ended now. `crowd`: so many chats show
        text, this one with them."""
        return now + max(self._usual(now), crowd / _TEXTS_A_SECOND)

    def _usual(self, now: float) -> float:
        if not self._is_group:
            return _DRAFT_PACE
        self._edits = [*(at for at in self._edits if at > now - _MINUTE), now]
        return _EDIT_PACE if len(self._edits) <= _QUICK_EDITS else _SLOW_EDIT_PACE
