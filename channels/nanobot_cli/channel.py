"""The CLI as a channel: clients of the control socket send a message and wait for its answer.

Each request becomes one inbound message with the event id `cli:<request id>`. Its listener is
registered before the message is published, so that no answer can come too early, and gets exactly
one reply. A part names the messages that it answers:

- A part without such messages comes before the reply or by itself (from a job, about a subagent).
  All listeners of its chat see it. Without listeners it is kept for the next watcher.
- A part whose listener is gone (also through a restart) is shown to the watchers and counts as
  delivered, because the session keeps it. If there are no watchers and the message had to wait
  for the model, the part is kept for the next watcher.

A client that loses its gateway repeats its request to the next one, with the same id, and gets the
answer there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from loguru import logger

from nanobot.bus.events import (
    OWNER_ACCOUNT,
    PAGE,
    Button,
    InboundMessage,
    Media,
    Notice,
    OutboundPart,
    Progress,
    Receipt,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnJoined,
    TurnStarted,
    Waiting,
)
from nanobot.channel import ChannelHost, Chat, GatewayEvent, Limits, Operation, Overview, Sender
from nanobot.channel.health import ConnectionSlot
from nanobot.channel.temporary import make_temporary
from nanobot.clock import with_timeout
from nanobot.errors import NanobotError, SendRefused, StorageError
from nanobot.text import shorten
from nanobot_cli.listeners import Connection, Listener, Turn
from nanobot_cli.unseen import Shelf
from nanobot_cli.uploads import Uploads, decode_files
from nanobot_cli.wire import (
    TEMPORARY,
    AgentMessage,
    ChatEvent,
    ChatRequest,
    Choice,
    Closed,
    Delta,
    Note,
    Output,
    Reading,
    SentFile,
    Tool,
    ToolDone,
)

PERSON = OWNER_ACCOUNT
"""The sender of every message: only the home's owner can open the socket."""

_NO_LIMIT = 1 << 62
_NEWEST, _SHOWN_CHARACTERS = 20, 300  # of a conversation that goes on at the page
_MOST_UNHEARD = 100  # replies kept for clients that ask again
_ON_ITS_WAY_SECONDS = 2.0  # longest time between the end of a turn and the sending of its reply


