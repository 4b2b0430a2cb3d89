"""Which chat, and the key of the conversation in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

TERMINAL = "cli"
"""The channel that is always there. Whoever uses it is the owner, and names their chats."""

_THREAD = re.compile(r"(?P<chat>.+):(?P<thread>[0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """A chat, and the thread in it where it has some (Telegram's topics)."""

    channel: str
    chat_id: str
    thread_id: str = ""

    @property
    def key(self) -> str:
        """The conversation there: `channel:chat_id[:thread_id]`."""
        thread = f":{self.thread_id}" if self.thread_id else ""
        return f"{self.channel}:{self.chat_id}{thread}"

    @classmethod
    def of(cls, key: str) -> Address:
        """The chat behind a conversation's key. A thread is a number, and a terminal has none:
        `cli:taxes:2026` is a name that somebody gave."""
        channel, _, chat = key.partition(":")
        found = _THREAD.fullmatch(chat) if channel != TERMINAL else None
        return cls(channel, found["chat"], found["thread"]) if found else cls(channel, chat)
