"""The conversations that a person can continue in the terminal: a list with a search, the names of
new ones, the last used one, and temporary chats. Imports only light modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nanobot.errors import NanobotError
from nanobot_cli.text import one_line
from nanobot_cli.wire import DEFAULT_SESSION, TEMPORARY, Reply, is_session_key

if TYPE_CHECKING:
    from datetime import datetime

_PAGE_SIZE = 50
_OWNER = "owner"
_OWN = ("cli", "web")
"""The channels whose conversations continue here. Others are copied with `/continue`."""
_CHANNELS = {"cli": "terminal", "web": "page", "telegram": "Telegram", "whatsapp": "WhatsApp"}
_MOST = 200
_BEFORE = 16
"""Characters that are shown before the first word of a hit."""

Ask = Callable[[str, Mapping[str, object]], Any]
"""Runs an operation of the gateway. Raises `NanobotError`."""
Record = Mapping[str, Any]
"""An object in its answer."""


class Conversation(NamedTuple):
    """A conversation in a list. `at` is the time of its last use, or of the message with the `hit`
    of a search, in ISO format."""

    key: str
    title: str
    at: str
    hit: str = ""

    @property
    def channel(self) -> str:
        """Its channel, as people call it."""
        name = self.key.partition(":")[0]
        return _CHANNELS.get(name, name)

    @property
    def is_own(self) -> bool:
        """True if it continues here, under its own key."""
        return self.key.startswith(tuple(f"{one}:" for one in _OWN))


class Found(NamedTuple):
    """A page of a list, and the place of the next one in the whole list, 0 if there is none."""

    page: Sequence[Conversation]
    next: int


class ConversationList:
    """The owner's conversations, as the gateway lists them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def find(self, words: str, offset: int = 0) -> Found:
        """Return a page of the list, the last used first. With `words`, return the conversations
        with these in their title or last words, then all with a message that has every word.
        Raises `NanobotError`."""
        listed = self._list(query=words, scope=_OWNER if words else "", offset=offset)
        found = {one["key"]: _read(one) for one in listed if _is_owners(one)}
        if words and not offset:
            for hit in self._search(words):
                found[hit.key] = found.get(hit.key, hit)._replace(hit=hit.hit)
        return Found(list(found.values()), offset + _PAGE_SIZE if len(listed) == _PAGE_SIZE else 0)

    def last_used(self) -> str:
        """Return the key of the last used conversation of the terminal and the page, or the
        default key. Raises `NanobotError`."""
        own = [_read(one) for one in self._list(limit=_MOST) if _is_owners(one)]
        latest = max((one for one in own if one.is_own), key=lambda one: one.at, default=None)
        return latest.key if latest else DEFAULT_SESSION

    def messages(self, key: str, limit: int) -> list[tuple[str, str]]:
        """Return the last spoken messages of a conversation: the role and the text of each. Raises
        `NanobotError`."""
        messages = self._ask("conversations.show", {"key": key, "limit": _MOST})["messages"]
        spoken = [(one["role"], one["content"]) for one in messages if _is_spoken(one)]
        return spoken[-limit:]

    def new_key(self, now: datetime, *taken: str) -> str:
        """Return the key of a new conversation, named after the time."""
        key = name = f"cli:{now:%y%m%d-%H%M}"
        number = 1
        while key in taken or not self._is_new(key):
            number += 1
            key = f"{name}-{number}"
        return key

    def _is_new(self, key: str) -> bool:
        try:
            return bool(self._ask("conversations.show", {"key": key, "limit": 1})["new"])
        except NanobotError:  # it will be seen when it is used
            return True

    def _list(self, *, limit: int = _PAGE_SIZE, **arguments: object) -> Sequence[Record]:
        data = self._ask("conversations.list", {**arguments, "limit": limit})
        return list[Record](data["conversations"])

    def _search(self, words: str) -> Iterator[Conversation]:
        """Yield the conversations of messages with the words, each with its newest message, the
        newest first."""
        arguments = {"query": words, "scope": _OWNER, "limit": _PAGE_SIZE}
        try:
            hits = self._ask("conversations.search", arguments)["hits"]
        except NanobotError:  # the titles have to do
            return
        known = set[str]()
        for one in hits:
            if one["key"] not in known and is_session_key(one["key"]):
                known.add(one["key"])
                title, snippet = one_line(one.get("title", ""), _MOST), _begin_at_words(one)
                yield Conversation(one["key"], title, one["at"], one_line(snippet, _MOST))


class LastConversation:
    """The file with the key of the terminal's last used conversation. `nanobot agent` continues
    it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        """Return the key, or the default one."""
        try:
            key = self._path.read_text(encoding="utf-8")[:_MOST].strip()
        except (OSError, UnicodeDecodeError):
            return DEFAULT_SESSION
        is_own = is_session_key(key) and key.startswith("cli:")
        return key if is_own else DEFAULT_SESSION

    def write(self, key: str) -> None:
        """Store the key. Best effort."""
        if not key.startswith("cli:"):
            return
        from nanobot.io import replace_file

        with suppress(OSError):  # the next chat continues an older conversation
            replace_file(self._path, key.encode(), durable=False)


class TemporaryChat:
    """A chat whose messages only this process has. It sends the earlier ones each time. Commands
    and their answers are no part of it."""

    def __init__(self) -> None:
        self.key = f"cli:{TEMPORARY}{os.urandom(8).hex()}"
        self.said: list[Mapping[str, str]] = []
        """The messages so far, as the gateway wants them."""
        self._asked: dict[str, str] = {}

    def note_sent(self, message_id: str, text: str) -> None:
        """Note a message that waits for its reply."""
        if not text.startswith("/"):
            self._asked[message_id] = text

    def note_reply(self, reply: Reply) -> None:
        """Note a reply, with the untrusted content that it may repeat."""
        if (text := self._asked.pop(reply.id, None)) is None:
            return
        self.said.append({"role": "user", "text": text})
        if reply.text.strip():
            answer = {"role": "assistant", "text": reply.text, "origin": reply.origin}
            self.said.append(answer)


def _begin_at_words(hit: Record) -> str:
    """Return the snippet of a hit, from shortly before the first of the words: a narrow terminal
    shows only its beginning."""
    snippet, marks = hit["snippet"], hit.get("marks")
    at = marks[0][0] if marks else 0
    is_far = isinstance(at, int) and at > _BEFORE
    start = snippet.rfind(" ", 0, at - _BEFORE) + 1 if is_far else 0
    return f"…{snippet[start:]}" if start else snippet


def _is_owners(one: Record) -> bool:
    return one["scope"] == _OWNER and is_session_key(one["key"])


def _is_spoken(one: Record) -> bool:
    is_own = one["role"] == "user" and one.get("origin", "") in ("", "attached")
    return bool(one["content"]) and (is_own or one["role"] == "assistant")


def _read(one: Record) -> Conversation:
    name = one.get("title") or one.get("preview") or ""
    return Conversation(one["key"], one_line(name, _MOST), one["updated_at"] or "")


def number_entries(found: Sequence[Conversation], now: datetime) -> str:
    """Return the conversations as a numbered list, for a terminal without a cursor and for a
    pipe."""
    from nanobot_cli.waiting import when

    lines = list[str]()
    for number, one in enumerate(found, 1):
        facts = " · ".join(filter(None, (one.title, when(one.at, now), one.channel)))
        lines += [f"{number:>3}. {facts}", *([f"     {one.hit}"] if one.hit else ())]
    return "\n".join(lines)
