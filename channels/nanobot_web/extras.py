"""Messages in the page's chats that no session keeps: answers to commands, files, questions.

A turn's reply is in the session when it is delivered. All others are kept here, in one bounded
file: the oldest are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nanobot.bus.events import TERMINAL, Address, Button, Media, OutboundPart
from nanobot.channel import Overview
from nanobot.channel.documents import StateFile

MOST_PARTS = 300
"""In all chats together."""
MOST_CHARACTERS = 8_000
"""In one part."""
_FILE = "extras.json"
_NEWEST = 20  # messages to search for a reply that was just committed
_QUESTIONS = ("/approve ", "/deny ")  # the page shows pending questions itself
_STOPPED = "Stopped."  # the answer of `/stop`: the conversation has a mark
_CHANGING = asyncio.Lock()


def chat_in(key: str) -> str:
    """Return the chat of the page in which the conversation `key` is shown. A terminal's
    conversation is its own chat here."""
    return key if key.startswith(f"{TERMINAL}:") else Address.of(key).chat_id


def conversation_of(part: OutboundPart) -> str:
    """Return the key of the conversation that shows a part for the page."""
    if part.chat_id.startswith(f"{TERMINAL}:"):
        return part.chat_id
    return Address(part.channel, part.chat_id, part.thread_id).key


class Extra(Struct, frozen=True):
    """One message. `at` is its time, `key` the key of the part."""

    key: str
    chat: str
    at: datetime
    text: str
    media: tuple[Media, ...] = ()
    buttons: tuple[Button, ...] = ()


class _Stored(Struct, frozen=True):
    version: Literal[1] = 1
    extras: tuple[Extra, ...] = ()


class Extras:
    """The extras of the channel with its state in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = StateFile(folder / _FILE, _Stored)

    def of(self, key: str) -> Sequence[Extra]:
        """Return the extras of the conversation `key`, oldest first. Blocks."""
        return [one for one in self._file.read().extras if one.chat == key]

    async def keep(self, part: OutboundPart, now: datetime, overview: Overview) -> Extra | None:
        """Keep a part and return it, or None if it is in its session or a question. Keeping a part
        again changes nothing. Raises `StorageError`."""
        if part.is_temporary or any(one.value.startswith(_QUESTIONS) for one in part.buttons):
            return None
        is_known = part.content == _STOPPED or await _is_in_session(part, overview)
        text = "" if is_known else part.content[:MOST_CHARACTERS]
        if not part.media and not text.strip():
            return None
        extra = Extra(part.key, conversation_of(part), now, text, part.media, part.buttons)
        async with _CHANGING:
            await asyncio.to_thread(self._add, extra)
        return extra

    async def forget(self, key: str) -> None:
        """Delete the extras of the conversation `key`. Raises `StorageError`."""
        async with _CHANGING:
            await asyncio.to_thread(self._drop, key)

    def _drop(self, key: str) -> None:
        known = self._file.read().extras
        kept = tuple(one for one in known if one.chat != key)
        if kept != known:
            self._file.write(_Stored(extras=kept))

    def _add(self, extra: Extra) -> None:
        kept = [one for one in self._file.read().extras if one.key != extra.key]
        self._file.write(_Stored(extras=(*kept, extra)[-MOST_PARTS:]))


async def _is_in_session(part: OutboundPart, overview: Overview) -> bool:
    turn, _, call = part.key.partition("/")
    if not turn[:1].isdigit() or not call.startswith("reply"):
        return False
    key = conversation_of(part)
    shown = await overview.operations["conversations.show"]({"key": key, "limit": _NEWEST})
    messages = shown["messages"] if isinstance(shown, dict) else []
    said = (m["content"] for m in messages if m["role"] == "assistant" and m.get("turn") == turn)
    return any(part.content.strip() in one for one in said)
