"""Live events of the gateway, for every open page.

A page follows one conversation by server-sent events. The state of a running turn is kept for pages
that open in the middle of it, and dropped at its end: then the session has the messages. The text
of an answer is rendered while a page follows it, at most every `TICK_SECONDS`, once for all pages.
A page that does not read is dropped. It reconnects by itself and continues after its last message.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from msgspec import Struct, field

from nanobot.bus.events import (
    ApprovalAsked,
    ApprovalClosed,
    InboundMessage,
    Notice,
    OutboundPart,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Waiting,
)
from nanobot.channel import GatewayEvent, Overview
from nanobot.clock import Clock
from nanobot_web.extras import Extra, conversation_of
from nanobot_web.streamed import StreamedText

_MOST_UNREAD = 1_000  # events that may wait for a page that does not read
MOST_PAGES = 20
"""Open pages of one browser."""
TICK_SECONDS = 0.25
"""Seconds between two pieces of an answer."""
_MOST_OUTPUT = 4_000  # characters to keep of a running tool's output, the newest
_QUIET = ("text", "tool", "output", "done", "wait", "note")
"""Kinds of events that don't change the list of conversations."""

_OF_BUTTONS = re.compile(r"^/(?:stop$|retry --turn \S+|edit --turn \S+\s*)")
"""Commands of the page's buttons, which are not shown as messages."""

Event = Mapping[str, object]
"""An event for a page, of this `kind`."""


class Follower(Struct, eq=False):
    """An open page. `key` is the conversation that it follows, empty for none. `everything`: it
    belongs to the owner, and gets a hint about events in all conversations. `is_gone` returns True
    if it was closed, which otherwise shows only at the next write."""

    key: str
    everything: bool
    session: str
    is_gone: Callable[[], bool]
    queue: asyncio.Queue[Event | None] = field(default_factory=lambda: asyncio.Queue(_MOST_UNREAD))

    def put(self, event: Event | None) -> None:
        """Queue an event. None, or a full queue, ends the stream."""
        if event is not None and not self.queue.full():
            self.queue.put_nowait(event)
            return
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class _Part(Struct):
    """A message of the running turn: its text, then the tools that it calls."""

    text: StreamedText
    steps: list[Event] = field(default_factory=list)
    output: str = ""


class _TurnState(Struct):
    """The state that is not in the session yet: `said` are messages that are pending or being
    answered, `turn` is the running turn, with its parts so far. `waiting` is what it waits for,
    also between two tries."""

    said: dict[str, Event] = field(default_factory=dict)
    turn: str = ""
    began_at: datetime | None = None
    waiting: str = ""
    parts: list[_Part] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """Yield the events for a page that opens in the middle."""
        yield from self.said.values()
        if self.turn:
            yield self.turn_event()
            for number, part in enumerate(self.parts):
                yield {"kind": "text", "part": number, **part.text.shown()}
                yield from part.steps
                if part.output:
                    yield {"kind": "output", "part": number, "text": part.output}
        if self.waiting:
            yield {"kind": "wait", "text": self.waiting}

    def turn_event(self) -> Event:
        """Return the event of the beginning of a turn."""
        at = self.began_at.isoformat() if self.began_at else ""
        return {"kind": "turn", "turn": self.turn, "at": at}

    def begin(self, turn: str, at: datetime) -> Event:
        """Begin a turn, or one more try of it."""
        self.turn, self.began_at, self.waiting, self.parts = turn, at, "", []
        return self.turn_event()

    def add_text(self, event: TextDelta) -> None:
        """Add text to the last part, or to a new one after steps."""
        self.waiting = ""
        if not self.parts or self.parts[-1].steps:
            self.parts.append(_Part(StreamedText()))
        self.parts[-1].text.add(event.text, restart=event.restart)

    def add_step(self, kind: str, **values: object) -> Event:
        """Add the start or end of a tool to the last part."""
        self.waiting = ""
        if not self.parts:
            self.parts.append(_Part(StreamedText()))
        event: Event = {"kind": kind, "part": len(self.parts) - 1, **values}
        self.parts[-1].steps.append(event)
        self.parts[-1].output = ""
        return event

    def add_output(self, text: str) -> Event:
        """Add output of a running tool."""
        if self.parts:
            self.parts[-1].output = (self.parts[-1].output + text)[-_MOST_OUTPUT:]
        return {"kind": "output", "part": max(0, len(self.parts) - 1), "text": text}


