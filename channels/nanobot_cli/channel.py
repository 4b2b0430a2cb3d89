"""The CLI as a channel: clients of the control socket say something and wait for its answer.

Each request becomes one inbound message with the event id `cli:<request id>`, and a waiter under
that id that is there before the message is published, so that no answer can come too early. The
waiter gets exactly one last word, the reply. Whom a part answers stands on the part. One that
answers nobody was said before the reply or by itself (by a job, about a helper), and whoever waits
in its chat or watches it sees it; where nobody does it is kept, and seen once by the next who
watches. One that answers what nobody here waits for any more (its client is gone, or the gateway
was restarted meanwhile) is seen by those who watch, and accepted all the same where nobody does:
the session keeps it.

Whoever listens at the other end of the control socket: for one answer, or for a conversation.

What was said in a terminal chat while nobody looked, kept until somebody does.

What always holds: the file is the old one or the new one, whole, and for its owner's eyes (0600);
nothing stands in it twice; it has an end, beyond which the oldest gives way, and the conversation
itself keeps everything anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from loguru import logger
from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot.bus.events import (
    Button,
    InboundMessage,
    Media,
    Notice,
    OutboundPart,
    Progress,
    Receipt,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.channel import ChannelHost, Chat, Limits, Sender
from nanobot.clock import Clock, SystemClock
from nanobot.disk import replace
from nanobot.errors import NanobotError, SendRefused, StorageError
from nanobot_cli.wire import (
    Accepted,
    ChatRequest,
    Choice,
    Delta,
    Note,
    Output,
    Reply,
    Said,
    SentFile,
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


MOST_PARTS = 200
"""Of all chats together."""

MOST_CHARACTERS = 20_000
"""Of one part."""

_MOST_IN_ALL = 1_000_000
_FILE = "unseen.json"


@dataclass(frozen=True, slots=True)
class Unseen:
    """A part that nobody has seen. `key` is that of the part, `at` the moment in ISO format."""

    key: str
    chat_id: str
    at: str
    text: str
    media: tuple[Media, ...] = ()
    buttons: tuple[Button, ...] = ()

    @classmethod
    def of(cls, part: OutboundPart, at: str) -> Unseen:
        """As it is kept: what is very long is cut."""
        text = part.content
        if len(text) > MOST_CHARACTERS:
            where = f"nanobot sessions show {part.channel}:{part.chat_id}"
            text = f"{text[:MOST_CHARACTERS]}\n[cut off here; the whole is in: {where}]"
        return cls(part.key, part.chat_id, at, text, part.media, part.buttons)


class _Stored(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    parts: tuple[Unseen, ...]


class Shelf:
    """Keeps them in `folder`, which exists. Blocks; one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def add(self, unseen: Unseen) -> None:
        """Keep one, durably; the same one again changes nothing. Raises `StorageError`."""
        kept = self._read()
        if all(one.key != unseen.key for one in kept):
            self._write(_bounded((*kept, unseen)))

    def take(self, chat_id: str) -> Sequence[Unseen]:
        """Those of a chat, the oldest first, which are kept no more. Raises `StorageError`, and
        then all are kept."""
        kept = self._read()
        taken = [one for one in kept if one.chat_id == chat_id]
        if taken:
            self._write([one for one in kept if one.chat_id != chat_id])
        return taken

    def _read(self) -> list[Unseen]:
        """A damaged file is put aside: nothing is lost but that it is shown."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        try:
            return list(_Stored.model_validate_json(content).parts)
        except ValidationError:
            aside = self._path.with_suffix(".damaged")
            logger.error("cli: {} is damaged and put aside as {}", self._path, aside.name)
            with suppress(OSError):
                self._path.replace(aside)
            return []

    def _write(self, kept: Sequence[Unseen]) -> None:
        stored = _Stored(version=1, parts=tuple(kept)).model_dump()
        # What is no text, such as half a name that is not UTF-8, must not be tried for ever.
        content = json.dumps(stored, ensure_ascii=False).encode(errors="replace")
        try:
            replace(self._path, content)
        except OSError as error:
            raise StorageError.of(self._path, error) from error


def _bounded(kept: Sequence[Unseen]) -> list[Unseen]:
    """The newest of them, as many as there is room for."""
    newest: list[Unseen] = []
    room = _MOST_IN_ALL
    for one in reversed(kept[-MOST_PARTS:]):
        room -= len(one.text)
        if room < 0:
            break
        newest.append(one)
    return newest[::-1]


PERSON = "owner"
"""The sender of every message: the socket is open to the home's owner only."""

_NO_LIMIT = 1 << 62


