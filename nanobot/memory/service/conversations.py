"""`/continue` and `/discard`: going on with another conversation, and dropping this one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from nanobot.commands import Answer, CommandCall
from nanobot.memory.scopes import Scopes, is_group
from nanobot.memory.service import MemoryService
from nanobot.memory.service.views import format_minute
from nanobot.memory.version import Version
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import Session, SessionInfo
from nanobot.text import counted, shortened

_LISTED, _PREVIEW = 10, 60


class ContinueCommand:
    """`/continue`: carries a conversation over from another one with the same person.

    What is copied is the other conversation's tail that memory does not hold yet; the other one
    stays as it is. The copy is one turn of this conversation, so that `/undo` takes it back. Only
    conversations of the same scope are reached, and never from a group.
    """

    def __init__(self, sessions: SessionManager, scopes: Scopes) -> None:
        self._sessions, self._scopes = sessions, scopes

    async def run(self, call: CommandCall) -> Answer:
        """Copy the conversation that the argument names, or list those that there are."""
        session, scope = call.session, call.scope
        if is_group(scope):
            return Answer("/continue works in a private chat only.")
        others = await asyncio.to_thread(self._linked, scope, session.key)
        wanted = call.arguments.strip()
        if not others:
            return Answer("There is no other conversation of yours to continue.")
        if wanted not in others:
            unknown = "You have no other conversation of that name.\n\n" if wanted else ""
            return Answer(unknown + await self._list(list(others.values())))
        here = {_identity(message) for message in session.messages}
        new = [one for one in await self._tail(wanted) if _identity(one) not in here]
        if not new:
            return Answer(f"Nothing of {wanted} is missing here; what is older is in memory.")
        for message in new:
            session.add_message(
                replace(message, seq=0, turn_id=f"continue-{call.entry_id}", kept=False)
            )
        return Answer(
            f"Copied {counted(len(new), 'message')} of {wanted}; go on where you were. "
            "/undo takes them back."
        )

    def _linked(self, scope: str, own: str) -> dict[str, SessionInfo]:
        """Conversations with the same person, the latest first. Blocks."""
        infos, of_session = self._sessions.list_sessions(), self._scopes.of_session
        # Whose it is stands in the session itself: a key may look like a person and be a group.
        same = (one for one in infos if of_session(one.key, one.metadata) == scope)
        return {info.key: info for info in same if info.key != own}

    async def _tail(self, key: str) -> tuple[Message, ...]:
        messages = (await self._sessions.get_or_create(key)).messages
        first = next((at for at, m in enumerate(messages) if m.role == "user"), len(messages))
        return messages[first:]

    async def _list(self, infos: Sequence[SessionInfo]) -> str:
        lines = [
            f"- `/continue {info.key}`: {format_minute(info.updated_at)}, "
            f"{counted(len(await self._tail(info.key)), 'message')}, "
            f"“{shortened(info.preview, _PREVIEW)}”"
            for info in infos[:_LISTED]
        ]
        return "\n".join(["Your other conversations, the latest first:", "", *lines])


def _identity(message: Message) -> tuple[object, ...]:
    """What makes two messages the same, in whatever conversations they are."""
    return message.timestamp, message.role, message.content, message.tool_call_id


UNDO = "[--undo]"
_MOST_TURNS, _FILES_SHOWN = 50, 8


class FileChanges(Protocol):
    """What turns changed in files; `nanobot.tools.undo.UndoLog`. Blocks."""

    def paths(self, turn_id: str) -> list[str]:
        """The files that a turn changed."""
        ...

    def revert(self, turn_id: str) -> Sequence[tuple[str, str]]:
        """Put them back; say per file what came of it."""
        ...


class DiscardCommand:
    """`/discard`: drops a conversation without remembering it, and says what that does not take
    back.

    The messages leave the window and memory. What was done in the meantime stays: files that its
    turns changed, which `/discard --undo` puts back (also right after a `/discard`), facts that
    were learned, each with the command that takes it back, and effects that nothing takes back.
    `has_effects` says of a tool whether it does more than look.
    """

    def __init__(
        self, service: MemoryService, changes: FileChanges, has_effects: Callable[[str], bool]
    ) -> None:
        self._service, self._changes, self._has_effects = service, changes, has_effects

    async def run(self, call: CommandCall) -> Answer:
        """Drop the conversation, and put files back where that is asked for."""
        if call.arguments not in ("", "--undo"):
            return Answer("Write it as: /discard, or /discard --undo to put its files back too.")
        session, undo = call.session, call.arguments == "--undo"
        async with session.removal_lock:
            gone = session.messages
            session.discard(call.entry_id)
        turns = list(dict.fromkeys(message.turn_id for message in gone if message.turn_id))
        lines = [f"Dropped {counted(len(gone), 'message')}; nothing of it will be remembered."]
        if not gone:
            turns, lines = _discarded_turns(session) if undo else [], []
            if not turns:
                return Answer("This conversation is empty.")
        files: list[str] = []
        if undo:
            lines += await asyncio.to_thread(self._put_back, turns)
        else:
            files = await asyncio.to_thread(self._files, turns)
        learned = await self._learned(call, gone)
        if left := list(self._left(gone, files, learned)):
            lines += ["", "This stays as it is:", *left]
        kept: list[JsonValue] = [*turns[-_MOST_TURNS:]]
        session.set_metadata(discarded=kept if files else None)
        return Answer("\n".join(lines))

    async def _learned(self, call: CommandCall, gone: Sequence[Message]) -> Sequence[Version]:
        since = next((message.timestamp for message in gone if message.timestamp), None)
        if since is None:
            return []
        return await self._service.learned_in(call.session.key, since, call.scope)

    def _put_back(self, turns: Sequence[str]) -> list[str]:
        changed = [turn for turn in reversed(turns) if self._changes.paths(turn)]
        done = [one for turn in changed for one in self._changes.revert(turn)]
        return [f"- {path}: {outcome}" for path, outcome in done] or ["It had changed no files."]

    def _files(self, turns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(path for turn in turns for path in self._changes.paths(turn)))

    def _left(
        self, gone: Sequence[Message], files: Sequence[str], learned: Sequence[Version]
    ) -> Iterator[str]:
        known = {path for version in learned for path in version.paths}
        if other := [path for path in files if path not in known]:
            more = f" and {len(other) - _FILES_SHOWN} more" if len(other) > _FILES_SHOWN else ""
            shown = ", ".join(other[:_FILES_SHOWN])
            yield f"- files it changed: {shown}{more} (`/discard --undo`)"
        for version in learned:
            undo = f"`/dream-restore --version {version.number}`"
            yield f"- in memory: {shortened(version.summary, 120)} ({undo})"
        if effects := self._effects(gone):
            yield f"- what its tools did and sent: {', '.join(effects)}"

    def _effects(self, gone: Sequence[Message]) -> list[str]:
        """The tools that did more than look, and how often."""
        calls = Counter(call.name for message in gone for call in message.tool_calls)
        done = {name: times for name, times in calls.items() if self._has_effects(name)}
        return [f"{name} ({times})" if times > 1 else name for name, times in done.items()]


def _discarded_turns(session: Session) -> list[str]:
    """The turns whose files `/discard --undo` can still put back."""
    before = session.metadata.get("discarded")
    return [str(turn) for turn in before] if isinstance(before, list) else []
