"""What is live on the pages: what happens in the gateway, passed on to every page that is open.

A page follows one conversation by server-sent events. What of a turn is under way is kept for those
who come in the middle of it, and dropped at its end: what was said is then in the session, from
where the page takes it. A page that does not read is dropped; it comes back by itself and goes on
after the last message that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from msgspec import Struct, field

from nanobot.bus.events import (
    Address,
    ApprovalAsked,
    ApprovalClosed,
    InboundMessage,
    Notice,
    OutboundPart,
    PromptReading,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.channel import Happening, Overview
from nanobot_web.extras import Extra

_MOST_UNREAD = 1_000
"""Events that may wait for a page that does not read."""
MOST_PAGES = 20
"""Pages of one browser that are open at once."""
_MOST_OUTPUT = 4_000
"""Characters of what a running tool prints that are kept, the newest."""

Event = Mapping[str, object]
"""For a page: `kind` says what it is."""


class Follower(Struct, eq=False):
    """An open page. `key` is the conversation that it follows, empty for none; `everything`: it is
    the owner's, and hears of all conversations that something happened there. `is_gone` tells that
    it was closed, which else shows when something is written to it."""

    key: str
    everything: bool
    session: str
    is_gone: Callable[[], bool]
    queue: asyncio.Queue[Event | None] = field(default_factory=lambda: asyncio.Queue(_MOST_UNREAD))

    def put(self, event: Event | None) -> None:
        """Queue an event; None, also for one who does not read: the end."""
        if event is not None and not self.queue.full():
            self.queue.put_nowait(event)
            return
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class _UnderWay(Struct):
    """What is not in the session yet: `said` are messages that wait or are answered now, `turn` is
    the turn under way, with the reading progress, its text so far, its steps, and what its tool
    prints."""

    said: dict[str, Event] = field(default_factory=dict)
    turn: str = ""
    reading: str = ""
    text: str = ""
    steps: list[Event] = field(default_factory=list)
    output: str = ""

    def events(self) -> Iterator[Event]:
        """For who comes in the middle."""
        yield from self.said.values()
        if self.turn:
            yield {"kind": "turn", "turn": self.turn}
            yield from self.steps
            if self.reading:
                yield {"kind": "reading", "text": self.reading}
            if self.output:
                yield {"kind": "output", "text": self.output}
            if self.text:
                yield {"kind": "delta", "text": self.text, "restart": True}


class Live:
    """The open pages of one gateway."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._followers: set[Follower] = set()
        self._under_way: dict[str, _UnderWay] = {}

    def watching(self) -> AbstractContextManager[None]:
        """Watch the gateway while inside."""
        return self._overview.watch(self._happened)

    @contextmanager
    def follow(
        self, key: str, *, everything: bool, session: str, is_gone: Callable[[], bool]
    ) -> Iterator[Follower]:
        """A new page: what is under way comes first."""
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
        """Whether a browser has as many pages open as it may. Those that were closed end now."""
        for gone in [one for one in self._followers if one.is_gone()]:
            self._followers.discard(gone)
            gone.put(None)
        return sum(one.session == session for one in self._followers) >= MOST_PAGES

    def delivered(self, part: OutboundPart, extra: Extra | None) -> None:
        """A part arrived at the page's own chat: its session, or `extra`, has it now."""
        key = Address(part.channel, part.chat_id, part.thread_id).key
        self._tell(key, {"kind": "extra", "key": extra.key} if extra else {"kind": "refresh"})

    def signed_out(self) -> None:
        """End all pages; those still signed in come back."""
        for follower in tuple(self._followers):
            follower.put(None)

    def _tell(self, key: str, event: Event) -> None:
        for follower in tuple(self._followers):
            if follower.key == key:
                follower.put(event)
            elif follower.everything:
                follower.put({"kind": "elsewhere", "key": key})

    def _happened(self, happening: Happening) -> None:
        key, event = happening.session_key, happening.event
        if isinstance(event, ApprovalAsked | ApprovalClosed):
            self._tell_owner(event)
            return
        if isinstance(event, InboundMessage):
            if event.expects_answer or event.initiator == "person":
                said = _said(event)
                self._of(key).said[event.answered_event] = said
                self._tell(key, said)
            return
        shown = self._noted(key, event)
        if shown is not None:
            self._tell(key, shown)

    def _tell_owner(self, event: ApprovalAsked | ApprovalClosed) -> None:
        closed = {"kind": "closed", "code": event.code, "text": str(event)}
        asked = {"kind": "asked", "code": event.code}
        for follower in tuple(self._followers):
            if follower.everything:
                follower.put(asked if isinstance(event, ApprovalAsked) else closed)

    def _of(self, key: str) -> _UnderWay:
        return self._under_way.setdefault(key, _UnderWay())

    def _noted(self, key: str, event: object) -> Event | None:
        """Keep what is under way in step with an event; what a page is told of it."""
        shown: Event | None = None
        match event:
            case TurnStarted():
                at = self._of(key)
                at.turn, at.reading, at.text = event.turn_id, "", ""
                at.output, at.steps = "", []
                shown = {"kind": "turn", "turn": event.turn_id}
            case PromptReading():
                at = self._of(key)
                at.reading = str(event)
                shown = {"kind": "reading", "text": at.reading}
            case TextDelta():
                at = self._of(key)
                at.reading = ""
                at.text = event.text if event.restart else at.text + event.text
                shown = {"kind": "delta", "text": event.text, "restart": event.restart}
            case ToolStarted():
                at, shown = self._of(key), {"kind": "tool", "hint": event.hint}
                at.reading, at.text, at.output = "", "", ""
                at.steps.append(shown)
            case ToolOutput():
                at = self._of(key)
                at.output = (at.output + event.text)[-_MOST_OUTPUT:]
                shown = {"kind": "output", "text": event.text}
            case ToolFinished():
                shown = {"kind": "done", "name": event.name, "seconds": round(event.seconds, 1)}
                self._of(key).steps.append(shown)
            case TurnEnded():
                shown = self._ended(key, event)
            case Notice():
                shown = {"kind": "note", "text": event.text}
        return shown

    def _ended(self, key: str, event: TurnEnded) -> Event:
        at = self._of(key)
        for event_id in event.event_ids:
            at.said.pop(event_id, None)
        at.turn, at.reading, at.text, at.output, at.steps = "", "", "", "", []
        if not at.said:
            del self._under_way[key]
        return {
            "kind": "end",
            "events": list(event.event_ids),
            "outcome": event.outcome,
            "tokens": event.prompt_tokens + event.completion_tokens,
            "milliseconds": event.milliseconds,
        }


def _said(message: InboundMessage) -> Event:
    return {
        "kind": "said",
        "event": message.answered_event,
        "text": message.content,
        "files": [file.name or file.kind for file in message.media],
        "name": message.sender_name if message.is_group else "",
    }


def queued(events: Sequence[Event]) -> Sequence[Event]:
    """Deltas that follow each other are one."""
    joined: list[dict[str, object]] = []
    for event in events:
        last = joined[-1] if joined else None
        if last and last["kind"] == event["kind"] == "delta" and not event["restart"]:
            last["text"] = f"{last['text']}{event['text']}"
        else:
            joined.append(dict(event))
    return joined
