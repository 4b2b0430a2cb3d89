"""What a page shows of a memory, piece by piece, and the change of one line in place.

A fact is named by an id that is a hash of where it stands and what it says: of a line that was
changed meanwhile there is none, so nothing is done to another one by mistake.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import date
from typing import Annotated

from msgspec import Meta, to_builtins

from nanobot.channel import Operation
from nanobot.errors import NanobotError
from nanobot.memory.digests import digest_path, is_month
from nanobot.memory.documents import ALL_FACTS, FACTS, PENDING, RETIRED
from nanobot.memory.guard import (
    fact_lines,
    find_line,
    summary_of_change,
    with_words,
    without_bullet,
    without_list_mark,
)
from nanobot.memory.history import encode
from nanobot.memory.importance import (
    Importance,
    importance_mark,
    importance_of,
    without_importance,
)
from nanobot.memory.line_changes import Operation as LineOperation
from nanobot.memory.line_changes import find_heading, lines_of, split
from nanobot.memory.pending import pending_blocks
from nanobot.memory.scopes import OWNER, Memories, Memory
from nanobot.memory.store import note_path
from nanobot.memory.version import Change
from nanobot.validation import keyword_arguments

_ID = 16
_MOST = 200
_LONGEST = 2_000
"""Characters of a fact."""
_USUAL = Importance()

_Whole = Annotated[int, Meta(ge=0)]


class MemoryPage:
    """The operations `memory.…` of a page; `memory_of` gives the memory of a scope, and raises
    `NanobotError` for a name that is none."""

    def __init__(self, memory_of: Callable[[str], Memory], memories: Memories) -> None:
        self._memory_of, self._memories = memory_of, memories

    def table(self) -> Mapping[str, Operation]:
        def in_thread(method: Callable[..., object]) -> Operation:
            async def call(arguments: Mapping[str, object]) -> object:
                given = keyword_arguments(method, arguments)
                return to_builtins(await asyncio.to_thread(method, **given))

            return call

        editing: Callable[..., Awaitable[object]] = self.edit

        async def edit(arguments: Mapping[str, object]) -> object:
            return await editing(**keyword_arguments(editing, arguments))

        reading = (self.facts, self.fact, self.history, self.notes, self.scopes, self.growth)
        operations = {f"memory.{method.__name__}": in_thread(method) for method in reading}
        return {**operations, "memory.edit": edit}

    def facts(
        self, scope: str = OWNER, path: str = "", offset: _Whole = 0, limit: _Whole = 50
    ) -> dict[str, object]:
        """The facts of `scope`, `limit` from `offset` on, in the order of the files; `total` counts
        all of them. With a `path` those of one file."""
        memory = self._memory_of(scope)
        found = list(_facts(memory, path))
        piece = found[offset : offset + min(limit, _MOST)]
        counts = dict.fromkeys(ALL_FACTS, 0)
        for one in found:
            counts[str(one["path"])] += 1
        return {"scope": memory.scope, "facts": piece, "total": len(found), "files": counts}

    def fact(self, id: str, scope: str = OWNER) -> dict[str, object]:
        """The fact with this `id`. Raises `NanobotError` where there is none any more."""
        for one in _facts(self._memory_of(scope), ""):
            if one["id"] == id:
                return one
        raise NanobotError("this fact no longer exists", hint="It was changed. Reload it.")

    async def edit(
        self, path: str, new: str, text: str = "", section: str = "", scope: str = OWNER
    ) -> dict[str, object]:
        """Put the words `new` in place of the line `text` of the file `path`, where that still
        stands; its list mark and importance stay. Without a `text` it is a new fact, under the
        heading `section` where that is given. A version of the person's.

        Raises `NanobotError` where the line is gone and for words that are no fact, and `ToolError`
        where the file would become too large.
        """
        memory, new = self._memory_of(scope), _words(new)
        if path not in FACTS:
            raise NanobotError(f"facts must be in {', '.join(FACTS)}")
        async with self._memories.holding(memory.scope):
            await memory.store.record_hand_edits()
            now = memory.store.read(path)
            step = _rewording(now, text, new) if text else _addition(now, section, new)
            said = summary_of_change(path.rpartition("/")[2], step.old, step.new)
            change = Change("you", f"by the page: {without_importance(said)}")
            outcome = await memory.store.apply(path, (step,), change)
        if outcome.left:
            raise _gone()
        number = outcome.version
        done = f"Saved as version {number}." if number else "Nothing changed."
        return {"version": number, "fact": new, "text": done}

    def history(
        self, scope: str = OWNER, offset: _Whole = 0, limit: _Whole = 50
    ) -> dict[str, object]:
        """The history entries of `scope`, newest first: `limit` after the `offset` newest."""
        log = self._memory_of(scope).history
        cursors = log.cursors()[::-1]
        chosen = cursors[offset : offset + min(limit, _MOST)]
        entries = [entry for cursor in chosen if (entry := log.get(cursor))]
        return {"entries": entries, "total": len(cursors)}

    def notes(self, scope: str = OWNER, day: str = "") -> dict[str, object]:
        """The `days` that have notes and the `months` that have a digest, newest first, and the
        `text` of the one named `day`, or of the newest day."""
        store = self._memory_of(scope).store
        days = [day.isoformat() for day in reversed(store.note_days())]
        months = store.digest_months()[::-1]
        day = day or next(iter(days), "")
        text = store.read(_notes_path(day)) if day else ""
        return {"days": days, "months": months, "day": day, "text": text}

    def scopes(self) -> dict[str, object]:
        """All scopes that have anything, the owner's first, with how many facts each has and how
        many wait."""
        found = []
        for scope in self._memories.existing_scopes():
            store = self._memory_of(scope).store
            facts = sum(len(store.facts(path)) for path in FACTS)
            held = sum(fact is not None for _, fact in pending_blocks(store.read(PENDING)))
            found.append({"scope": scope, "facts": facts, "pending": held})
        return {"scopes": found}

    def growth(self) -> dict[str, object]:
        """How memory of all scopes grew, by `months` (`2026-03`): the `entries` of the history, and
        their `bytes`, that were added in it; the earliest first, without months that have none."""
        sizes = defaultdict[str, list[int]](list)
        for scope in self._memories.existing_scopes():
            for entry in self._memories.of(scope).history.entries():
                sizes[f"{entry.timestamp:%Y-%m}"].append(len(encode(entry)))
        grown = sorted(sizes.items())
        return {"months": [{"month": m, "entries": len(of), "bytes": sum(of)} for m, of in grown]}


def _facts(memory: Memory, only: str) -> Iterator[dict[str, object]]:
    """The facts with their places; `level` is 0 where a retired fact has none. Blocks."""
    for path in ALL_FACTS:
        if only not in ("", path):
            continue
        facts = frozenset(memory.store.facts(path))
        for line, section in lines_of(memory.store.read(path)):
            if line.strip() in facts:
                marked = importance_of(line)
                yield {
                    "id": hashlib.sha256(f"{path}\n{line}".encode(errors="replace")).hexdigest()[
                        :_ID
                    ],
                    "path": path,
                    "section": section.strip("# ") if section else "",
                    "line": line,
                    "text": without_list_mark(line),
                    "level": 0 if path == RETIRED else (marked or _USUAL).level,
                    "reason": marked.reason if marked else "",
                }


def _words(text: str) -> str:
    """What a person typed as one line. Raises `NanobotError`."""
    words = without_bullet(" ".join(text.split()))
    if not any(map(str.isalnum, words)) or not fact_lines(f"- {words}"):
        raise NanobotError("the text has no words", hint="To remove a fact, forget it.")
    if len(words) > _LONGEST:
        raise NanobotError(f"a fact has at most {_LONGEST:,} characters")
    return words


def _addition(text: str, section: str, new: str) -> LineOperation:
    heading = f"## {section}" if section else ""
    return LineOperation(new=f"- {new}", section=find_heading(heading, text) or heading)


def _rewording(text: str, old: str, new: str) -> LineOperation:
    old = old.rstrip()
    line = old if old in map(str.rstrip, split(text)) else find_line(old, text)
    if not fact_lines(line):
        raise _gone()
    return LineOperation(line, with_words(line, new) + importance_mark(line))


def _gone() -> NanobotError:
    return NanobotError("this line no longer exists", hint="It was changed. Reload it.")


def _notes_path(name: str) -> str:
    """Where the notes of a day, or the digest of a month, lie. Raises `NanobotError`."""
    if is_month(name):
        return digest_path(name)
    try:
        return note_path(date.fromisoformat(name))
    except ValueError:
        raise NanobotError(
            f"{name[:40]!r} is not a date", hint="Use the form 2026-03-10."
        ) from None