class Live:
    """The open pages of one gateway."""

    def __init__(self, overview: Overview, clock: Clock) -> None:
        self._overview, self._clock = overview, clock
        self._followers: set[Follower] = set()
        self._under_way: dict[str, _TurnState] = {}
        self._has_text = asyncio.Event()

    def watch(self, early: Iterable[GatewayEvent]) -> AbstractContextManager[None]:
        """Watch the gateway while inside, after the messages and `early` events that are older."""
        messages = (GatewayEvent(one.session_key, one) for one in self._overview.resumed)
        for event in (*messages, *early):
            self._pass_event(event)
        return self._overview.watch(self._pass_event)

    async def send_texts(self) -> None:
        """Render new text for the pages that follow it, until cancelled."""
        while True:
            await self._has_text.wait()
            self._has_text.clear()
            followed = {one.key for one in self._followers}
            for key, state in tuple(self._under_way.items()):
                if key in followed:
                    await self._send_text(key, state)
            await self._clock.sleep(TICK_SECONDS)

    async def _send_text(self, key: str, state: _TurnState) -> None:
        parts = state.parts
        for number, part in enumerate(tuple(parts)):
            if not part.text.is_behind:
                continue
            changed = await part.text.render()
            if state.parts is parts and changed:
                self._tell(key, {"kind": "text", "part": number, **changed})

    @contextmanager
    def follow(
        self, key: str, *, everything: bool, session: str, is_gone: Callable[[], bool]
    ) -> Iterator[Follower]:
        """Yield a new page, beginning with the running turn."""
        follower = Follower(key, everything, session, is_gone)
        if key in self._under_way:
            for event in self._under_way[key].events():
                follower.put(event)
            self._has_text.set()
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    def is_full(self, session: str) -> bool:
        """Return True if a browser has the most open pages. Closed pages are removed first."""
        for gone in [one for one in self._followers if one.is_gone()]:
            self._followers.discard(gone)
            gone.put(None)
        return sum(one.session == session for one in self._followers) >= MOST_PAGES

    def note_delivery(self, part: OutboundPart, extra: Extra | None) -> None:
        """Handle a part that was delivered to the page's own chat, and is now in its session or in
        `extra`."""
        event: Event = {"kind": "extra", "key": extra.key} if extra else {"kind": "refresh"}
        if part.is_temporary:  # only the page keeps it
            event = {"kind": "temporary", "key": part.key, "text": part.content}
        self._tell(conversation_of(part), event)

    def note_change(self, key: str, *, deleted: bool = False) -> None:
        """Handle a conversation that a page has changed or deleted."""
        self._tell(key, {"kind": "deleted" if deleted else "refresh"})

    def end_all(self) -> None:
        """End all pages. Those still signed in reconnect."""
        for follower in tuple(self._followers):
            follower.put(None)

    def _tell(self, key: str, event: Event) -> None:
        for follower in tuple(self._followers):
            if follower.key == key:
                follower.put(event)
            elif follower.everything and event["kind"] not in _QUIET:
                follower.put({"kind": "elsewhere", "key": key})

    def _pass_event(self, happening: GatewayEvent) -> None:
        key, event = happening.session_key, happening.event
        if isinstance(event, ApprovalAsked | ApprovalClosed):
            self._tell_owner(event)
            return
        if isinstance(event, InboundMessage):
            self._note_message(key, event)
        elif (update := self._update(key, event)) is not None:
            self._tell(key, update)

    def _note_message(self, key: str, message: InboundMessage) -> None:
        """Show a message that is pending from now on."""
        text = _OF_BUTTONS.sub("", message.content)
        is_shown = message.expects_answer or message.origin.initiator == "person"
        if not (is_shown and (text or message.media)):
            return
        event = message.answered_event
        said = self._of(key).said[event] = {
            "kind": "said",
            "event": event,
            "text": text,
            "files": [file.name or file.kind for file in message.media],
            "name": message.sender_name if message.is_group else "",
            "at": message.timestamp.isoformat(),
        }
        self._tell(key, said)

    def _tell_owner(self, event: ApprovalAsked | ApprovalClosed) -> None:
        shown: Event = {"kind": "asked", "code": event.code}
        if isinstance(event, ApprovalClosed):
            shown = {"kind": "closed", "code": event.code, "text": str(event)}
        for follower in tuple(self._followers):
            if follower.everything:
                follower.put(shown)

    def _of(self, key: str) -> _TurnState:
        return self._under_way.setdefault(key, _TurnState())

    def _update(self, key: str, event: object) -> Event | None:
        """Update the running turn by an event, and return the event for pages."""
        shown: Event | None = None
        match event:
            case TurnStarted():
                shown = self._of(key).begin(event.turn_id, self._clock.now())
            case Waiting():
                self._of(key).waiting = str(event)
                shown = {"kind": "wait", "text": str(event)}
            case TextDelta():
                self._of(key).add_text(event)
                self._has_text.set()
            case ToolStarted():
                shown = self._of(key).add_step("tool", hint=event.hint)
            case ToolOutput():
                shown = self._of(key).add_output(event.text)
            case ToolFinished():
                name = event.hint.partition(" ")[0]
                seconds = round(event.seconds, 1)
                shown = self._of(key).add_step("done", name=name, seconds=seconds)
            case TurnEnded():
                shown = self._end_turn(key, event)
            case Notice():
                shown = {"kind": "note", "text": event.text}
        return shown

    def _end_turn(self, key: str, event: TurnEnded) -> Event:
        at = self._of(key)
        for event_id in event.event_ids:
            at.said.pop(event_id, None)
        at.turn, at.waiting, at.parts = "", "", []
        if not at.said:
            del self._under_way[key]
        return {
            "kind": "end",
            "events": list(event.event_ids),
            "outcome": event.outcome,
            "origin": event.origin,
            "tokens": event.prompt_tokens + event.completion_tokens,
            "milliseconds": event.milliseconds,
        }


def join_outputs(events: Sequence[Event]) -> Sequence[Event]:
    """Join consecutive pieces of a tool's output."""
    joined: list[dict[str, object]] = []
    for event in events:
        last = joined[-1] if joined else None
        if last and last["kind"] == event["kind"] == "output":
            last["text"] = f"{last['text']}{event['text']}"
        else:
            joined.append(dict(event))
    return joined
