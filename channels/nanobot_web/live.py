"""Live events of the gateway, for every open page.

A page follows one conversation by server-sent events. The state of a running turn is kept for pages
that open in the middle of it, and dropped at its end: then the session has the messages. A page
that does not read is dropped. It reconnects by itself and continues after its last message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

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
from nanobot_web.extras import Extra, conversation_of

_MOST_UNREAD = 1_000  # events that may wait for a page that does not read
MOST_PAGES = 20
"""Open pages of one browser."""
_MOST_OUTPUT = 4_000  # characters to keep of a running tool's output, the newest

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


class _TurnState(Struct):
    """The state that is not in the session yet: `said` are messages that are pending or being
    answered, `turn` is the running turn, with its text, steps, and tool output so far. `waiting` is
    what it waits for, also between two tries."""

    said: dict[str, Event] = field(default_factory=dict)
    turn: str = ""
    waiting: str = ""
    text: str = ""
    steps: list[Event] = field(default_factory=list)
    output: str = ""

    def events(self) -> Iterator[Event]:
        """Yield the events for a page that opens in the middle."""
        yield from self.said.values()
        if self.turn:
            yield {"kind": "turn", "turn": self.turn}
            yield from self.steps
            if self.output:
                yield {"kind": "output", "text": self.output}
            if self.text:
                yield {"kind": "delta", "text": self.text, "restart": True}
        if self.waiting:
            yield {"kind": "wait", "text": self.waiting}


class Live:
    """The open pages of one gateway."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._followers: set[Follower] = set()
        self._under_way: dict[str, _TurnState] = {}

    def watch(self) -> AbstractContextManager[None]:
        """Watch the gateway while inside."""
        return self._overview.watch(self._pass_event)

    @contextmanager
    def follow(
        self, key: str, *, everything: bool, session: str, is_gone: Callable[[], bool]
    ) -> Iterator[Follower]:
        """Yield a new page, beginning with the running turn."""
        follower = Follower(key, everything, session, is_gone)
        if key in self._under_way:
            for event in self._under_way[key].events():
                follower.put(event)
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
        self._tell(
            conversation_of(part),
            {"kind": "extra", "key": extra.key} if extra else {"kind": "refresh"},
        )

    def end_all(self) -> None:
        """End all pages. Those still signed in reconnect."""
        for follower in tuple(self._followers):
            follower.put(None)

    def _tell(self, key: str, event: Event) -> None:
        for follower in tuple(self._followers):
            if follower.key == key:
                follower.put(event)
            elif follower.everything:
                follower.put({"kind": "elsewhere", "key": key})

    def _pass_event(self, happening: GatewayEvent) -> None:
        key, event = happening.session_key, happening.event
        if isinstance(event, ApprovalAsked | ApprovalClosed):
            self._tell_owner(event)
            return
        if isinstance(event, InboundMessage):
            if event.expects_answer or event.origin.initiator == "person":
                said = {
                    "kind": "said",
                    "event": event.answered_event,
                    "text": event.content,
                    "files": [file.name or file.kind for file in event.media],
                    "name": event.sender_name if event.is_group else "",
                }
                self._of(key).said[event.answered_event] = said
                self._tell(key, said)
            return
        if (update := self._update(key, event)) is not None:
            self._tell(key, update)

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
                at = self._of(key)
                at.turn, at.waiting, at.text = event.turn_id, "", ""
                at.output, at.steps = "", []
                shown = {"kind": "turn", "turn": event.turn_id}
            case Waiting():
                at = self._of(key)
                at.waiting = str(event)
                shown = {"kind": "wait", "text": at.waiting}
            case TextDelta():
                at = self._of(key)
                at.waiting = ""
                at.text = event.text if event.restart else at.text + event.text
                shown = {"kind": "delta", "text": event.text, "restart": event.restart}
            case ToolStarted():
                at, shown = self._of(key), {"kind": "tool", "hint": event.hint}
                at.waiting, at.text, at.output = "", "", ""
                at.steps.append(shown)
            case ToolOutput():
                at = self._of(key)
                at.output = (at.output + event.text)[-_MOST_OUTPUT:]
                shown = {"kind": "output", "text": event.text}
            case ToolFinished():
                shown = {
                    "kind": "done",
                    "name": event.hint.partition(" ")[0],
                    "seconds": round(event.seconds, 1),
                }
                self._of(key).steps.append(shown)
            case TurnEnded():
                shown = self._end_turn(key, event)
            case Notice():
                shown = {"kind": "note", "text": event.text}
        return shown

    def _end_turn(self, key: str, event: TurnEnded) -> Event:
        at = self._of(key)
        for event_id in event.event_ids:
            at.said.pop(event_id, None)
        at.turn, at.waiting, at.text, at.output, at.steps = "", "", "", "", []
        if not at.said:
            del self._under_way[key]
        return {
            "kind": "end",
            "events": list(event.event_ids),
            "outcome": event.outcome,
            "tokens": event.prompt_tokens + event.completion_tokens,
            "milliseconds": event.milliseconds,
        }


def join_deltas(events: Sequence[Event]) -> Sequence[Event]:
    """Join consecutive deltas."""
    joined: list[dict[str, object]] = []
    for event in events:
        last = joined[-1] if joined else None
        if last and last["kind"] == event["kind"] == "delta" and not event["restart"]:
            last["text"] = f"{last['text']}{event['text']}"
        else:
            joined.append(dict(event))
    return joined
