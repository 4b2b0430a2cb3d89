"""`/discard`: drops a conversation without remembering it, and says what that does not take back.

The messages leave the window and memory. What was done in the meantime stays: files that its turns
changed, which `/discard --undo` puts back (also right after a `/discard`), facts that were learned,
each with the command that takes it back, and effects that nothing takes back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nanobot.commands import Answer, CommandCall
from nanobot.memory.service.service import MemoryService
from nanobot.memory.service.views import count, one_line
from nanobot.memory.versions.gitstore import Version
from nanobot.messages import Message
from nanobot.session.records import JsonValue

UNDO = "--undo"
_MOST_TURNS = 50
_SHOWN = 8


class FileChanges(Protocol):
    """What turns changed in files; `nanobot.tools.undo.UndoLog`. Blocks."""

    def paths(self, turn_id: str) -> list[str]:
        """The files that a turn changed."""
        ...

    def revert(self, turn_id: str) -> Sequence[tuple[str, str]]:
        """Put them back; say per file what came of it."""
        ...


class DiscardCommand:
    """The command's work. `has_effects` says of a tool whether it does more than look."""

    def __init__(
        self, service: MemoryService, changes: FileChanges, has_effects: Callable[[str], bool]
    ) -> None:
        self._service, self._changes, self._has_effects = service, changes, has_effects

    async def run(self, call: CommandCall, scope: str) -> Answer:
        """Drop the conversation, and put files back where that is asked for."""
        if call.arguments not in ("", UNDO):
            return Answer(f"Write it as: /discard, or /discard {UNDO} to put its files back too.")
        session = call.session
        async with session.parting:
            gone = session.messages
            session.discard(call.entry_id)
        turns = list(dict.fromkeys(message.turn_id for message in gone if message.turn_id))
        undo = call.arguments == UNDO
        if not gone:
            turns = _texts(session.metadata.get("discarded")) if undo else []
            if not turns:
                return Answer("This conversation is empty.")
        lines = [f"Dropped {count(len(gone), 'message')}; nothing of it will be remembered."]
        if undo:
            lines = [*(lines if gone else []), *await asyncio.to_thread(self._put_back, turns)]
        since = next((message.timestamp for message in gone if message.timestamp), None)
        learned = await self._service.learned_in(session.key, since, scope) if since else []
        files = [] if undo else await asyncio.to_thread(self._files, turns)
        left = list(self._left(gone, files, learned))
        if left:
            lines += ["", "This stays as it is:", *left]
        kept: list[JsonValue] = [*turns[-_MOST_TURNS:]]
        session.set_metadata(discarded=kept if files else None)
        return Answer("\n".join(lines))

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
            more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
            yield f"- files it changed: {', '.join(other[:_SHOWN])}{more} (`/discard {UNDO}`)"
        for version in learned:
            undo = f"`/dream-restore --version {version.number}`"
            yield f"- in memory: {one_line(version.summary, 120)} ({undo})"
        calls = Counter(call.name for message in gone for call in message.tool_calls)
        done = {name: times for name, times in calls.items() if self._has_effects(name)}
        told = [f"{name} ({times})" if times > 1 else name for name, times in done.items()]
        if told:
            yield f"- what its tools did and sent: {', '.join(told)}"


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
