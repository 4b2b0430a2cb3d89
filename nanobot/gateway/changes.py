"""The operations `conversations.change` and `conversations.delete`.

Changes of the metadata are durable and belong to no turn. A deletion removes the messages with
their archive, files that no other conversation has, and the index of the messages. Memory keeps
what it learned."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from nanobot.bus.sql_journal import Journal
from nanobot.channel import Operation
from nanobot.commands import optional_text, text_argument
from nanobot.errors import NanobotError, UnknownSession
from nanobot.io import storage_errors
from nanobot.memory.scopes import Scopes
from nanobot.messages import MEDIA
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, JsonValue
from nanobot.session.session import ARCHIVED, DELETED, PINNED, Session
from nanobot.session.titles import LONGEST_TITLE, TITLE
from nanobot.tasks import pace
from nanobot.text import one_line, pluralize
from nanobot.upkeep.retention import MEDIA_NAME, SPILL_NAME

_FILES = '"media":'
"""In the journal while a message with files is answered, perhaps with the channel's names."""

_LONG_RESULTS = "spill"

InLane = Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]
Holding = Callable[[str], AbstractAsyncContextManager[None]]


class ConversationChanges:
    """The operations. `in_lane` runs a job after the present turn of a conversation, `holding`
    protects a scope from other workers, `refresh_index` drops deleted messages from the index, and
    `forget_shown` from the files of channels. `home` has the folder of the files."""

    def __init__(
        self,
        sessions: SessionManager,
        scopes: Scopes,
        journal: Journal,
        home: Path,
        *,
        in_lane: InLane,
        holding: Holding,
        refresh_index: Callable[[], Awaitable[None]],
        forget_shown: Callable[[str], Awaitable[None]],
    ) -> None:
        self._sessions, self._scopes, self._journal = sessions, scopes, journal
        self._home, self._in_lane, self._holding = home, in_lane, holding
        self._refresh_index, self._forget_shown = refresh_index, forget_shown

    def table(self) -> Mapping[str, Operation]:
        return {"conversations.change": self.change, "conversations.delete": self.delete}

    async def change(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Change the `title` (empty: its first words), `pinned` and `archived` of the conversation
        `key`, each only if it is given."""
        key, changes = text_argument(arguments, "key"), dict[str, JsonValue]()
        if TITLE in arguments:
            changes[TITLE] = one_line(optional_text(arguments, TITLE), LONGEST_TITLE) or None
        for name in (PINNED, ARCHIVED):
            if isinstance(wanted := arguments.get(name), bool):
                changes[name] = wanted or None
        if not changes:
            raise NanobotError("the operation needs a title, pinned or archived")
        session, scope = await self._find(key)
        async with self._holding(scope):
            await self._sessions.change_metadata(session, **changes)
        return {"text": "The conversation was changed.", "key": key, "scope": scope}

    async def delete(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Delete the conversation `key` for good. Raises `NanobotError` while nanobot answers in
        it."""
        key = text_argument(arguments, "key")
        await self._expect_idle(key)
        session, scope = await self._find(key)
        done = list[int]()
        async with self._holding(scope):
            await self._in_lane(key, partial(self._delete, session, done))
        messages, files = done
        counts = [pluralize(messages, "message"), *([pluralize(files, "file")] if files else [])]
        text = f"Deleted {' and '.join(counts)}. To remove what memory learned, use /forget."
        return {"text": text, "key": key, "scope": scope, "messages": messages, "files": files}

    async def _find(self, key: str) -> tuple[Session, str]:
        """Return a stored conversation and its scope. Raises `UnknownSession`."""
        session = await self._sessions.get_or_create(key)
        is_deleted = session.metadata.get(DELETED) and not session.messages
        if session.next_seq == 1 or is_deleted:
            raise UnknownSession(key)
        return session, self._scopes.of_session(key, session.metadata)

    async def _expect_idle(self, key: str) -> None:
        if await self._journal.is_busy(key):
            raise NanobotError(
                "a message in this conversation is not answered yet",
                hint="Wait for the answer, or send /stop there.",
            )

    async def _delete(self, session: Session, done: list[int]) -> None:
        """Delete the conversation last, so that an interrupted deletion can be repeated."""
        await self._expect_idle(session.key)
        messages, files, last = await asyncio.to_thread(self._count, session.key)
        await self._journal.forget_conversation(session.key)  # a start restores its lines
        await self._forget_shown(session.key)
        if files:
            name = re.compile("|".join((_FILES, *map(re.escape, files))))
            found = await self._journal.find_mentions(name)
            before = last if _FILES in found else math.inf
            own = self._sessions.places_of(session.key)
            remove = partial(remove_unused, self._home, files - found, before, own)
            files = await asyncio.to_thread(remove)
        await self._sessions.delete(session)
        await self._refresh_index()
        done += (messages, len(files))

    def _count(self, key: str) -> tuple[int, set[str], float]:
        """Return the number of messages of a conversation, the names of its files, and the time of
        its last message."""
        messages, files, last = 0, set[str](), 0.0
        for message in self._sessions.read_messages(key):
            messages += 1
            files.update(one.file for one in message.media if MEDIA_NAME.fullmatch(one.file))
            files.update(SPILL_NAME.findall(message.content) if message.role == "tool" else ())
            last = message.timestamp.timestamp() if message.timestamp else last
        return messages, files, last


def remove_unused(
    home: Path, names: Collection[str], before: float, own: Collection[Path]
) -> set[str]:
    """Remove these received files and long results of tools, if last used `before` that time,
    unless a conversation apart from the `own` file and folder mentions them. Return the names of
    the removed ones. Blocks."""
    left, sessions = set(names), home / "sessions"
    with storage_errors(sessions):
        for path in pace(sorted(sessions.rglob(f"*{SUFFIX}"))):
            is_own = path in own or path.parent in own
            content = b"" if is_own or not left else path.read_bytes()
            left = {name for name in left if name.encode() not in content}
        places = ((home / MEDIA / name, home / _LONG_RESULTS / name) for name in left)
        paths = [path for both in places for path in both if path.is_file()]
        gone = [path for path in paths if path.stat().st_mtime <= before]
        for path in gone:
            path.unlink(missing_ok=True)
    return {path.name for path in gone}