class CliChannel:
    """An implementation of `nanobot.channel.Channel` for the clients of the control socket."""

    name = "cli"
    limits = Limits(caption=_NO_LIMIT, files=0, closing=True, voice=True, shown_once=True)

    def __init__(self) -> None:
        self._requests: dict[str, Listener] = {}
        """The messages whose reply has not reached a client, by event id."""
        self._watchers: list[Listener] = []
        self._is_watched = asyncio.Event()
        """Set by the first watcher: nobody else needs the events of all conversations."""
        self._turns: dict[str, Turn] = {}
        self._overview: Overview | None = None
        self._postponed: set[str] = set()
        """Turns that go on later, whose requests have their reply."""
        self._core: ConnectionSlot[ChannelHost] = ConnectionSlot()
        self._telling = asyncio.Lock()

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """See `nanobot.channel.Overseer`."""
        self._overview = overview
        return {}

    async def run(self, host: ChannelHost) -> None:
        self._core.fill(host)  # messages come from the control server
        await self._is_watched.wait()
        if self._overview is None:
            await asyncio.Event().wait()
            return
        events: asyncio.Queue[tuple[str, InboundMessage | TurnEnded]] = asyncio.Queue()

        def note_event(happening: GatewayEvent) -> None:
            """Keep an event of the page in a conversation of the terminal."""
            event, key = happening.event, happening.session_key
            is_here = key.startswith("cli:")
            if is_here and isinstance(event, InboundMessage | TurnEnded) and event.channel == PAGE:
                events.put_nowait((key, event))

        with self._overview.watch(note_event):
            while True:
                await self._show_page(self._overview, *await events.get())

    async def _show_page(
        self, overview: Overview, key: str, event: InboundMessage | TurnEnded
    ) -> None:
        """Show a message that was written on the page, or the answer, which went there."""
        if not (watchers := self._watchers_of(key.removeprefix("cli:"))):
            return
        if isinstance(event, InboundMessage):
            words = f"You on the page: {shorten(event.content, _SHOWN_CHARACTERS)}"
            _show(Note("", words), watchers if event.content else ())
            return
        arguments = {"key": key, "limit": _NEWEST}
        shown: Any = await overview.operations["conversations.show"](arguments)
        for one in shown["messages"]:
            is_answer = one["role"] == "assistant" and one.get("turn") == event.turn_id
            if is_answer and one["content"]:
                _show(AgentMessage("", one["content"]), watchers)

    async def chat(self, data: Mapping[str, object], connection: Connection) -> None:
        """Process one request of the control socket. Return when its message is durable, or its
        watcher is registered.

        All later events of the request go to `connection`. Raises `NanobotError` for a rejected
        request, and stores nothing then."""
        request = ChatRequest.parse(data)
        event_id, chat_id = f"{self.name}:{request.id}", request.session.removeprefix("cli:")
        if event_id in self._requests and not self._requests[event_id].is_gone:
            raise _repeat_error(request)
        host = await self._core.wait()
        if host.admit(Sender(PERSON), Chat(chat_id)) != "allowed":
            raise NanobotError("the gateway does not accept messages from this terminal")
        self._forget_clients()
        listener = Listener(request, chat_id, connection)
        if request.watch:
            await self._watch(host, listener)
        else:
            await self._publish(host, event_id, listener)

    async def send(self, part: OutboundPart) -> Receipt:
        host = await self._core.wait()
        if not part.event_ids:
            await self._tell_or_keep(host, part)
            return Receipt()
        listeners = [self._listener(event_id) for event_id in part.event_ids]
        if all(one.is_gone for one in listeners):
            if part.late:  # the sender was asked to wait
                await self._tell_or_keep(host, part, watching=True)
            else:
                _tell(host, part, self._in_chat(part.chat_id, watching=True))
        for event_id, listener in zip(part.event_ids, listeners, strict=True):
            listener.texts.append(part.content)
            if part.last:
                self._reply(event_id)
        return Receipt()

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """See `nanobot.channel`."""
        _show(Closed("", outcome, _choices(part.buttons)), self._in_chat(part.chat_id))
        folder = (await self._core.wait()).state_folder
        async with self._telling:
            await asyncio.to_thread(Shelf(folder).close, part, outcome)

    async def forget_chat(self, folder: Path, key: str) -> None:
        """See `nanobot.channel.Keeper`."""
        async with self._telling:
            await asyncio.to_thread(Shelf(folder).take, key.removeprefix(f"{self.name}:"))

    async def fetch(self, media: Media, limit: int) -> bytes:
        """See `nanobot.channel`."""
        uploads = Uploads((await self._core.wait()).state_folder)
        return await asyncio.to_thread(uploads.read, media.ref, limit)

    async def show_progress(self, event: Progress) -> None:
        match event:
            case TurnStarted() | TurnJoined():
                self._take(event)
            case TurnEnded():
                self._end(event)
                if event.outcome in ("done", "failed", "stopped"):
                    uploads = Uploads((await self._core.wait()).state_folder)
                    await asyncio.to_thread(uploads.drop, event.event_ids)
            case Notice():
                _show(Note("", event.text), self._in_chat(event.chat_id))
            case Waiting():
                self._show_wait(event)
            case TextDelta():
                self._show_step(event.turn_id, Delta("", event.text, event.restart))
            case ToolStarted():
                self._show_step(event.turn_id, Tool("", event.hint))
            case ToolFinished():
                done = ToolDone("", event.hint, event.size, event.failed)
                self._show_step(event.turn_id, done)
            case ToolOutput():
                _show(Output("", event.text), self._in_turn(event.turn_id))

    async def _watch(self, host: ChannelHost, watcher: Listener) -> None:
        """Show the parts kept for the next watcher, then all later events."""
        watcher.accept()
        async with self._telling:  # later parts wait until the kept ones are shown
            try:
                chat = "" if watcher.request.everywhere else watcher.chat_id
                kept = await asyncio.to_thread(Shelf(host.state_folder).take, chat)
            except StorageError as error:
                logger.warning(
                    "cli: messages that arrived in the meantime can't be shown: {}", error
                )
                kept = ()
            for one in kept:
                said = _make_message(host, one.text, one.media, one.buttons, one.at)
                watcher.send_from(one.chat_id, said)
            self._watchers = [one for one in self._watchers if one.connection != watcher.connection]
            self._watchers.append(watcher)
            self._is_watched.set()

    async def _publish(self, host: ChannelHost, event_id: str, waiter: Listener) -> None:
        message = await self._read_message(host, event_id, waiter)
        heard = self._requests.get(event_id)
        self._requests[event_id] = waiter
        try:
            new = await host.publish([message])
        except BaseException:
            self._requests.pop(event_id, None)
            self._requests.update({event_id: heard} if heard else {})
            raise
        waiter.is_repeated = event_id not in new
        if waiter.is_repeated and not await self._is_unanswered(host, event_id, waiter, heard):
            if self._requests.get(event_id) is waiter:
                del self._requests[event_id]
            raise _repeat_error(waiter.request)
        waiter.accept()
        for turn_id, turn in self._turns.items():  # it was resumed before the client was back
            if event_id in turn.events and not waiter.is_over:
                waiter.join(turn_id, turn.unheard)

    async def _read_message(
        self, host: ChannelHost, event_id: str, waiter: Listener
    ) -> InboundMessage:
        """Return the message of a request, whose files are stored until it is answered. Raises
        `NanobotError`."""
        request, now = waiter.request, host.clock.now()
        files: tuple[Media, ...] = ()
        if request.attached:
            keep = partial(Uploads(host.state_folder).keep, event_id, decode_files(request))
            files = await asyncio.to_thread(keep, now.timestamp())
        message = InboundMessage(
            channel=self.name,
            chat_id=waiter.chat_id,
            sender_id=PERSON,
            content=request.text,
            event_id=event_id,
            timestamp=now,
            media=files,
            session_override="" if request.session.startswith("cli:") else request.session,
        )
        if request.is_temporary:
            message = make_temporary(message, request.earlier)
        return message

    async def _is_unanswered(
        self, host: ChannelHost, event_id: str, waiter: Listener, heard: Listener | None
    ) -> bool:
        """Return True if this process answers a message that is already stored: its reply is kept
        (in `heard`) or due, or its turn still runs."""
        if heard is not None:
            waiter.texts, waiter.ended = [*heard.texts, *waiter.texts], waiter.ended or heard.ended
            if heard.is_over or waiter.is_answered:
                self._reply(event_id)
        if waiter.is_over or await host.has_received(waiter.chat_id, event_id, unanswered=True):
            return True
        with suppress(TimeoutError):
            await with_timeout(host.clock, _ON_ITS_WAY_SECONDS, waiter.over.wait())
        return waiter.is_over

    def _forget_clients(self) -> None:
        """Drop the watchers that are gone, and old requests without a client."""
        gone = [event_id for event_id, one in self._requests.items() if one.is_gone]
        for event_id in gone[:-_MOST_UNHEARD]:
            del self._requests[event_id]
        self._watchers = [one for one in self._watchers if not one.is_gone]

    def _listener(self, event_id: str) -> Listener:
        """Return the listener for the reply to an event. Without a client, it keeps the reply."""
        return self._requests.setdefault(event_id, Listener(ChatRequest(event_id), "", None))

    def _reply(self, event_id: str) -> None:
        """Send the complete reply to an event."""
        listener = self._listener(event_id)
        listener.reply()
        if not listener.is_gone:
            del self._requests[event_id]

    def _show_wait(self, event: Waiting) -> None:
        """Show what a turn waits for: to its requests or, if it goes on later, to the watchers."""
        if event.turn_id not in self._turns:
            self._postponed.add(event.turn_id)
        is_postponed = event.turn_id in self._postponed
        listeners = self._in_turn(event.turn_id)
        listeners = self._watchers_of(event.chat_id) if is_postponed else listeners
        _show(Reading("", str(event)), listeners)

    def _take(self, event: TurnStarted | TurnJoined) -> None:
        """Report to the new requests of a turn that it answers them."""
        turn = self._turns.setdefault(event.turn_id, Turn())
        for event_id in event.event_ids:
            if event_id not in turn.events:
                turn.events.append(event_id)
                if event_id in self._requests:
                    self._requests[event_id].join(event.turn_id)

    def _show_step(self, turn_id: str, event: ChatEvent) -> None:
        """Show a step of a turn to its requests, or keep it for a client that repeats one."""
        if listeners := self._in_turn(turn_id):
            _show(event, listeners)
        elif turn_id in self._turns:
            self._turns[turn_id].unheard.append(event)

    def _end(self, event: TurnEnded) -> None:
        self._turns.pop(event.turn_id, None)
        if event.turn_id in self._postponed and event.outcome != "waiting":
            self._postponed.discard(event.turn_id)
            _show(Reading(), self._in_chat(event.chat_id, watching=True))
        for event_id in event.event_ids:
            listener = self._listener(event_id)
            listener.ended = event
            if listener.is_answered:
                self._reply(event_id)

    async def _tell_or_keep(
        self, host: ChannelHost, part: OutboundPart, *, watching: bool = False
    ) -> None:
        """Send a part to the listeners of its chat (only to watchers with `watching`), or keep it
        if there are none. Raises `StorageError` if it cannot be stored."""
        async with self._telling:
            if listeners := self._in_chat(part.chat_id, watching=watching):
                _tell(host, part, listeners)
            elif not part.is_temporary and (part.content.strip() or part.media):
                moment = host.clock.now().isoformat()
                await asyncio.to_thread(Shelf(host.state_folder).add, part, moment)

    def _in_chat(self, chat_id: str, *, watching: bool = False) -> list[Listener]:
        """Return the listeners of a chat, or if it has none, of all chats. With `watching`, return
        only watchers."""
        waiters = () if watching else self._requests.values()
        listeners = [one for one in (*self._watchers, *waiters) if not one.is_gone]
        found = [one for one in listeners if one.chat_id == chat_id]
        others = [one for one in listeners if one.request.everywhere]
        return found or ([] if chat_id.startswith(TEMPORARY) else others)

    def _watchers_of(self, chat_id: str) -> list[Listener]:
        return [one for one in self._watchers if one.chat_id == chat_id and not one.is_gone]

    def _in_turn(self, turn_id: str) -> list[Listener]:
        events = self._turns[turn_id].events if turn_id in self._turns else ()
        waiting = [self._requests[one] for one in events if one in self._requests]
        return [one for one in waiting if one.request.stream and not one.is_gone]


