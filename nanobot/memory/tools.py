"""The tool by which the agent writes down what happened today."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pydantic import Field

from nanobot.memory.store import MemoryStore
from nanobot.tooling import Arguments, Caller, ToolResult


class ChangeLog(Protocol):
    """Keeps what stood in a file before a turn changes it."""

    def before_change(
        self, turn_id: str, path: str, previous: bytes | None, new: bytes
    ) -> None: ...


class NoteArguments(Arguments):
    text: str = Field(description="What to remember about today.", max_length=8_000)


@dataclass(frozen=True, slots=True)
class Note:
    """Adds to today's notes."""

    store: MemoryStore
    undo: ChangeLog
    name: str = "note"
    description: str = (
        "Write something into today's notes (memory/YYYY-MM-DD.md). Lasting facts belong in "
        "memory/MEMORY.md instead."
    )
    arguments: type[NoteArguments] = NoteArguments
    effects: bool = True
    parallel: bool = False

    async def __call__(self, arguments: NoteArguments, caller: Caller) -> ToolResult:
        keep = partial(self.undo.before_change, caller.turn_id)
        path = await self.store.append_today(arguments.text, before=keep)
        return ToolResult(f"noted in {path}", changed=(path,))
