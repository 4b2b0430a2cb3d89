"""Which messages of a conversation may be sent to a model: policy only, no files.

A model's API refuses a tool result without its call and a call without its results. So messages are
taken in groups: a call and all its results, side by side, or none of them. Such damage comes from
files cut by hand and from other programs. What is left begins at a user message, except where
consolidation took the beginning of a turn that was too long for a prompt.

Every message is judged once, when it is added; asking for the window afterwards costs a copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from nanobot.messages import Message


class Window:
    """The sendable messages among those added so far. `continues`: the first ones go on with a turn
    whose beginning was consolidated."""

    def __init__(self, messages: Iterable[Message] = (), *, continues: bool = False) -> None:
        self._valid: list[Message] = []
        self._begun = continues
        self._group: list[Message] = []
        self._missing_results: list[str] = []
        self.extend(messages)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages that follow those already here."""
        for message in messages:
            if message.role == "tool":
                self._add_result(message)
            else:
                self._add_spoken(message)

    def messages(self) -> list[Message]:
        """A copy of them."""
        return self._valid.copy()

    def _add_spoken(self, message: Message) -> None:
        self._group = []
        if message.role == "user":
            self._begun = True
        elif not self._begun:
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
