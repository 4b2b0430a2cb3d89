"""Whoever listens at the other end of the control socket: for one answer, or for a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from nanobot.bus.events import Notice, TextDelta, ToolOutput, ToolStarted, TurnEnded
from nanobot_cli.wire import (
    Accepted,
    ChatRequest,
    Delta,
    Note,
    Output,
    Reply,
    Said,
    Tool,
    to_json,
)

Shown = TextDelta | ToolStarted | ToolOutput | Notice


class Connection(Protocol):
    """One client. `send` must not wait: a client that does not read is the connection's problem."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can reach the client."""
        ...

    def send(self, event: Mapping[str, object]) -> None:
        """Send one event; does nothing on a closed connection."""
        ...


class Listener:
    """One request: that something be answered, or that a conversation be watched."""

    def __init__(self, request: ChatRequest, chat_id: str, connection: Connection) -> None:
        self.chat_id = chat_id
        self.connection = connection
        self._request = request
        self._accepted = False
        self._text: list[str] = []
        self._ended: TurnEnded | None = None

    @property
    def gone(self) -> bool:
        """Whether nobody listens any more."""
        return self.connection.closed

    @property
    def watches(self) -> bool:
        """Whether it waits for no answer."""
        return self._request.watch

    def accept(self) -> None:
        """Say that the message is durable, once and before anything else."""
        if not self._accepted:
            self._accepted = True
            self.connection.send(to_json(Accepted(self._request.id)))

    def show(self, event: Shown) -> None:
        """Something happens, of which the client hears as much as it wants to."""
        self.accept()
        request_id, streams = self._request.id, self._request.stream
        match event:
            case Notice():
                self.connection.send(to_json(Note(request_id, event.text)))
            case TextDelta() if streams:
                self.connection.send(to_json(Delta(request_id, event.text, event.restart)))
            case ToolStarted() if streams:
                self.connection.send(to_json(Tool(request_id, event.hint)))
            case ToolOutput() if streams:
                self.connection.send(to_json(Output(request_id, event.text)))

    def tell(self, said: Said) -> None:
        """Something was said that is not the reply."""
        self.accept()
        self.connection.send(to_json(said._replace(id=self._request.id)))

    def end(self, event: TurnEnded) -> None:
        """The turn is over; its reply may still come."""
        self._ended = event

    def collect(self, text: str) -> None:
        """A part of the reply."""
        self._text.append(text)

    def reply(self) -> None:
        """The last word: the text collected, with what is known about its turn."""
        self.accept()
        reply = Reply(self._request.id, "".join(self._text))
        if (end := self._ended) is not None:
            reply = reply._replace(
                turn=end.turn_id,
                tools=end.tools,
                prompt_tokens=end.prompt_tokens,
                completion_tokens=end.completion_tokens,
                milliseconds=end.milliseconds,
                outcome=end.outcome,
            )
        self.connection.send(to_json(reply))


def one_each(listeners: Iterable[Listener]) -> list[Listener]:
    """The first listener of each connection, so that nobody is told twice."""
    first: dict[int, Listener] = {}
    for listener in listeners:
        first.setdefault(id(listener.connection), listener)
    return list(first.values())
