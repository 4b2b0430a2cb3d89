"""The operations `conversations.…`, which show conversations to the page and other clients.

`seq` numbers a conversation's messages for good, so a reader that knows the last one can ask for
those after it and gets none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice
from operator import attrgetter
from typing import Literal

from msgspec import to_builtins

from nanobot.bus.events import Address
from nanobot.channel import Operation
from nanobot.commands import in_threads, number_argument, optional_text, text_argument
from nanobot.errors import NanobotError, UnknownSession
from nanobot.memory.forget import ForgottenFacts
from nanobot.memory.scopes import Scopes, chat_of
from nanobot.memory.search.find import FoundMessage
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.session.session import ARCHIVED, PINNED, SessionInfo
from nanobot.session.titles import read_title

_MOST = 200
"""Most conversations, or messages, in one answer."""
_AGE_SECONDS = 5.0
"""Seconds until a page shows changes that another process, or a person, made to the files."""
_SETTLE_SECONDS = 0.5
_NAMED = 10
"""Most chats and names listed for a scope."""


FindMessages = Callable[..., Awaitable[Sequence[FoundMessage]]]
"""`MemoryIndex.find_messages`."""


class Conversations:
    """The operations on conversations. `scopes` maps them to their memory scopes. `find_messages`
    searches their index, and `root_of` returns the folder of a scope's memory."""

    def __init__(
        self,
        sessions: SessionManager,
        scopes: Scopes,
        find_messages: FindMessages,
        root_of: Callable[[str], Root],
    ) -> None:
        self._sessions, self._scopes = sessions, scopes
        self._find_messages, self._root_of = find_messages, root_of

    def table(self) -> Mapping[str, Operation]:
        return {
            "conversations.show": self.show,
            "conversations.scope": self.scope,
            "conversations.search": self.search,
            "conversations.take_back": self.take_back,
            "conversations.mark": self.mark,
            "conversations.owner": self.owner,
            **in_threads(
                {
                    "conversations.list": self.list_conversations,
                    "conversations.versions": self.versions,
                    "conversations.titles": self.titles,
                    "conversations.find": self.find,
                    "conversations.scopes": self.scopes,
                }
            ),
        }

    def list_conversations(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """List conversations, the pinned ones first, then the last used: `limit` from `offset`,
        optionally of one `scope` and with `query` in their title, key or last words. With
        `archived`, list the archived ones instead. `total` counts all of them."""
        scope = optional_text(arguments, "scope")
        query = optional_text(arguments, "query").casefold()
        archived = arguments.get("archived") is True
        offset = number_argument(arguments, "offset")
        limit = min(number_argument(arguments, "limit", 50), _MOST)
        end = offset + limit
        # Read only the shown ones of perhaps ten thousand, if their scopes are known.
        counts = self._sessions.count_by_scope(archived=archived, within=_AGE_SECONDS)
        is_quick = not query and not (scope and counts.get(None))
        infos = self._sessions.list_sessions(
            archived=archived, scope=scope, within=_AGE_SECONDS, most=end if is_quick else None
        )
        found = self._select(infos, scope, query)
        if is_quick:
            shown = list(islice(found, offset, end))
            total = counts.get(scope, 0) if scope else sum(counts.values())
        else:
            every = list(found)
            shown, total = every[offset:end], len(every)
        return {"total": total, "conversations": [_render_conversation(*one) for one in shown]}

    def _select(
        self, infos: Iterable[SessionInfo], scope: str, query: str
    ) -> Iterator[tuple[SessionInfo, str]]:
        """Yield the matching conversations, each with its scope."""
        for info in infos:
            if query in f"{info.title}\n{info.key}\n{info.preview}".casefold():
                owner = self._scopes.of_session(info.key, info.metadata)
                if scope in ("", owner):
                    yield info, owner

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
            "title": read_title(metadata, session.epoch_seq),
            "name": _text(metadata, "name"),
            "model": session.metadata.get("model") or "",
            "pinned": bool(metadata.get(PINNED)),
            "archived": bool(metadata.get(ARCHIVED)),
            "effort": session.metadata.get("effort") or "",
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

    async def search(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Find the newest `limit` messages in all conversations of a `scope` (empty: of everyone)
        with all words of the `query`, or their beginnings. `marks` are the places of the words in
        the `snippet`."""
        query, scope = text_argument(arguments, "query"), optional_text(arguments, "scope")
        limit = min(number_argument(arguments, "limit", 20), _MOST)
        with suppress(TimeoutError):  # the index has only what is in the files
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._sessions.settle()
        found = await self._find_messages(query, scope, limit, within=_AGE_SECONDS)
        return {"hits": await asyncio.to_thread(self._describe_hits, found)}

    def _describe_hits(self, found: Sequence[FoundMessage]) -> list[dict[str, object]]:
        """Return the messages that were not just retracted, with the titles of their
        conversations."""
        read = self._sessions.read_window
        left = [one for one in found if read(one.key, one.seq, one.seq)]
        titles = self._sessions.titles({one.key for one in left}, within=_AGE_SECONDS)
        return [{**one._asdict(), "title": titles.get(one.key, "")} for one in left]

    def titles(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the titles of the conversations `keys` that have one, by key."""
        keys = arguments.get("keys")
        keys = keys if isinstance(keys, list) else []
        wanted = {one for one in keys if isinstance(one, str) and one}
        found = self._sessions.titles(wanted, within=_AGE_SECONDS)
        return {"titles": {key: title for key, title in found.items() if title}}

    def versions(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the earlier versions of the `turn` in the conversation `key`, oldest first: the
        messages of the turns that it replaced (`/retry`, `/edit`). Their effects may remain."""
        key, turn = text_argument(arguments, "key"), text_argument(arguments, "turn")
        scope = self._scopes.of_session(key, self._sessions.metadata_of(key))
        forgotten = ForgottenFacts(self._root_of(scope))
        left = [
            one
            for one in self._sessions.read_replaced(key, turn)
            if not any(forgotten.hides_line(text, one.timestamp) for text in one.texts)
        ]
        return {
            "versions": [
                {"turn": turn_id, "messages": list(map(_render_message, messages))}
                for turn_id, messages in groupby(left, key=attrgetter("turn_id"))
            ]
        }

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

    async def mark(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Mark the message `seq` of the conversation `key` to keep (`kept`), or remove its mark.
        `by` names the person and the place."""
        key, by = text_argument(arguments, "key"), text_argument(arguments, "by")
        seq, kept = number_argument(arguments, "seq"), arguments.get("kept") is True
        if not await asyncio.to_thread(self._sessions.read_window, key, seq, seq):
            raise NanobotError("this conversation has no such message")
        session = await self._sessions.get_or_create(key)
        await self._sessions.mark(session, seq, kept=kept, by=by, via="the page")
        return {"key": key, "seq": seq, "kept": kept}

    async def owner(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the scope of the conversation `key`, empty if it is not stored."""
        key = text_argument(arguments, "key")
        session = await self._sessions.get_or_create(key)
        owner = self._scopes.owner_of(key, session.metadata)
        is_stored = session.messages or session.next_seq > 1
        if not owner and (is_stored or await asyncio.to_thread(self._sessions.is_stored, key)):
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


def _text(metadata: Mapping[str, object], key: Literal["name"]) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""


def _render_conversation(info: SessionInfo, scope: str) -> dict[str, object]:
    return {
        "key": info.key,
        "channel": Address.of(info.key).channel,
        "chat": chat_of(info.key, info.metadata),
        "scope": scope,
        "title": info.title,
        "name": _text(info.metadata, "name"),
        "preview": info.preview,
        "pinned": info.is_pinned,
        "archived": info.is_archived,
        "updated_at": info.updated_at.isoformat(),
    }


def _render_message(message: Message) -> dict[str, object]:
    """Convert a message for programs. Empty fields are left out. `version` 3 is the newest of
    three (see `Conversations.versions`)."""
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
        "version": len(message.replaces) + 1 if message.replaces else 0,
        "ended": message.ended,
    }
    return {name: value for name, value in fields.items() if value or name in ("seq", "content")}