class CliChannel:
    """Implements `nanobot.channel.Channel` for the clients of the control socket."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._waiters: dict[str, Listener] = {}
        self._watchers: list[Listener] = []
        self._turns: dict[str, dict[str, None]] = {}
        self._host: ChannelHost | None = None
        self._running = asyncio.Event()
        self._begun = asyncio.Event()
        self._telling = asyncio.Lock()

    @property
    def name(self) -> str:
        return "cli"

    @property
    def limits(self) -> Limits:
        return Limits(caption=_NO_LIMIT, files=0, closing=True)

    async def run(self, host: ChannelHost) -> None:
        self._host = host
        self._begun.set()
        self._running.set()
        try:
            await asyncio.Event().wait()  # the control server brings the messages
        finally:
            self._running.clear()

    async def chat(self, request: Mapping[str, object], connection: Connection) -> None:
        """Take one request of the control socket; returns once its message is durable, or it is
        noted who watches.

        Everything said about it from then on goes to `connection`. Raises `NanobotError` for a
        request that cannot be taken; nothing is stored then.
        """
        said = _parse(request)
        message = self._as_message(said)
        if message.event_id in self._waiters and not self._waiters[message.event_id].gone:
            raise _seen_before(said)
        await self._running.wait()
        host = await self._core()
        if host.admit(Sender(PERSON), Chat(message.chat_id)) != "allowed":
            raise NanobotError("the gateway does not take messages from this terminal")
        self._forget_the_gone()
        listener = Listener(said, message.chat_id, connection)
        if said.watch:
            listener.accept()
            async with self._telling:  # until they have seen that, what comes now waits
                await self._tell_what_was_kept(host, listener)
                self._watchers.append(listener)
        else:
            await self._publish(host, message, listener)

    async def send(self, part: OutboundPart) -> Receipt:
        if not part.event_ids:
            await self._tell_or_keep(part)
            return Receipt()
        awaited = [event_id for event_id in part.event_ids if event_id in self._waiters]
        if all(self._waiters[event_id].gone for event_id in awaited):
            watching = [one for one in self._in_chat(part.chat_id) if one.watches]
            self._tell(await self._core(), part, watching)
        for event_id in awaited:
            self._waiters[event_id].collect(part.content)
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
            case TextDelta() | ToolStarted() | ToolOutput():
                waiting = self._turns.get(event.turn_id, ())
                self._show(event, [self._waiters[key] for key in waiting if key in self._waiters])

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

    async def _publish(self, host: ChannelHost, message: InboundMessage, waiter: Listener) -> None:
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
        awaited = [event_id for event_id in event.event_ids if event_id in self._waiters]
        if awaited:
            self._turns.setdefault(event.turn_id, {}).update(dict.fromkeys(awaited))

    def _end(self, event: TurnEnded) -> None:
        self._turns.pop(event.turn_id, None)
        for event_id in event.event_ids:
            if (waiter := self._waiters.get(event_id)) is not None:
                waiter.end(event)
                if event.outcome in ("stopped", "held"):  # no reply will come
                    self._finish(event_id)

    async def _tell_or_keep(self, part: OutboundPart) -> None:
        """Raises `StorageError` where nobody listens and the disk will not keep it."""
        host = await self._core()
        async with self._telling:
            if listeners := self._in_chat(part.chat_id):
                self._tell(host, part, listeners)
            elif part.content.strip() or part.media:
                unseen = Unseen.of(part, self._clock.now().isoformat())
                await asyncio.to_thread(Shelf(host.state_folder).add, unseen)

    async def _tell_what_was_kept(self, host: ChannelHost, watcher: Listener) -> None:
        try:
            kept = await asyncio.to_thread(Shelf(host.state_folder).take, watcher.chat_id)
        except StorageError as error:
            logger.warning("cli: what was said meanwhile cannot be shown: {}", error)
            return
        for unseen in kept:
            watcher.tell(_said(host, unseen.text, unseen.media, unseen.buttons, unseen.at))

    def _tell(self, host: ChannelHost, part: OutboundPart, listeners: Iterable[Listener]) -> None:
        """Show what answers nobody who waits, once to each client.

        A choice is offered to those who watch it, where there are any: whoever only waits for an
        answer need not be a person.
        """
        listeners = one_each(listeners)
        said = _said(host, part.content, part.media, part.buttons)
        watched = any(listener.watches for listener in listeners)
        for listener in listeners:
            may_choose = listener.watches or not watched
            listener.tell(said if may_choose else said._replace(choices=()))

    def _show(self, event: Shown, listeners: Iterable[Listener]) -> None:
        for listener in one_each(listeners):
            listener.show(event)

    def _in_chat(self, chat_id: str) -> list[Listener]:
        listeners = [*self._watchers, *self._waiters.values()]
        return [one for one in listeners if one.chat_id == chat_id and not one.gone]

    async def _core(self) -> ChannelHost:
        """The core, once `run` has begun; what is said while it ends still has its place."""
        await self._begun.wait()
        assert self._host is not None
        return self._host

    def _finish(self, event_id: str) -> None:
        self._waiters.pop(event_id).reply()

    def _forget_the_gone(self) -> None:
        for event_id in [key for key, waiter in self._waiters.items() if waiter.gone]:
            del self._waiters[event_id]
        self._watchers = [watcher for watcher in self._watchers if not watcher.gone]


def _parse(request: Mapping[str, object]) -> ChatRequest:
    try:
        return ChatRequest.parse(request)
    except ValueError as error:
        raise NanobotError(str(error)) from error


def _said(
    host: ChannelHost, text: str, media: Iterable[Media], buttons: Iterable[Button], at: str = ""
) -> Said:
    """As a client is told, with the files that are still there."""
    lines, files = [text], []
    for one in media:
        try:
            path = host.path_of(one)
        except SendRefused:  # the words are shown all the same
            lines.append(f"[the file {one.name or one.ref} is no longer there]")
        else:
            files.append(SentFile(one.name, str(path), one.size))
    return Said("", "\n".join(filter(None, lines)), tuple(files), _choices(buttons), at)


def _choices(buttons: Iterable[Button]) -> tuple[Choice, ...]:
    mine = [button for button in buttons if button.only in ("", PERSON)]
    return tuple(Choice(button.label, button.value) for button in mine)


def _seen_before(said: ChatRequest | InboundMessage) -> NanobotError:
    session = said.session if isinstance(said, ChatRequest) else said.session_key
    return NanobotError(
        "this message has been received before",
        hint=f"Its answer is in the session: nanobot sessions show {session}",
    )
