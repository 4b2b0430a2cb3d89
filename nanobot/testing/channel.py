"""A channel for tests and plugin authors: `say` sends a person's message, and a list gets the
deliveries.

It uses the real host and dispatcher, like any adapter. To inject faults, set `refuse`, which
returns an exception to raise for a part, or `hold`, which is awaited before each delivery and makes
a chat slow."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from nanobot.bus.events import Delivery, InboundMessage, Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.clock import Clock, SystemClock
from nanobot.errors import SendRefused


class FakeChannel:
    """Implements `nanobot.channel.Channel`. Enable it by passing it to `Gateway`.

    `sent` are all delivered parts, `shown` all progress, both in order. `closed` maps the platform
    ids of questions without buttons now to their outcomes."""

    def __init__(
        self, name: str = "fake", *, limits: Limits | None = None, clock: Clock | None = None
    ) -> None:
        self._name = name
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._ids = itertools.count(1)
        self._host: asyncio.Future[ChannelHost] | None = None
        self._arrivals = asyncio.Condition()
        self._by_chat: defaultdict[str, list[OutboundPart]] = defaultdict(list)
        self._answers: defaultdict[tuple[str, str], list[OutboundPart]] = defaultdict(list)
        self.sent: list[OutboundPart] = []
        self.shown: list[Progress] = []
        self.closed: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self._buttons_seen = 0
        self.refuse: Callable[[OutboundPart], Exception | None] = lambda _: None
        self.hold: Callable[[OutboundPart], Awaitable[object]] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def limits(self) -> Limits:
        return self._limits

    async def run(self, host: ChannelHost) -> None:
        self._future().set_result(host)
        try:
            await asyncio.Event().wait()
        finally:
            self._host = None

    async def send(self, part: OutboundPart) -> Receipt:
        """Take a part, or raise the error of `refuse`."""
        if self.hold is not None:
            await self.hold(part)
        error = self.refuse(part)
        if error is not None:
            raise error
        self.sent.append(part)
        self._by_chat[part.chat_id].append(part)
        for event_id in part.event_ids:
            self._answers[part.chat_id, event_id].append(part)
        async with self._arrivals:
            self._arrivals.notify_all()
        return Receipt(str(len(self.sent)))

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        self.closed[receipt.platform_id] = outcome
        async with self._arrivals:
            self._arrivals.notify_all()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Return the file in `files` with this reference."""
        data = self.files.get(media.ref)
        if data is None or len(data) > limit:
            raise SendRefused(f"no such file: {media.ref}")
        return data

    async def show_progress(self, event: Progress) -> None:
        self.shown.append(event)

    async def say(
        self,
        text: str,
        chat_id: str = "1",
        *,
        event_id: str = "",
        sender_id: str = "",
        **fields: Any,
    ) -> str:
        """Send a person's message. Return its event id once it is durable. `fields` are further
        fields of the message, such as `media` or `is_group`, or of its `Delivery`."""
        known = Delivery.__struct_fields__
        delivery = Delivery(**{name: fields.pop(name) for name in known if name in fields})
        host = await asyncio.shield(self._future())
        event_id = event_id or f"m{next(self._ids)}"
        message = InboundMessage(
            channel=self._name,
            chat_id=chat_id,
            sender_id=sender_id or f"person-{chat_id}",
            content=text,
            event_id=event_id,
            timestamp=self._clock.now(),
            message_id=event_id,
            delivery=delivery,
            **fields,
        )
        await host.publish((message,))
        return event_id

    async def ask(self, text: str, chat_id: str = "1") -> str:
        """Send a text and return its whole answer."""
        return await self.answer_to(await self.say(text, chat_id), chat_id)

    async def answer_to(self, event_id: str, chat_id: str = "1") -> str:
        """Return the text of the answer to an event, once its last part has arrived."""

        answer = self._answers[chat_id, event_id]
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: bool(answer) and answer[-1].last)
        return "".join(part.content for part in answer)

    async def receive(self, count: int, chat_id: str = "1") -> list[str]:
        """Return the texts of the first `count` parts of a chat, once they have arrived."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self._by_chat[chat_id]) >= count)
        return [part.content for part in self._by_chat[chat_id]]

    async def next_with_buttons(self) -> OutboundPart:
        """Return the next part with buttons that was not returned before, once it has arrived."""
        async with self._arrivals:
            (part, *_) = await self._arrivals.wait_for(
                lambda: [part for part in self.sent if part.buttons][self._buttons_seen :]
            )
        self._buttons_seen += 1
        return part

    def _future(self) -> asyncio.Future[ChannelHost]:
        if self._host is None:
            self._host = asyncio.get_running_loop().create_future()
        return self._host
