"""From what a channel delivered to a message of the conversation: marks, quotes and files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from loguru import logger

from nanobot.agent.media import MAX_BYTES, MediaStore
from nanobot.bus.events import InboundMessage, Media
from nanobot.messages import ATTACHED, Message

Fetch = Callable[[str, Media, int], Awaitable[bytes]]
"""Gets the content of a channel's file: channel name, reference, limit in bytes."""

KEPT = "kept:"
"""Begins the reference of a file that is kept already, in a message that is run again."""

_FETCH_SECONDS = 60.0


class Intake:
    """Makes stored messages of delivered ones. Slow downloads happen here, in the lane.

    `is_owner` says whose words in a group are the owner's: those of others are marked, since no
    instruction of theirs may become a memory.
    """

    def __init__(
        self,
        store: MediaStore,
        fetch: Fetch,
        is_owner: Callable[[InboundMessage], bool] = lambda _: True,
    ) -> None:
        self._store = store
        self._fetch = fetch
        self._is_owner = is_owner

    async def to_message(self, inbound: InboundMessage, notice: str = "") -> Message:
        """The person's message. A file that cannot be fetched becomes a note, never a failure.

        Raises `StorageError` where a file cannot be kept.
        """
        files = [await self._keep(inbound, item) for item in inbound.media]
        names = tuple(name for name, _ in files if name)
        return self._message(inbound, [note for _, note in files], names, notice)

    def text_of(self, inbound: InboundMessage) -> Message:
        """The message as it is before its files are fetched."""
        return self._message(inbound, [f"[{_label(item)}: not fetched]" for item in inbound.media])

    async def _keep(self, inbound: InboundMessage, item: Media) -> tuple[str, str]:
        if inbound.answers and item.ref.startswith(KEPT):
            return item.ref.removeprefix(KEPT), ""
        label = _label(item)
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                data = await self._fetch(inbound.channel, item, MAX_BYTES)
        except Exception as error:  # noqa: BLE001 - the boundary: an adapter's failure is a note
            reason = _one_line(str(error)) or type(error).__name__
            logger.warning("could not fetch {} from {}: {}", label, inbound.channel, reason)
            return "", f"[{label}: it could not be fetched: {reason}]"
        name = await asyncio.to_thread(self._store.put, data, item.mime)
        return name, f"[{label}, kept as media/{name}]"

    def _message(
        self,
        inbound: InboundMessage,
        notes: Sequence[str],
        media: tuple[str, ...] = (),
        notice: str = "",
    ) -> Message:
        quote = _quote(inbound)
        lines = [quote, _forward(inbound), inbound.content, *notes]
        return Message(
            "user",
            "\n".join(filter(None, lines)),
            inbound.timestamp,
            media=media,
            notice=notice,
            origin=self._origin(inbound) or (ATTACHED if quote or notes or media else ""),
        )

    def _origin(self, inbound: InboundMessage) -> str:
        if inbound.origin:
            return inbound.origin
        if inbound.forwarded_from:
            return "forwarded"
        if inbound.is_group and not self._is_owner(inbound):
            return f"person:{_one_line(inbound.sender_id)[:80]}"
        return ""


def _label(item: Media) -> str:
    return _one_line(f"{item.kind} {item.name}")


def _quote(inbound: InboundMessage) -> str:
    quote = inbound.reply_to
    if quote is None or not quote.text:
        return ""
    sender, text = _one_line(quote.sender) or "a message", _one_line(quote.text)
    return f"[in reply to {sender}: “{text}”]"


def _forward(inbound: InboundMessage) -> str:
    sender = _one_line(inbound.forwarded_from)
    return f"[forwarded from {sender}]" if sender else ""


def _one_line(text: str) -> str:
    """What others wrote, within one bracketed line, so that it never passes for the person's."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())
