"""The CLI as a channel: clients of the control socket say something and wait for its answer.

Each request becomes one inbound message with the event id `cli:<request id>`, and a waiter under
that id that is there before the message is published, so that no answer can come too early. The
waiter gets exactly one last word, the reply. Whom a part answers stands on the part; one that
answers nobody was said before the reply, and whoever waits in its chat sees it. What nobody here
waits for (its client is gone, or the gateway was restarted meanwhile) is accepted all the same: the
session keeps it, and no later client gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from nanobot.bus.events import (
    InboundMessage,
    Media,
    Notice,
    OutboundPart,
    Progress,
    Receipt,
    TextDelta,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.channel import ChannelHost, Chat, Limits, Sender
from nanobot.clock import Clock, SystemClock
from nanobot.errors import NanobotError, SendRefused
from nanobot_cli.wire import (
    Accepted,
    ChatRequest,
    Delta,
    Note,
    Reply,
    Said,
    SentFile,
    Tool,
    to_json,
)

PERSON = "owner"
"""The sender of every message: the socket is open to the home's owner only."""

_NO_LIMIT = 1 << 62


class Connection(Protocol):
    """One client. `send` must not wait: a client that does not read is the connection's problem."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can reach the client."""
        ...

    def send(self, event: Mapping[str, object]) -> None:
        """Send one event; does nothing on a closed connection."""
        ...


class _Waiter:
    """One request whose answer has not come yet."""

    def __init__(self, request: ChatRequest, chat_id: str, connection: Connection) -> None:
        self.chat_id = chat_id
        self.connection = connection
        self._request = request
        self._accepted = False
        self._text: list[str] = []
        self._ended: TurnEnded | None = None

    @property
    def gone(self) -> bool:
        return self.connection.closed

    def accept(self) -> None:
        """Say that the message is durable, once and before anything else."""
        if not self._accepted:
            self._accepted = True
            self.connection.send(to_json(Accepted(self._request.id)))

    def show(self, event: TextDelta | ToolStarted | Notice) -> None:
        self.accept()
        match event:
            case Notice():
                self.connection.send(to_json(Note(self._request.id, event.text)))
            case TextDelta() if self._request.stream:
                self.connection.send(to_json(Delta(self._request.id, event.text, event.restart)))
            case ToolStarted() if self._request.stream:
                self.connection.send(to_json(Tool(self._request.id, event.hint)))

    def tell(self, text: str, files: tuple[SentFile, ...]) -> None:
        """Something was said that is not the reply."""
        self.accept()
        self.connection.send(to_json(Said(self._request.id, text, files)))

    def end(self, event: TurnEnded) -> None:
        self._ended = event

    def collect(self, text: str) -> None:
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


