"""Facts that rest on foreign content, held back in `memory/pending.md` until the owner confirms.

One bullet each: `- [2026-03-10] (from tool:web_fetch) -> MEMORY.md: the line`. What it would reword
and the heading that it goes under follow on indented lines. The person may edit the file; what
cannot be read stays in it and is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from nanobot.errors import WriteConflict
from nanobot.memory.change import Change
from nanobot.memory.grounds.marks import sources_of
from nanobot.memory.store.guard import indent, lost_facts, standing
from nanobot.memory.store.store import LONG_TERM, PENDING, MemoryStore
from nanobot.memory.text.layout import split
from nanobot.memory.text.lines import Operation

_HEADING = "# Waiting for your word"
_SHORT = {LONG_TERM: "MEMORY.md"}
_LONG = {short: path for path, short in _SHORT.items()}
_FACT = re.compile(r"- \[(\d{4}-\d\d-\d\d)\] \(from ([^()]{1,2000})\) -> ([^\s:]{1,200}): (\S.*)")
_OLD, _SECTION = "  instead of: ", "  under: "
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class PendingFact:
    """A line that may become part of the document `path`.

    `number` counts from 1 in the order of the file, 0 before it stands there. `old` is the line
    that it would reword, `section` the heading it would go under; both may be empty.
    """

    number: int
    day: date
    origins: tuple[str, ...]
    path: str
    line: str
    old: str = ""
    section: str = ""

    def as_text(self) -> str:
        """Its lines in the file, without the last newline."""
        shown = _SHORT.get(self.path, self.path)
        origins = ", ".join(self.origins)
        lines = [f"- [{self.day.isoformat()}] (from {origins}) -> {shown}: {self.line}"]
        lines += [f"{_OLD}{self.old}"] if self.old else []
        lines += [f"{_SECTION}{self.section}"] if self.section else []
        return "\n".join(lines)

    def fitted(self, text: str) -> Operation:
        """What confirming it does to its document, which says `text`."""
        old = standing(self.old, text) if self.old else ""
        return Operation(old or self.old, f"{indent(old)}{self.line}", self.section)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some lines of the file, and the fact that they are, if they are one."""

    lines: tuple[str, ...]
    fact: PendingFact | None = None


class Pending:
    """What waits in one scope; `store` is its writer."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def pending(self) -> list[PendingFact]:
        """What waits, the oldest first."""
        return [piece.fact for piece in _pieces(self._store.read(PENDING)) if piece.fact]

    async def hold(
        self,
        lines: Sequence[str | Operation],
        path: str,
        origins: Iterable[str],
        change: Change | None = None,
    ) -> int:
        """Hold back lines, or operations that add or reword one; return how many were new.

        `origins` are the marks of the foreign content behind them. What waits already is not held
        twice, and what would only remove a line is not held at all.
        """
        named = tuple(dict.fromkeys(map(_origin, sources_of(origins)))) or ("unknown",)
        today = self._store.today()
        facts = [fact for line in lines if (fact := _fact(line, path, named, today))]
        added = 0

        def extended(text: str) -> str:
            nonlocal added
            waiting = {(f.path, f.line, f.old) for p in _pieces(text) if (f := p.fact)}
            fresh = {(f.path, f.line, f.old): f for f in facts}
            new = [fact.as_text() for key, fact in fresh.items() if key not in waiting]
            added = len(new)
            if not new:
                return text
            begun = text.rstrip("\n") if text.strip() else f"{_HEADING}\n"
            return "\n".join([begun, *new]) + "\n"

        await self._change(extended, change or Change("agent", "held back"))
        return added

    async def accept(self, numbers: Collection[int]) -> list[PendingFact]:
        """Make facts part of memory, as the person's own change; return those that were found. A
        fact that one of them replaces, and does not only reword, is retired.

        They leave the file afterwards, so that a crash in between confirms one twice at most, which
        changes nothing. Raises `ToolError` where a document would become too large.
        """
        chosen = [fact for fact in await self.pending() if fact.number in numbers]
        for path, facts in groupby(sorted(chosen, key=lambda f: f.path), key=lambda f: f.path):
            text = self._store.read(path)
            operations = [fact.fitted(text) for fact in facts]
            change = Change("you", f"confirmed {_count(len(operations))}")
            replaced = [line for one in operations for line in lost_facts(one.old, one.new)]
            _, left = await self._store.apply(path, operations, change, retired=replaced)
            # The line it would reword is gone: what was confirmed is new, then.
            added = [replace(operation, old="") for operation in left]
            if added:
                await self._store.apply(path, added, change)
        await self._remove(chosen, "confirmed")
        return chosen

    async def drop(self, numbers: Collection[int]) -> list[PendingFact]:
        """Let facts go; return those that were found."""
        chosen = [fact for fact in await self.pending() if fact.number in numbers]
        await self._remove(chosen, "dropped")
        return chosen

    async def _remove(self, chosen: Sequence[PendingFact], why: str) -> None:
        gone = {fact.as_text() for fact in chosen}

        def without(text: str) -> str:
            kept = [p for p in _pieces(text) if p.fact is None or p.fact.as_text() not in gone]
            return "".join(f"{line}\n" for piece in kept for line in piece.lines)

        if chosen:
            await self._change(without, Change("you", f"{why} {_count(len(chosen))}"))

    async def _change(self, altered: Callable[[str], str], change: Change) -> None:
        for _ in range(_ATTEMPTS - 1):
            with suppress(WriteConflict):  # an editor saved just now
                await self._change_once(altered, change)
                return
        await self._change_once(altered, change)

    async def _change_once(self, altered: Callable[[str], str], change: Change) -> None:
        text = self._store.read(PENDING)
        new = altered(text)
        if new != text:
            await self._store.replace(PENDING, new, expected=text, change=change)


def _fact(
    line: str | Operation, path: str, origins: tuple[str, ...], today: date
) -> PendingFact | None:
    operation = Operation(new=line) if isinstance(line, str) else line
    new, old, section = (
        " ".join(text.split()) for text in (operation.new, operation.old, operation.section)
    )
    return PendingFact(0, today, origins, path, new, old, section) if new else None


def _pieces(text: str) -> list[_Piece]:
    """The file in pieces: facts, each with what belongs to it, and other lines."""
    pieces: list[_Piece] = []
    number = 0
    for line in split(text):
        last = pieces[-1] if pieces else None
        if last and last.fact and line.startswith((_OLD, _SECTION)):
            pieces[-1] = _Piece((*last.lines, line), _with_detail(last.fact, line))
        elif fact := _read(line, number + 1):
            number += 1
            pieces.append(_Piece((line,), fact))
        else:
            pieces.append(_Piece((line,)))
    return pieces


def _read(line: str, number: int) -> PendingFact | None:
    match = _FACT.fullmatch(line.rstrip())
    if match is None:
        return None
    try:
        day = date.fromisoformat(match[1])
    except ValueError:
        return None
    origins = tuple(part.strip() for part in match[2].split(","))
    return PendingFact(number, day, origins, _LONG.get(match[3], match[3]), match[4])


def _with_detail(fact: PendingFact, line: str) -> PendingFact:
    if line.startswith(_OLD):
        return replace(fact, old=line.removeprefix(_OLD).strip())
    return replace(fact, section=line.removeprefix(_SECTION).strip())


def _origin(origin: str) -> str:
    """An origin as one word of the line: it may hold a stranger's id."""
    return re.sub(r"[\s(),]+", "_", origin)[:80] or "unknown"


def _count(number: int) -> str:
    return "1 fact" if number == 1 else f"{number} facts"
