"""What can be shown in a chat while a turn runs: values, of which each becomes one call."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Typing:
    """The bot is seen typing, for five seconds."""

    turn_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Text:
    """Show `text`, and below it `hint` and the end of a tool's `output`: as a draft in a private
    chat, else in message `message_id` (0: in a new one). `version` tells this content from what
    comes later."""

    turn_id: str
    thread_id: str
    message_id: int
    text: str
    hint: str
    version: int
    output: str = ""

    @property
    def draft_id(self) -> int:
        """The same for the whole turn, never 0."""
        return int.from_bytes(sha256(self.turn_id.encode()).digest()[:4], "big") % 0x7FFFFFFF + 1


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a preview that nobody needs any more."""

    message_id: int
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Say:
    """Send a notice."""

    text: str
    thread_id: str


Step = Typing | Text | Remove | Say
