"""The gate for file tools: how `write_file` and `edit_file` change what decides future behaviour.

They name a path; whose memory that is comes from the caller. Once foreign text is in the prompt
they change none of these files: `update_memory` does, by whose rule lines of the person's go in and
all else waits. What nanobot itself keeps (history, pending and retired facts) no file tool writes
at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nanobot.errors import CallRefused, PathRefused, ToolError
from nanobot.memory.change import Change
from nanobot.memory.scopes import OWNER, is_scope
from nanobot.memory.store.store import PENDING, RETIRED, MemoryStore
from nanobot.memory.text.telling import told
from nanobot.tooling import Caller

_KEPT_BY_NANOBOT = frozenset(
    {PENDING, RETIRED, "memory/HISTORY.md", "memory/.cursor", "memory/.dream_cursor"}
)
_KEPT_PREFIXES = ("memory/history.jsonl", "memory/history/")


class _Memory(Protocol):
    @property
    def store(self) -> MemoryStore: ...


class Documents:
    """Guarded writes by path. `memory_of` gives the memory of a scope."""

    def __init__(self, memory_of: Callable[[str], _Memory]) -> None:
        self._memory_of = memory_of

    def is_document(self, path: str, caller: Caller) -> bool:
        """Whether writes to `path`, relative to the caller's workspace, must come here."""
        scope, inside = _located(path, caller)
        return self._memory_of(scope).store.is_document(inside)

    async def replace(self, path: str, text: str, *, expected: str | None, caller: Caller) -> int:
        """Write `text` where `expected` (None: no file) still stands; return the version's number.

        Raises `ToolError` where foreign text was read or the guard refuses, `WriteConflict` where
        something else stands there, `PathRefused` for what nanobot keeps itself.
        """
        scope, inside = _located(path, caller)
        if inside in _KEPT_BY_NANOBOT or inside.startswith(_KEPT_PREFIXES):
            raise PathRefused(
                f"{path} is kept by nanobot and cannot be written",
                hint="update_memory changes facts, note adds to today's notes.",
            )
        if caller.origins() and text != (expected or ""):
            raise _tainted(path)
        store = self._memory_of(scope).store
        summary = told(inside, expected or "", text)
        return await store.replace(
            inside, text, expected=expected, change=by_agent(caller, summary)
        )


def by_agent(caller: Caller, summary: str) -> Change:
    """A change that the agent makes in the caller's turn."""
    return Change("agent", summary, session=caller.session_key, turn=caller.turn_id)


def _tainted(path: str) -> ToolError:
    """Why a file tool may not write `path` now, and what to do instead."""
    return CallRefused(
        f"{path} was not written: text from elsewhere (a page, a file, someone else's message) is "
        "in this conversation, and this file guides you from then on",
        hint="Call update_memory: `quote` takes in a line that the person wrote, at once; `add`, "
        "`replace` and `remove` wait until they accept. Notes of today: call note.",
    )


def _located(path: str, caller: Caller) -> tuple[str, str]:
    """The scope that `path` is of, and the path in it. The owner's workspace holds them all."""
    kind, _, rest = path.partition("/")
    name, _, inside = rest.partition("/")
    scope = f"{kind}/{name}"
    if caller.scope == OWNER and inside and scope != OWNER and is_scope(scope):
        return scope, inside
    return caller.scope, path
