"""The clients of the control socket that wait for a reply, or watch a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from nanobot.bus.events import TurnEnded
from nanobot_cli.wire import (
    Accepted,
    AgentMessage,
    ChatEvent,
    ChatRequest,
    Reply,
    Taken,
    to_json,
)

STILL_WAITS = (
    "Your message will be answered once the model is available again. To drop it, send /stop."
)


class Connection(Protocol):
    """One client. `send` must not block, even if the client does not read."""

    @property
    def is_closed(self) -> bool:
        """True if no event can reach the client any more."""

    def send(self, event: Mapping[str, object]) -> None:
        """Send one event. Do nothing on a closed connection."""


class Turn:
    """A running turn: the messages that it answers, and its steps that no client has heard."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.unheard: list[ChatEvent] = []


class Listener:
    """One request of a client: it waits for its reply, or watches a chat. Without a connection, it
    keeps the reply for a client that asks again."""

    def __init__(self, request: ChatRequest, chat_id: str, connection: Connection | None) -> None:
        self.request, self.chat_id, self.connection = request, chat_id, connection
        self.texts: list[str] = []
        """The parts of the reply so far."""
        self.ended: TurnEnded | None = None
        """The end of its turn. The reply may still come."""
        self.over = asyncio.Event()
        """Set with the reply."""
        self.is_repeated = False
        """True if the client lost another gateway after the message was stored."""
        self._accepted = False

    @property
    def is_gone(self) -> bool:
        """True if the client has disconnected."""
        return self.connection is None or self.connection.is_closed

    @property
    def is_over(self) -> bool:
        """True if the reply was sent."""
        return self.over.is_set()

    @property
    def is_answered(self) -> bool:
        """True if no text will follow the end of its turn: the notice of a pending message may have
        gone to the previous gateway."""
        outcome = self.ended.outcome if self.ended else ""
        return outcome in ("stopped", "held") or (outcome == "waiting" and self.is_repeated)

    def accept(self) -> None:
        """Report that the message is durable, once and before any other event."""
        if not self._accepted:
            self._accepted = True
            self._send(Accepted())

    def send(self, event: ChatEvent) -> None:
        """Send an event with the id of this request."""
        self.accept()
        self._send(event)

    def _send(self, event: ChatEvent) -> None:
        if self.connection is not None:
            self.connection.send(to_json(event._replace(id=self.request.id)))

    def join(self, turn_id: str, unheard: Iterable[ChatEvent] = ()) -> None:
        """Report the turn that answers this request, with its earlier steps."""
        for event in (Taken("", turn_id), *unheard) if self.request.stream else ():
            self.send(event)

    def send_from(self, chat_id: str, said: AgentMessage) -> None:
        """Send a message of a chat, which may not be this one."""
        self.send(said if chat_id == self.chat_id else said._replace(chat=chat_id))

    def reply(self) -> None:
        """Send the collected text, with the facts about its turn."""
        self.over.set()
        reply = Reply("", "".join(self.texts))
        if (end := self.ended) is not None:
            waits = end.outcome == "waiting" and not self.texts
            reply = reply._replace(
                text=STILL_WAITS if waits else reply.text,
                turn=end.turn_id,
                tools=end.tools,
                prompt_tokens=end.prompt_tokens,
                completion_tokens=end.completion_tokens,
                milliseconds=end.milliseconds,
                outcome=end.outcome,
                origin=end.origin,
            )
        self.send(reply)
