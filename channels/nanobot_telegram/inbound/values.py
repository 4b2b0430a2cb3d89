"""What reading an update gives, and what it takes to read one."""

from __future__ import annotations

from dataclasses import dataclass

from nanobot.bus.events import InboundMessage
from nanobot.channel import Chat, Sender


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself. `username` has no `@`; `commands` are the names of our slash commands."""

    id: int
    username: str
    commands: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Press:
    """A button under one of our messages was pressed. `button_id` is what it was sent with, `place`
    the id of the chat where that message stands, as Telegram has it."""

    query_id: str
    button_id: str
    place: str
    message_id: int

    def __post_init__(self) -> None:
        if not (isinstance(self.query_id, str) and isinstance(self.button_id, str)):
            raise TypeError("a button without an id")


@dataclass(frozen=True, slots=True)
class Understood:
    """One update: who, where, and one of the things that can be in it.

    `addressed`: it was meant for the agent (always so in private). `moved` are the old and the new
    id of a group that became a supergroup, as Telegram has them. `gone`: the chat is closed to us
    (we were blocked or removed), or, where False, open again. `ephemeral`: it is a message in a
    group that only its sender and we can see, which has no id to answer to.
    """

    sender: Sender
    chat: Chat
    addressed: bool
    message: InboundMessage | None = None
    press: Press | None = None
    moved: tuple[str, str] | None = None
    gone: bool | None = None
    ephemeral: bool = False
