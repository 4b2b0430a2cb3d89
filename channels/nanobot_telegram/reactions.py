"""Marks a person's message with a reaction: seen, in progress, done.

Best effort, and never blocking. Events are only recorded here. One task makes the calls, one after
the other and with pauses, and only the newest mark of a message counts. Telegram's limits are for
replies: when it asks to wait, nothing is marked until then.

A chat that rejects reactions is skipped until a restart, because another attempt costs a call (see
`chats`). Messages that were marked before a restart get their next mark too, because a turn names
the messages it answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from loguru import logger
from msgspec import Struct
from telegram.error import BadRequest, Forbidden, InvalidToken, TelegramError

from nanobot.bus.events import InboundMessage, Progress, TurnEnded, TurnStarted
from nanobot.clock import Clock, with_timeout
from nanobot.errors import SendRefused
from nanobot_telegram.chats import Chats, number
from nanobot_telegram.client import Flooded, TelegramClient

SEEN, WORKING, DONE, NOTHING = "👀", "⚡", "👍", ""
"""No reaction asks to keep a message."""

_DELAY = 0.6  # seconds; a quick answer needs only its last mark
_PACE = 0.25  # seconds between two calls
_PATIENCE = 10.0  # seconds for one call
_MESSAGES = 500  # remembered messages
_REFUSED = 256  # remembered chats that reject reactions
_GONE = ("not found", "message_id_invalid", "not_modified", "not modified")
"""Telegram's texts if only this message cannot be marked."""

K = TypeVar("K")
V = TypeVar("V")


class _Mark(Struct):
    """The mark that a message should have, and the one it has, or None if that is unknown."""

    wanted: str
    shown: str | None = NOTHING


class Reactions:
    """The reactions in all chats. Without `enabled` there are none."""

    def __init__(
        self, client: TelegramClient, chats: Chats, clock: Clock, *, enabled: bool = True
    ) -> None:
        self._client, self._chats, self._clock = client, chats, clock
        self._enabled = enabled
        self._marks: OrderedDict[tuple[str, int], _Mark] = OrderedDict()
        self._changed: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._wake = asyncio.Event()

    def note_stored(self, messages: Iterable[InboundMessage]) -> None:
        """Mark durable messages that wait for the agent's answer. Of an album only the first,
        because its reactions are shared."""
        album = ""
        for message in messages:
            is_next = bool(message.delivery.group_id) and message.delivery.group_id == album
            album = message.delivery.group_id
            if message.delivery.unanswered or is_next or message.content.startswith("/"):
                continue
            for key in self._keys(message.chat_id, (message.event_id,)):
                self._note(key, SEEN)

    def note_progress(self, event: Progress) -> None:
        """Record the start or end of a turn."""
        if not isinstance(event, TurnStarted | TurnEnded):
            return
        keys = self._keys(event.chat_id, event.event_ids)
        known = [key for key in keys if key in self._marks]
        if isinstance(event, TurnStarted):
            mark, known = WORKING, known or keys[:1]
        else:
            goes_on = event.outcome in {"waiting", "held"}
            mark = DONE if event.outcome == "done" else SEEN if goes_on else NOTHING
        for key in known:
            self._note(key, mark, None)  # it may have a mark from before a restart

    async def run(self) -> None:
        """Make the calls until cancelled."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(_DELAY)
            while self._changed:
                key, _ = self._changed.popitem(last=False)
                mark = self._marks.get(key)
                if mark is not None and mark.wanted != mark.shown and not self._is_refused(key[0]):
                    pause = await self._show(key, mark)
                    await self._clock.sleep(pause)
            self._wake.clear()

    async def _show(self, key: tuple[str, int], mark: _Mark) -> float:
        """Mark a message. Return the seconds until the next call. Never raises."""
        chat_id, message_id = key
        wanted = mark.wanted
        try:
            fields = {
                "chat_id": self._chats.current(chat_id),
                "message_id": message_id,
                "reaction": [{"type": "emoji", "emoji": wanted}] if wanted else None,
            }
            call = self._client.call("setMessageReaction", fields)
            await with_timeout(self._clock, _PATIENCE, call)
            mark.shown = wanted
        except Flooded as error:
            return max(error.seconds, _PACE)
        except (BadRequest, Forbidden, InvalidToken, SendRefused) as error:
            logger.debug("telegram: a reaction was not set in {}: {}", chat_id, error)
            if not any(text in str(error).casefold() for text in _GONE):
                remember(self._refused, chat_id, None, _REFUSED)
        except (TelegramError, TimeoutError) as error:
            mark.shown = None
            logger.debug("telegram: a reaction was not set in {}: {!r}", chat_id, error)
        return _PACE

    def _note(self, key: tuple[str, int], wanted: str, shown: str | None = NOTHING) -> None:
        """Record the mark that a message should have. `shown` is the mark of a new message."""
        if not self._enabled or self._is_refused(key[0]):
            return
        mark = self._marks.pop(key, None) or _Mark(wanted, shown)
        mark.wanted = wanted
        remember(self._marks, key, mark, _MESSAGES)
        remember(self._changed, key, None, _MESSAGES)
        self._wake.set()

    def _keys(self, chat_id: str, event_ids: Sequence[str]) -> list[tuple[str, int]]:
        """Return the messages of these events. Other events, such as a pressed button, are skipped,
        and so are messages of a group that has a new id."""
        chat_id = self._chats.canonical(chat_id)
        keys = []
        for event_id in event_ids:
            place, _, event = event_id.rpartition("/")
            message_id = number(event.partition(":")[0])
            if message_id is not None and (not place or self._is_at(chat_id, place)):
                keys.append((chat_id, message_id))
        return keys

    def _is_at(self, chat_id: str, place: str) -> bool:
        with suppress(SendRefused):  # not a chat id
            return str(self._chats.current(chat_id)) == place
        return False

    def _is_refused(self, chat_id: str) -> bool:
        return chat_id in self._refused or self._chats.is_unreachable(chat_id)


def remember(known: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    """Keep the newest entries, at most `limit`. An existing entry keeps its place."""
    known[key] = value
    if len(known) > limit:
        known.popitem(last=False)
