"""A channel of a gateway in another process: both ends of the wire.

The platform survives when the gateway is killed, as a real one does. So it knows the accepted and
the answered messages, and the next process continues the interrupted conversation."""

from __future__ import annotations

import asyncio
import json
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nanobot.app.gateway import Gateway
from nanobot.bus.events import InboundMessage, Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.clock import SystemClock
from nanobot.errors import SendRefused


@dataclass
class Platform:
    """The state of the chat platform, which is never killed: accepted messages, delivered replies.
    `breaks`: number of connections that it cuts by itself during a send. `loses_power_at_the_end`:
    the files are judged after one more loss, without another process."""

    breaks: int = 0
    loses_power_at_the_end: bool = False
    tried: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    delivered: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    def has_answered(self, event: str) -> bool:
        """Check whether a reply to this event was delivered."""
        return any(event in events for events, _ in self.delivered)

    def answer_to(self, event: str) -> str:
        """Return the newest reply to this event, or an empty text."""
        return next((text for events, text in reversed(self.delivered) if event in events), "")

    def hear(self, line: str) -> bool:
        """Process one line from the gateway. Return True for the last."""
        told = json.loads(line)
        if "try" in told:
            self.tried.add(told["try"])
        elif "ack" in told:
            self.acked.add(told["ack"])
        elif "sent" in told:
            self.delivered.append((tuple(told["sent"]), told["text"]))
        return "over" in told

    def count_repetitions(self) -> list[int]:
        """Return for each chat the number of repetitions of replies."""
        return [sum(count - 1 for count in Counter(self.delivered).values())]

    def look_at(self, home: Path) -> None:
        """Inspect the files of a process that has ended."""

    def close(self) -> None:
        """Release the platform after the conversation was judged."""


class Wire(ABC):
    """A channel whose platform is the process at the other end of a socket."""

    def __init__(self, link: socket.socket, platform: Platform) -> None:
        self.name, self.limits = "wire", Limits()
        self._link, self.platform = link, platform
        self._changed = asyncio.Event()
        self.gateway: Gateway | None = None

    async def run(self, host: ChannelHost) -> None:
        """Send the unsent messages, each at its time, then request the end."""
        await self.talk(host)
        self._tell({"over": True})
        assert self.gateway is not None
        self.gateway.request_stop()
        await asyncio.Event().wait()

    @abstractmethod
    async def talk(self, host: ChannelHost) -> None:
        """Run the conversation of the scenario."""

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver to the platform."""
        self._tell({"sent": part.event_ids, "text": part.content})
        self.notify_waiters()
        return Receipt()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Fail, because there are no files."""
        raise SendRefused(f"there is no {media.ref}")

    async def show_progress(self, event: Progress) -> None:  # noqa: B027 - nothing is what it does
        """Do nothing."""

    async def say(self, host: ChannelHost, event: str, text: str, chat: str = "1") -> None:
        """Publish a message unless the gateway has already accepted it."""
        if event in self.platform.acked:
            return
        self._tell({"try": event})
        now = SystemClock().now()
        await host.publish((InboundMessage("wire", chat, "someone", text, event, now),))
        self._tell({"ack": event})

    async def ask(self, host: ChannelHost, event: str, text: str) -> str:
        """Send a message and wait for the answer."""
        await self.say(host, event, text)
        await self.until(lambda: self.platform.has_answered(event))
        return self.platform.answer_to(event)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a change makes `condition` true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def notify_waiters(self) -> None:
        """Let waiters check again."""
        self._changed.set()

    def _tell(self, told: dict[str, object]) -> None:
        line = json.dumps(told)
        self._link.send(line.encode() + b"\n")
        self.platform.hear(line)
