"""The gate for file tools: how `write_file` and `edit_file` change what decides future behaviour.

They name a path; whose memory that is comes from the caller. Once foreign text is in the prompt,
each line that they add, reword or take out must be the person's (`Grounds`), or nothing is written.
What nanobot itself keeps (history, pending and retired facts) no file tool writes at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nanobot.errors import PathRefused, ToolError
from nanobot.memory.change import Change
from nanobot.memory.grounds.grounds import Grounds
from nanobot.memory.scopes import OWNER, is_scope
from nanobot.memory.store.store import PENDING, RETIRED, MemoryStore
from nanobot.memory.text.lines import Operation, operations_between
from nanobot.memory.text.telling import told
from nanobot.tooling import Caller

_KEPT_BY_NANOBOT = frozenset(
    {PENDING, RETIRED, "memory/HISTORY.md", "memory/.cursor", "memory/.dream_cursor"}
)
_KEPT_PREFIXES = ("memory/history.jsonl", "memory/history/")
_SHOWN = 3


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

        Raises `ToolError` where a line is not the person's or the guard refuses, `WriteConflict`
        where something else stands there, `PathRefused` for what nanobot keeps itself.
        """
        scope, inside = _located(path, caller)
        if inside in _KEPT_BY_NANOBOT or inside.startswith(_KEPT_PREFIXES):
            raise PathRefused(
                f"{path} is kept by nanobot and cannot be written",
                hint="update_memory changes facts, note adds to today's notes.",
            )
        store, grounds = self._memory_of(scope).store, Grounds.of(caller.heard())
        refuse_unsupported(inside, expected or "", text, grounds, store.template_of(inside))
        summary = told(inside, expected or "", text)
        return await store.replace(
            inside, text, expected=expected, change=by_agent(caller, summary)
        )


def by_agent(caller: Caller, summary: str) -> Change:
    """A change that the agent makes in the caller's turn."""
    return Change("agent", summary, session=caller.session_key, turn=caller.turn_id)


def refuse_unsupported(
    path: str, before: str, after: str, grounds: Grounds, template: str = ""
) -> None:
    """Raise `ToolError` where a change of `path` holds lines that its person did not ask for. Those
    of the `template`, with which a new file begins, are nobody's."""
    if not grounds.is_tainted:
        return
    given = {line.strip() for line in template.splitlines()}
    unsupported = [
        line
        for operation in operations_between(before, after)
        if operation.old or operation.new.strip() not in given
        if (line := _alien(operation, grounds))
    ]
    if unsupported:
        shown = "; ".join(line.strip()[:120] for line in unsupported[:_SHOWN])
        raise ToolError(
            f"{path} was not written: foreign content (a page, a file, someone else's message) is "
            f"in this conversation, and the person did not say this themselves: {shown}",
            hint="Ask the person. update_memory holds facts back until they confirm them.",
        )


def _alien(operation: Operation, grounds: Grounds) -> str:
    """The line of an operation that the grounds do not carry, empty where they do."""
    old, new = operation.old, operation.new
    if old and new:
        return "" if grounds.supports_change(old, new) else new
    if new:
        return "" if grounds.supports(new) else new
    return "" if grounds.mentions(old) else f"without: {old}"


def _located(path: str, caller: Caller) -> tuple[str, str]:
    """The scope that `path` is of, and the path in it. The owner's workspace holds them all."""
    kind, _, rest = path.partition("/")
    name, _, inside = rest.partition("/")
    scope = f"{kind}/{name}"
    if caller.scope == OWNER and inside and scope != OWNER and is_scope(scope):
        return scope, inside
    return caller.scope, path
