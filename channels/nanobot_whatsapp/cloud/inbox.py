"""From what a webhook call says to messages in the core's inbox.

All that was said in the calls that wait is stored at once, and only then may Meta be told. But what
was said before somebody got another number is stored before that, as what they said. An error of
the core is no fault of what came: it is raised, nothing is confirmed, and Meta calls again. It may
do so at any other time, too, when the number of whoever said something is another one already: so
what was stored lately is known here as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

from loguru import logger

from nanobot.channel import ChannelHost, Chat
from nanobot.channel.health import HealthReporter, RateLimitedLog
from nanobot.channel.quarantine import Quarantine
from nanobot_whatsapp.cloud.failures import in_words, kind_of
from nanobot_whatsapp.cloud.items import Account, Broken, Moved, Remark, Said, Status
from nanobot_whatsapp.cloud.payload import read
from nanobot_whatsapp.cloud.recent import Recent
from nanobot_whatsapp.cloud.windows import Windows
from nanobot_whatsapp.people import People
from nanobot_whatsapp.values import Heard

_MOST_CHATS = 1_000
_MOST_STORED = 2_000
_FAILED = "failed"
_ARRIVED = frozenset({"delivered", "read", "played"})

_Key = tuple[str, tuple[str, ...]]
"""A message, and all ids of whoever wrote it."""


class Take(Protocol):
    """Stores what was said; see `nanobot_whatsapp.taking.Taking`."""

    async def take(self, heard: Sequence[Heard]) -> Sequence[Heard]:
        """What was admitted; raises `StorageError`, and then nothing is stored."""
        ...


class Inbox:
    """Takes the calls for one business number."""

    def __init__(
        self,
        host: ChannelHost,
        people: People,
        taking: Take,
        recent: Recent,
        health: HealthReporter,
        phone_number_id: str,
    ) -> None:
        self._host, self._people, self._taking = host, people, taking
        self._recent, self._health = recent, health
        self._windows = Windows(health)
        self._phone_number_id = phone_number_id
        self._quarantine = Quarantine(
            host.state_folder, host.clock, RateLimitedLog("whatsapp", host.clock).warn
        )
        self._last: OrderedDict[str, str] = OrderedDict()
        self._stored: OrderedDict[_Key, None] = OrderedDict()

    async def take(self, *documents: object) -> None:
        """Handle what calls say, in order; returns when all of it is durable.

        Raises `StorageError`, and then nothing is confirmed.
        """
        heard: list[Heard] = []
        now = self._host.clock.now()
        items = [read(document, self._phone_number_id, now) for document in documents]
        for item in chain.from_iterable(items):
            match item:
                case Said():
                    if _key(item.heard) not in self._stored:
                        heard.append(await self._heard(item))
                case Moved(old, new):
                    await self._store(heard)
                    heard = []
                    self._people.moved(old, new)
                case _:
                    self._note(item)
        self._people.keep()
        await self._store(heard)

    def put_aside(self, raw: object, reason: str) -> None:
        """Keep what cannot be read."""
        self._quarantine.keep(raw, reason)

    def last_in(self, chat_id: str) -> str:
        """The id of the last message in a private chat; empty where it is not known."""
        return self._last.get(chat_id, "")

    async def _store(self, heard: Sequence[Heard]) -> None:
        if heard:
            self._remember(await self._taking.take(heard))

    async def _heard(self, said: Said) -> Heard:
        heard = said.heard
        if heard.quote is not None:
            heard = replace(heard, quote=self._recent.filled(heard.quote))
        if not said.button or heard.group:
            return heard
        chat = Chat(self._people.met(heard.person.ids))
        value = await self._host.pressed(said.button, self._people.sender(heard.person), chat)
        return heard if value is None else replace(heard, text=value)

    def _note(self, item: Status | Broken | Remark | Account) -> None:
        match item:
            case Account(text, over):
                if over:
                    self._health.resolve("account")
                else:
                    self._health.report("account", text)
                self._host.warn(f"WhatsApp: {text}. See Meta's WhatsApp Manager.")
            case Status():
                self._status(item)
            case Broken(raw, reason):
                self._quarantine.keep(raw, reason)
            case Remark(text, grave):
                logger.log("WARNING" if grave else "DEBUG", "whatsapp: {}", text)

    def _status(self, status: Status) -> None:
        """They come in any order, and more than once. Only failures are of use: Meta took these
        messages, and then did not deliver them."""
        if status.state == _FAILED:
            reason = in_words(status.code, status.reason)
            logger.warning("whatsapp: message {} was not delivered: {}", status.id, reason)
            if kind_of(status.code) == "window":
                self._windows.closed(status.person, status.at)
        elif status.state in _ARRIVED:
            self._windows.opened([status.person], status.at)

    def _remember(self, admitted: Sequence[Heard]) -> None:
        for heard in admitted:
            self._stored[_key(heard)] = None
            if len(self._stored) > _MOST_STORED:
                self._stored.popitem(last=False)
            self._recent.remember(heard.id, heard.person.name, _shown(heard))
            chat_id = self._people.met(heard.person.ids)
            # What did not arrive was sent there, also where they hide their number by now.
            self._windows.opened([*heard.person.ids, self._people.address(chat_id)], heard.at)
            if heard.group:
                continue
            self._last[chat_id] = heard.id
            self._last.move_to_end(chat_id)
            if len(self._last) > _MOST_CHATS:
                self._last.popitem(last=False)


def _key(heard: Heard) -> _Key:
    return heard.id, heard.person.ids


def _shown(heard: Heard) -> str:
    """What stands for a message where it is quoted."""
    file = heard.media and f"{heard.media.kind} {heard.media.name}".rstrip()
    return heard.text or file or "; ".join(heard.notes)
