"""A channel of a gateway in another process: what is on both ends of the wire.

The platform stays when the gateway is killed, as a real one does; so it knows what was taken and
what was answered, and the next process goes on with the conversation where the last one was cut.
"""

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
    """What the chat platform knows, which no kill touches: messages taken, replies delivered.
    `breaks`: so often it breaks a connection off by itself, in the middle of whatever is sent."""

    breaks: int = 0
    tried: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    delivered: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    def has_answered(self, event: str) -> bool:
        """Whether a reply to this event was delivered."""
        return any(event in events for events, _ in self.delivered)

    def answer_to(self, event: str) -> str:
        """The newest reply to this event, empty where there is none."""
        return next((text for events, text in reversed(self.delivered) if event in events), "")

    def hear(self, line: str) -> bool:
        """One line from the gateway; True for the last."""
        told = json.loads(line)
        if "try" in told:
            self.tried.add(told["try"])
        elif "ack" in told:
            self.acked.add(told["ack"])
        elif "sent" in told:
            self.delivered.append((tuple(told["sent"]), told["text"]))
        return "over" in told

    def repeated(self) -> list[int]:
        """For each chat, how many replies came more often than once, counted each time."""
        return [sum(count - 1 for count in Counter(self.delivered).values())]

    def look_at(self, home: Path) -> None:
        """A process has ended: whoever wants to looks at what it leaves behind."""

    def close(self) -> None:
        """The conversation is judged, and the platform is needed no more."""


class Wire(ABC):
    """A channel whose platform is the process at the other end of a socket."""

    def __init__(self, link: socket.socket, platform: Platform) -> None:
        self.name, self.limits = "wire", Limits()
        self._link, self.platform = link, platform
        self._changed = asyncio.Event()
        self.gateway: Gateway | None = None

    async def run(self, host: ChannelHost) -> None:
        """Say what has not been said, each when its time has come; then ask for the end."""
        await self.talk(host)
        self._tell({"over": True})
        assert self.gateway is not None
        self.gateway.request_stop()
        await asyncio.Event().wait()

    @abstractmethod
    async def talk(self, host: ChannelHost) -> None:
        """The conversation; a scenario has its own."""

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver to the platform."""
        self._tell({"sent": part.event_ids, "text": part.content})
        self.changed()
        return Receipt()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """There are no files."""
        raise SendRefused(f"there is no {media.ref}")

    async def show_progress(self, event: Progress) -> None:  # noqa: B027 - nothing is what it does
        """Nothing is shown."""

    async def say(self, host: ChannelHost, event: str, text: str) -> None:
        """Publish a message unless the gateway took it already."""
        if event in self.platform.acked:
            return
        self._tell({"try": event})
        now = SystemClock().now()
        await host.publish((InboundMessage("wire", "1", "someone", text, event, now),))
        self._tell({"ack": event})

    async def ask(self, host: ChannelHost, event: str, text: str) -> str:
        """Say it and wait for the answer."""
        await self.say(host, event, text)
        await self.until(lambda: self.platform.has_answered(event))
        return self.platform.answer_to(event)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something changed by which `condition` holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def changed(self) -> None:
        """Let those who wait look again."""
        self._changed.set()

    def _tell(self, told: dict[str, object]) -> None:
        line = json.dumps(told)
        self._link.send(line.encode() + b"\n")
        self.platform.hear(line)