def _one_each(listeners: Sequence[Listener]) -> Iterable[Listener]:
    """Return the first listener of each connection, so that each client gets an event once."""
    return {id(one.connection): one for one in reversed(listeners)}.values()


def _show(event: ChatEvent, listeners: Sequence[Listener]) -> None:
    for listener in _one_each(listeners):
        listener.send(event)


def _tell(host: ChannelHost, part: OutboundPart, listeners: Sequence[Listener]) -> None:
    """Show a part that answers no pending request. If there are watchers, only they get its
    choices, because any other client may be a program."""
    said = _make_message(host, part.content, part.media, part.buttons)
    watched = any(listener.request.watch for listener in listeners)
    for listener in _one_each(listeners):
        may_choose = listener.request.watch or not watched
        listener.send_from(part.chat_id, said if may_choose else said._replace(choices=()))


def _make_message(
    host: ChannelHost, text: str, media: Iterable[Media], buttons: Iterable[Button], at: str = ""
) -> AgentMessage:
    """Return the event for clients, with the files that still exist."""
    lines, files = [text], []
    for one in media:
        try:
            files.append(SentFile(one.name, str(host.media_path(one)), one.size))
        except SendRefused:  # show the text anyway
            lines.append(f"[the file {one.name or one.ref} no longer exists]")
    return AgentMessage("", "\n".join(filter(None, lines)), tuple(files), _choices(buttons), at)


def _choices(buttons: Iterable[Button]) -> tuple[Choice, ...]:
    return tuple(Choice(one.label, one.value) for one in buttons if one.only in ("", PERSON))


def _repeat_error(request: ChatRequest) -> NanobotError:
    return NanobotError(
        "this message has been received before",
        hint=f"To see the answer, run: nanobot sessions show {request.session}",
    )
