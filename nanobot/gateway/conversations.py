"""The operations `conversations.…`, which show conversations to the page and other clients.

`seq` numbers a conversation's messages for good, so a reader that knows the last one can ask for
those after it and gets none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Literal

from msgspec import to_builtins

from nanobot.bus.events import Address
from nanobot.channel import Operation
from nanobot.commands import in_threads, number_argument, optional_text, text_argument
from nanobot.errors import UnknownSession
from nanobot.memory.scopes import Scopes, chat_of
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import SessionInfo

_MOST = 200
"""Most conversations, or messages, in one answer."""
_AGE_SECONDS = 5.0
"""Seconds until a page shows changes that another process, or a person, made to the files."""
_NAMED = 10
"""Most chats and names listed for a scope."""


class Conversations:
    """The operations on conversations. `scopes` maps them to their memory scopes."""

    def __init__(self, sessions: SessionManager, scopes: Scopes) -> None:
        self._sessions, self._scopes = sessions, scopes

    def table(self) -> Mapping[str, Operation]:
        return {
            "conversations.show": self.show,
            "conversations.scope": self.scope,
            "conversations.take_back": self.take_back,
            "conversations.owner": self.owner,
            **in_threads(
                {
                    "conversations.list": self.list_conversations,
                    "conversations.find": self.find,
                    "conversations.scopes": self.scopes,
                }
            ),
        }

    def list_conversations(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """List conversations, the last used first: `limit` from `offset`, optionally of one `scope`
        and with `query` in their title, key or last words. `total` counts all of them."""
        scope = optional_text(arguments, "scope")
        query = optional_text(arguments, "query").casefold()
        offset = number_argument(arguments, "offset")
        limit = min(number_argument(arguments, "limit", 50), _MOST)
        of, most = self._scopes.of_session, None if scope or query else offset + limit
        infos = self._sessions.list_sessions(within=_AGE_SECONDS, most=most)
        if most is None:
            owned = [
                (one, of(one.key, one.metadata))
                for one in infos
                if query in f"{_text(one.metadata, 'title')}\n{one.key}\n{one.preview}".casefold()
            ]
            found = [one for one in owned if scope in ("", one[1])]
            shown, total = found[offset : offset + limit], len(found)
        else:  # read only the first ones of perhaps ten thousand
            shown = [(one, of(one.key, one.metadata)) for one in islice(infos, offset, None)]
            total = offset + len(shown) if 0 < len(shown) < limit else self._sessions.count()
        return {"total": total, "conversations": [_render_conversation(*one) for one in shown]}

    async def show(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the newest `limit` messages of the conversation `key`, optionally `before` a seq,
        or the oldest from the seq `first`. `last` is the newest seq, `more` means that older ones
        are left, and `new` that the conversation is empty."""
        key = text_argument(arguments, "key")
        limit = min(number_argument(arguments, "limit", 50), _MOST)
        metadata = await asyncio.to_thread(self._sessions.metadata_of, key)
        session = await self._sessions.get_or_create(key)
        last = session.messages[-1].seq if session.messages else session.last_consolidated
        before = number_argument(arguments, "before", last + 1)
        messages, more = list[Message](), False
        if first := number_argument(arguments, "first"):
            messages, more = await asyncio.to_thread(self._from, key, first, limit), first > 1
        elif last:
            found = await asyncio.to_thread(self._window, key, before, limit + 1)
            messages, more = found[-limit:], len(found) > limit
        return {
            "key": key,
            "scope": self._scopes.of_session(key, metadata),
            "new": not metadata and not last,
            "title": _text(metadata, "title"),
            "name": _text(metadata, "name"),
            "model": session.metadata.get("model") or "",
            "last": last,
            "more": more,
            "messages": list(map(_render_message, messages)),
        }

    def find(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Find messages with `query` in the conversation `key`, the newest first."""
        key, query = text_argument(arguments, "key"), text_argument(arguments, "query").casefold()
        found = self._sessions.read_window(key)
        spoken = [m for m in found if m.role != "tool" and query in m.content.casefold()]
        return {"key": key, "messages": list(map(_render_message, spoken[: -_MOST - 1 : -1]))}

    async def take_back(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Remove the messages of a `turn` from the conversation `key`, its prompts and the search.
        An empty `turn` means the messages without one, which a program sent as context."""
        key, turn = text_argument(arguments, "key"), optional_text(arguments, "turn")
        session = await self._sessions.get_or_create(key)
        stored = list[Message]()
        with suppress(UnknownSession):
            stored = await asyncio.to_thread(self._sessions.read_window, key)
        gone = {one.seq for one in (*stored, *session.messages) if one.turn_id == turn}
        if gone:
            await self._sessions.retract(session, gone)
        return {"messages": len(gone)}

    async def owner(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the scope of the conversation `key`, empty if that has no messages."""
        key = text_argument(arguments, "key")
        session = await self._sessions.get_or_create(key)
        owner = self._scopes.owner_of(key, session.metadata)
        if not owner and (session.messages or session.next_seq > 1):
            owner = self._scopes.of_session(key, session.metadata)
        return {"scope": owner}

    async def scope(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the scope of the person with this `account` (`telegram:12345`, `owner`)."""
        account = text_argument(arguments, "account")
        return {"scope": self._scopes.of_session("web:", {"sender": account})}

    def scopes(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """List the scopes `known`, then all others that are linked or have conversations, the last
        used first: `limit` from `offset`, of `total`. Each has its number of conversations, some of
        its `chats` and `names`, and its `linked` accounts."""
        known = arguments.get("known")
        first = [one for one in known if isinstance(one, str)] if isinstance(known, list) else []
        offset = number_argument(arguments, "offset")
        limit = min(number_argument(arguments, "limit", 50), _MOST)
        found, total = self._by_scope(first, offset, offset + limit)
        return {"scopes": [self._render_scope(*one) for one in found.items()], "total": total}

    def _by_scope(
        self, first: Sequence[str], start: int, end: int
    ) -> tuple[dict[str, list[SessionInfo]], int]:
        """Return a range of the list of scopes, each with its conversations, and the length of the
        list. Keeps no conversations of other scopes, as there may be ten thousand."""
        every = dict.fromkeys((*first, *self._scopes.accounts))
        places = {scope: place for place, scope in enumerate(every)}
        found: dict[str, list[SessionInfo]] = {one: [] for one in list(places)[start:end]}
        for info in self._sessions.list_sessions(within=_AGE_SECONDS):
            scope = self._scopes.of_session(info.key, info.metadata)
            if start <= places.setdefault(scope, len(places)) < end:
                found.setdefault(scope, []).append(info)
        return found, len(places)

    def _render_scope(self, scope: str, infos: Sequence[SessionInfo]) -> dict[str, object]:
        names = (_text(info.metadata, "name") for info in infos)
        return {
            "scope": scope,
            "conversations": len(infos),
            "chats": [info.key for info in infos[:_NAMED]],
            "names": list(dict.fromkeys(name for name in names if name))[:_NAMED],
            "linked": list(self._scopes.accounts.get(scope, ())),
            "updated_at": infos[0].updated_at.isoformat() if infos else "",
        }

    def _window(self, key: str, before: int, limit: int) -> list[Message]:
        """Return the newest messages before a seq. If many are retracted, read the whole file."""
        found, first = list[Message](), max(1, before - 2 * limit)
        if first < before:
            found = self._sessions.read_window(key, first, before - 1)
        if len(found) < limit and first > 1:
            found = self._sessions.read_window(key, 1, before - 1)
        return found[-limit:]

    def _from(self, key: str, first: int, limit: int) -> list[Message]:
        """Return the oldest messages from a seq. If many are retracted, read the whole file."""
        found = self._sessions.read_window(key, first, first + 2 * limit - 1)
        return (found if len(found) >= limit else self._sessions.read_window(key, first))[:limit]


def _text(metadata: Mapping[str, object], key: Literal["title", "name"]) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""


def _render_conversation(info: SessionInfo, scope: str) -> dict[str, object]:
    return {
        "key": info.key,
        "channel": Address.of(info.key).channel,
        "chat": chat_of(info.key, info.metadata),
        "scope": scope,
        "title": _text(info.metadata, "title"),
        "name": _text(info.metadata, "name"),
        "preview": info.preview,
        "updated_at": info.updated_at.isoformat(),
    }


def _render_message(message: Message) -> dict[str, object]:
    """Convert a message for programs. Empty fields are left out."""
    fields: dict[str, object] = {
        "seq": message.seq,
        "role": message.role,
        "content": message.content,
        "at": message.timestamp.isoformat() if message.timestamp else "",
        "turn": message.turn_id,
        "origin": message.origin,
        "name": message.name,
        "call": message.tool_call_id,
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "hint": call.hint}
            for call in message.tool_calls
        ],
        "media": to_builtins(message.media),
        "kept": message.kept,
        "about": message.about,
        "ended": message.ended,
    }
    return {name: value for name, value in fields.items() if value or name in ("seq", "content")}