class CliChannel:
    """Implements `nanobot.channel.Channel` for the clients of the control socket."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._waiters: dict[str, _Waiter] = {}
        self._turns: dict[str, set[str]] = {}
        self._host: ChannelHost | None = None
        self._running = asyncio.Event()

    @property
    def name(self) -> str:
        return "cli"

    @property
    def limits(self) -> Limits:
        return Limits(caption=_NO_LIMIT, files=0, closing=True)

    async def run(self, host: ChannelHost) -> None:
        self._host = host
        self._running.set()
        try:
            await asyncio.Event().wait()  # the control server brings the messages
        finally:
            self._running.clear()
            self._host = None

    async def chat(self, request: Mapping[str, object], connection: Connection) -> None:
        """Take one request of the control socket; returns once its message is durable.

        Everything said about it from then on goes to `connection`. Raises `NanobotError` for a
        request that cannot be taken; nothing is stored then.
        """
        said = _parse(request)
        message = self._as_message(said)
        if message.event_id in self._waiters and not self._waiters[message.event_id].gone:
            raise _seen_before(said)
        await self._running.wait()
        host = self._host
        if host is None or host.admit(Sender(PERSON), Chat(message.chat_id)) != "allowed":
            raise NanobotError("the gateway does not take messages from this terminal")
        await self._publish(host, message, _Waiter(said, message.chat_id, connection))

    async def send(self, part: OutboundPart) -> Receipt:
        if not part.event_ids:
            self._tell(part)
        for event_id in part.event_ids:
            if (waiter := self._waiters.get(event_id)) is not None:
                waiter.collect(part.content)
                if part.last:
                    self._finish(event_id)
        return Receipt()

    async def fetch(self, media: Media, limit: int) -> bytes:
        raise SendRefused(f"the terminal has no files of its own to fetch ({media.ref})")

    async def show(self, event: Progress) -> None:
        match event:
            case TurnStarted():
                self._start(event)
            case TurnEnded():
                self._end(event)
            case Notice():
                self._show(event, self._in_chat(event.chat_id))
            case TextDelta() | ToolStarted():
                self._show(event, self._turns.get(event.turn_id, ()))

    def _as_message(self, said: ChatRequest) -> InboundMessage:
        own = said.session.startswith(f"{self.name}:")
        return InboundMessage(
            channel=self.name,
            chat_id=said.session.removeprefix(f"{self.name}:"),
            sender_id=PERSON,
            content=said.text,
            event_id=f"{self.name}:{said.id}",
            timestamp=self._clock.now(),
            session_override="" if own else said.session,
        )

    async def _publish(self, host: ChannelHost, message: InboundMessage, waiter: _Waiter) -> None:
        self._forget_the_gone()
        self._waiters[message.event_id] = waiter
        try:
            new = await host.publish([message])
        except BaseException:
            self._waiters.pop(message.event_id, None)
            raise
        if message.event_id in new:
            waiter.accept()
        elif self._waiters.pop(message.event_id, None) is waiter:
            raise _seen_before(message)

    def _start(self, event: TurnStarted) -> None:
        awaited = {event_id for event_id in event.event_ids if event_id in self._waiters}
        if awaited:
            self._turns.setdefault(event.turn_id, set()).update(awaited)

    def _end(self, event: TurnEnded) -> None:
        self._turns.pop(event.turn_id, None)
        for event_id in event.event_ids:
            if (waiter := self._waiters.get(event_id)) is not None:
                waiter.end(event)
                if event.outcome in ("stopped", "held"):  # no reply will come
                    self._finish(event_id)

    def _tell(self, part: OutboundPart) -> None:
        """Show what answers nobody, once to each client that waits in its chat."""
        waiters = [self._waiters[event_id] for event_id in self._in_chat(part.chat_id)]
        if self._host is None or not waiters:
            return
        lines, files = [part.content], []
        for media in part.media:
            try:
                path = self._host.path_of(media)
            except SendRefused:  # the words are shown all the same
                lines.append(f"[the file {media.name or media.ref} is no longer there]")
            else:
                files.append(SentFile(media.name, str(path), media.size))
        text = "\n".join(filter(None, lines))
        first = {id(waiter.connection): waiter for waiter in reversed(waiters)}
        for waiter in first.values():
            waiter.tell(text, tuple(files))

    def _show(self, event: TextDelta | ToolStarted | Notice, event_ids: Iterable[str]) -> None:
        for event_id in tuple(event_ids):
            if (waiter := self._waiters.get(event_id)) is not None:
                waiter.show(event)

    def _in_chat(self, chat_id: str) -> list[str]:
        return [key for key, waiter in self._waiters.items() if waiter.chat_id == chat_id]

    def _finish(self, event_id: str) -> None:
        self._waiters.pop(event_id).reply()

    def _forget_the_gone(self) -> None:
        for event_id in [key for key, waiter in self._waiters.items() if waiter.gone]:
            del self._waiters[event_id]


def _parse(request: Mapping[str, object]) -> ChatRequest:
    try:
        return ChatRequest.parse(request)
    except ValueError as error:
        raise NanobotError(str(error)) from error


def _seen_before(said: ChatRequest | InboundMessage) -> NanobotError:
    session = said.session if isinstance(said, ChatRequest) else said.session_key
    return NanobotError(
        "this message has been received before",
        hint=f"Its answer is in the session: nanobot sessions show {session}",
    )
