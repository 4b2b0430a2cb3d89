"""The parts of a memory for the page, and the editor of one line in place.

A fact's id is a hash of its place and text. A changed line has another id, so no other line is
edited by mistake."""

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
_LONGEST = 2_000  # maximum characters of a fact
_USUAL = Importance()

_Whole = Annotated[int, Meta(ge=0)]


class MemoryPage:
    """The operations `memory.…` of a page. `memory_of` returns the memory of a scope, and raises
    `NanobotError` for an invalid name."""

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
        """Return the facts of `scope`, `limit` from `offset` on, in the order of the files. `total`
        counts all of them. With a `path`, return only that file's facts."""
        memory = self._memory_of(scope)
        found = list(list_facts(memory, path))
        piece = found[offset : offset + min(limit, _MOST)]
        counts = dict.fromkeys(ALL_FACTS, 0)
        for one in found:
            counts[str(one["path"])] += 1
        return {"scope": memory.scope, "facts": piece, "total": len(found), "files": counts}

    def fact(self, id: str, scope: str = OWNER) -> dict[str, object]:
        """Return the fact with this `id`. Raise `NanobotError` if it no longer exists."""
        for one in list_facts(self._memory_of(scope), ""):
            if one["id"] == id:
                return one
        raise NanobotError("this fact no longer exists", hint="It was changed. Reload the page.")

    async def edit(
        self, path: str, new: str, text: str = "", section: str = "", scope: str = OWNER
    ) -> dict[str, object]:
        """Replace the words of the line `text` of the file `path` by `new`. Its list mark and
        importance stay. Without a `text` it is a new fact, under the heading `section` if given.
        The version is the person's.

        Raise `NanobotError` if the line has changed or the words are not a fact, and `ToolError` if
        the file would become too large."""
        memory, new = self._memory_of(scope), clean_words(new)
        if path not in FACTS:
            raise NanobotError(f"facts must be in {', '.join(FACTS)}")
        async with self._memories.holding(memory.scope):
            await memory.store.record_hand_edits()
            now = memory.store.read(path)
            if text:
                step = plan_rewording(now, text, new)
            else:
                heading = f"## {section}" if section else ""
                step = LineOperation(new=f"- {new}", section=find_heading(heading, now) or heading)
            said = summary_of_change(path.rpartition("/")[2], step.old, step.new)
            change = Change("you", f"on the page: {without_importance(said)}")
            outcome = await memory.store.apply(path, (step,), change)
        if outcome.left:
            raise missing_line()
        number = outcome.version
        done = f"Saved as version {number}." if number else "Nothing changed."
        return {"version": number, "fact": new, "text": done}

    def history(
        self, scope: str = OWNER, offset: _Whole = 0, limit: _Whole = 50
    ) -> dict[str, object]:
        """Return the history entries of `scope`, newest first: `limit` after the `offset`
        newest."""
        log = self._memory_of(scope).history
        cursors = log.cursors()[::-1]
        chosen = cursors[offset : offset + min(limit, _MOST)]
        entries = [entry for cursor in chosen if (entry := log.get(cursor))]
        return {"entries": entries, "total": len(cursors)}

    def notes(self, scope: str = OWNER, day: str = "") -> dict[str, object]:
        """Return the `days` with notes and the `months` with a digest, newest first, and the `text`
        of the requested `day`, or of the newest day."""
        store = self._memory_of(scope).store
        days = [day.isoformat() for day in reversed(store.note_days())]
        months = store.digest_months()[::-1]
        day = day or next(iter(days), "")
        text = store.read(path_of_notes(day)) if day else ""
        return {"days": days, "months": months, "day": day, "text": text}

    def scopes(self) -> dict[str, object]:
        """Return all scopes with files, the owner's first, with their numbers of facts and pending
        changes."""
        found = []
        for scope in self._memories.list_scopes():
            store = self._memory_of(scope).store
            facts = sum(len(store.facts(path)) for path in FACTS)
            held = sum(fact is not None for _, fact in pending_blocks(store.read(PENDING)))
            found.append({"scope": scope, "facts": facts, "pending": held})
        return {"scopes": found}

    def growth(self) -> dict[str, object]:
        """Return the growth of all scopes by `months` (`2026-03`): the number of new history
        `entries` and their `bytes`, the earliest first, without empty months."""
        sizes = defaultdict[str, list[int]](list)
        for scope in self._memories.list_scopes():
            for entry in self._memories.of(scope).history.entries():
                sizes[f"{entry.timestamp:%Y-%m}"].append(len(encode(entry)))
        grown = sorted(sizes.items())
        return {"months": [{"month": m, "entries": len(of), "bytes": sum(of)} for m, of in grown]}


def list_facts(memory: Memory, only: str) -> Iterator[dict[str, object]]:
    """Yield the facts with their places. `level` is 0 for retired facts. Blocks."""
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


def clean_words(text: str) -> str:
    """Return a person's input as one line. Raise `NanobotError`."""
    words = without_bullet(" ".join(text.split()))
    if not any(map(str.isalnum, words)) or not fact_lines(f"- {words}"):
        raise NanobotError("the text has no words", hint="To remove a fact, forget it.")
    if len(words) > _LONGEST:
        raise NanobotError(f"a fact can have at most {_LONGEST:,} characters")
    return words


def plan_rewording(text: str, old: str, new: str) -> LineOperation:
    old = old.rstrip()
    line = old if old in map(str.rstrip, split(text)) else find_line(old, text)
    if not fact_lines(line):
        raise missing_line()
    return LineOperation(line, with_words(line, new) + importance_mark(line))


def missing_line() -> NanobotError:
    return NanobotError("this line no longer exists", hint="It was changed. Reload the page.")


def path_of_notes(name: str) -> str:
    """Return the path of a day's notes, or of a month's digest. Raise `NanobotError`."""
    if is_month(name):
        return digest_path(name)
    try:
        return note_path(date.fromisoformat(name))
    except ValueError:
        raise NanobotError(
            f"{name[:40]!r} is not a date", hint="Use the format 2026-03-10."
        ) from None
