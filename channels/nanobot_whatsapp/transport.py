"""Code shared by both transports: the typing indicator, and the file formats that WhatsApp can show
or play."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from loguru import logger
from msgspec import Struct, field

from nanobot.bus.events import MediaKind, Notice, Progress, TurnEnded, TurnStarted
from nanobot.clock import Clock, with_timeout

_MAX_TURN_SECONDS = 3600.0  # a turn whose end was missed is not shown longer than this
_MAX_CHATS = 256  # the number of chats with a typing indicator, and of remembered notices
_NOTICE_SECONDS = 60.0  # a notice is not repeated in a chat within this time

_PLAYABLE: Mapping[MediaKind, frozenset[str]] = {
    "image": frozenset({"image/jpeg", "image/png"}),
    "video": frozenset({"video/mp4", "video/3gpp"}),
    "audio": frozenset({"audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg"}),
    "voice": frozenset({"audio/ogg"}),
}
_MIME_ALIASES = {
    "audio/mp3": "audio/mpeg",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/opus": "audio/ogg",
    "application/ogg": "audio/ogg",
    "audio/x-aac": "audio/aac",
    "image/jpg": "image/jpeg",
    "video/3gp": "video/3gpp",
}


def plain_mime(mime: str) -> str:
    """Return `mime` without parameters, under WhatsApp's name for it."""
    known = mime.partition(";")[0].strip().lower()
    return _MIME_ALIASES.get(known, known)


def playable_as(kind: MediaKind, mime: str) -> MediaKind:
    """Return the kind to send a file of this plain MIME type as. "document" if WhatsApp can neither
    show nor play it."""
    if kind == "voice" and mime not in _PLAYABLE["voice"]:
        kind = "audio"
    return kind if mime in _PLAYABLE.get(kind, ()) else "document"


class _Chat(Struct, eq=False):
    """A chat with running turns."""

    turns: set[str] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class TypingIndicator:
    """Typing indicator while a turn runs. It also sends notices, which cannot wait for its end.

    Best effort: `show_progress` only records events. Each chat with a running turn has its own
    task, so that a hanging call delays no other chat. `set_typing(chat_id, is_typing)` calls the
    platform every `seconds`. Without `send_notice(chat_id, text)`, notices are dropped."""

    def __init__(
        self,
        set_typing: Callable[[str, bool], Awaitable[None]],
        clock: Clock,
        send_notice: Callable[[str, str], Awaitable[None]] | None = None,
        *,
        seconds: float,
    ) -> None:
        self._set_typing, self._clock, self._send_notice = set_typing, clock, send_notice
        self._seconds = seconds
        self._chats: dict[str, _Chat] = {}
        self._noticed: dict[tuple[str, str], float] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the tasks of the chats until cancelled. Nothing is shown without it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None  # the group accepts no more tasks
        finally:
            self._chats.clear()

    def show_progress(self, event: Progress) -> None:
        """Record an event. Returns at once and never raises."""
        match event:
            case TurnStarted(chat_id=chat_id, turn_id=turn_id):
                if (chat := self._chats.get(chat_id)) is not None:
                    chat.turns.add(turn_id)
                elif self._tasks is not None and len(self._chats) < _MAX_CHATS:
                    chat = self._chats[chat_id] = _Chat({turn_id})
                    self._tasks.create_task(self._type(chat_id, chat))
            case TurnEnded(chat_id=chat_id, turn_id=turn_id):
                chat = self._chats.get(chat_id)
                if chat is not None and turn_id in chat.turns:
                    chat.turns.remove(turn_id)
                    if not chat.turns:
                        del self._chats[chat_id]
                        chat.ended.set()
            case Notice(chat_id=chat_id, text=text):
                self._notice(chat_id, text)
            case _:
                pass

    def _notice(self, chat_id: str, text: str) -> None:
        now = self._clock.monotonic()
        recent = {key: at for key, at in self._noticed.items() if at > now - _NOTICE_SECONDS}
        self._noticed = recent
        if self._send_notice is None or self._tasks is None:
            return
        if (chat_id, text) not in recent and len(recent) < _MAX_CHATS:
            recent[chat_id, text] = now
            self._tasks.create_task(attempt(self._send_notice(chat_id, text)))

    async def _type(self, chat_id: str, chat: _Chat) -> None:
        deadline = self._clock.monotonic() + _MAX_TURN_SECONDS
        while not chat.ended.is_set() and self._clock.monotonic() < deadline:
            await attempt(self._set_typing(chat_id, True))
            with suppress(TimeoutError):
                await with_timeout(self._clock, self._seconds, chat.ended.wait())
        if self._chats.get(chat_id) is chat:
            del self._chats[chat_id]
        if chat_id not in self._chats:
            await attempt(self._set_typing(chat_id, False))


async def attempt(call: Awaitable[None]) -> None:
    try:
        await call
    except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
        logger.debug("whatsapp: progress was not shown: {!r}", error)
