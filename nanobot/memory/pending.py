"""Memory changes in `memory/pending.md` that need the person's approval, because the model worded
them after it read untrusted content, or because they would remove too many facts.

Each is a bullet: `- [2026-03-10] (from tool:web_fetch) -> MEMORY.md: the line`. The line that it
would reword and its heading follow on indented lines. A removal is `-> MEMORY.md, remove: the
line`. The person may edit the file: unreadable lines stay in it and are skipped."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import count, groupby

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import NanobotError
from nanobot.memory.documents import LONG_TERM, PENDING, PERSONAL
from nanobot.memory.guard import fact_lines, find_line, find_lost_facts, indent
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import Operation, blocks_of, split
from nanobot.memory.similarity import share, words
from nanobot.memory.store import BeforeChange, MemoryStore
from nanobot.memory.taint import sources_of
from nanobot.memory.version import CONFIRMED, Change
from nanobot.text import pluralize

_HEADING = "# Pending facts"
_FACT = r"- \[(\d{4}-\d\d-\d\d)\] \(from ([^()]{1,2000})\) -> ([^\s:,]{1,200})(, remove)?: (\S.*)"
_OLD, _SECTION = "  instead of: ", "  under: "
BY_NANOBOT = "nanobot"
"""Origin of changes that are held back because they remove too much at once, or because the
person's messages do not show that a fact is over."""
HELD_BACK = Change("agent", "held back")
_CODE = 16
_ABOUT_PERSON = (LONG_TERM, PERSONAL[0])
MOST_WAITING, MOST_CHARACTERS = 200, 100_000
"""Limits on a scope's pending changes: their count, and their length in characters."""
MOST_OF_ONE = 20
"""Maximum pending changes from one program. The rest is room for changes that nanobot holds
back."""
MOST_SHOWN = 2_400
"""Maximum characters of a change. A longer one is dropped, not held back."""

NotifyHeld = Callable[[str, Sequence["PendingFact"], str], Awaitable[None]]
"""Shows a scope's person the new pending changes, with the conversation that they come from (empty
for Dream's). Must not raise."""


class PendingFact(Struct, frozen=True, rename={"origins": "from", "old": "replaces"}):
    """A line that may become part of the document `path`.

    `number` counts from 1 in file order, and is 0 before the fact is in the file. `old` is the line
    that it would reword, `section` its heading. Both may be empty. If `line` is empty, `old` would
    be removed."""

    number: int
    day: date
    origins: tuple[str, ...]
    path: str
    line: str
    old: str = ""
    section: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Key that is the same for the same change."""
        return self.path, self.line, self.old

    @property
    def code(self) -> str:
        """Id of exactly this change: hexadecimal digits of a hash of its whole effect."""
        identity = "\n".join((self.path, self.line, self.old, self.section))
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_CODE]

    @property
    def _effect(self) -> str:
        where = self.path.removeprefix("memory/")
        return f"{where}: {self.line}" if self.line else f"{where}, remove: {self.old}"

    @property
    def description(self) -> str:
        """The effect of the change, in one line for people."""
        rewords = self.line and fact_lines(self.old)
        return f"{self._effect} (instead of: {self.old})" if rewords else self._effect

    def as_text(self) -> str:
        """Return its lines in the file, without the last newline."""
        origins = ", ".join(self.origins)
        lines = [f"- [{self.day.isoformat()}] (from {origins}) -> {self._effect}"]
        if self.line:
            details = (_OLD, self.old), (_SECTION, self.section)
            lines += [name + value for name, value in details if value]
        return "\n".join(lines)

    def fit(self, text: str) -> Operation:
        old = find_line(self.old, text) if self.old else ""
        new = f"{indent(old)}{self.line}" if self.line else ""
        return Operation(old or self.old, new, self.section)


class Pending:
    """The pending changes of one scope. `store` is its writer, `notify` shows them to the
    person."""

    def __init__(
        self, store: MemoryStore, scope: str = "owner", notify: NotifyHeld | None = None
    ) -> None:
        self._store, self._scope, self._notify = store, scope, notify

    async def notify(self, facts: Sequence[PendingFact], session: str) -> None:
        if self._notify is not None:
            await self._notify(self._scope, facts, session)

    async def pending(self) -> list[PendingFact]:
        return [fact for _, fact in pending_blocks(self._store.read(PENDING)) if fact]

    async def add(
        self,
        lines: Sequence[str | Operation],
        path: str,
        origins: Iterable[str],
        change: Change = HELD_BACK,
    ) -> list[PendingFact]:
        """Hold back changes as `hold` does, and return the new ones."""
        return (await self.hold(lines, path, origins, change))[0]

    async def propose(self, line: str, path: str, origin: str) -> list[PendingFact]:
        """Hold back a line that the program `origin` wants to add. Raise `NanobotError` if too many
        are pending."""
        added, has_room = await self.hold([line], path, [origin], most=MOST_OF_ONE)
        if not has_room:
            raise NanobotError(
                f"too many facts are pending: the limit is {MOST_OF_ONE} facts per program, and "
                f"{MOST_WAITING} facts or {MOST_CHARACTERS:,} characters in total",
                hint="The person must accept or drop some first (`/memory pending`).",
            )
        return added

    async def hold(
        self,
        lines: Sequence[str | Operation],
        path: str,
        origins: Iterable[str],
        change: Change = HELD_BACK,
        most: int = MOST_WAITING,
    ) -> tuple[list[PendingFact], bool]:
        """Hold back lines to add, or operations. Return the new facts with their numbers, and
        whether there was room for all.

        `origins` are the marks of the untrusted content behind them. At most `most` changes with
        the same origins may be pending. Changes that are pending already are not added again. The
        caller calls `notify` once for all changes that belong together."""
        # An origin must be one word of the line, but may contain a stranger's id.
        names = (re.sub(r"[\s(),]+", "_", origin)[:80] for origin in sources_of(origins))
        named = tuple(dict.fromkeys(filter(None, names))) or ("unknown",)
        every = [make_fact(line, path, named, self._store.today()) for line in lines]
        # Only real changes that are short enough to read before approval.
        facts = {one.key: one for one in every if 0 < len(one.line + one.old) <= MOST_SHOWN}
        fresh, new = list[PendingFact](), list[str]()

        def extend(text: str) -> str:
            waiting = [fact for _, fact in pending_blocks(text) if fact]
            known = {fact.key for fact in waiting}
            fresh[:] = [fact for key, fact in facts.items() if key not in known]
            same = sum(fact.origins == named for fact in waiting)
            room = max(0, min(MOST_WAITING - len(waiting), most - same))
            new[:] = select_fitting(fresh[:room], MOST_CHARACTERS - len(text))
            begun = text.rstrip("\n") if text.strip() else f"{_HEADING}\n"
            return "\n".join([begun, *new]) + "\n" if new else text

        await self._store.edit(PENDING, extend, change)
        added = [fact for fact in await self.pending() if fact.as_text() in new]
        if left := len(fresh) - len(new):
            logger.warning(
                "{}: {} dropped because too many are pending", PENDING, pluralize(left, "change")
            )
        return added, not left

    async def find(self, names: Iterable[str | int]) -> list[PendingFact]:
        """Return the facts with these numbers or codes. An ambiguous code selects none."""
        names = set(map(str, names))
        waiting = await self.pending()
        codes = Counter(fact.code for fact in waiting)
        return [
            fact
            for fact in waiting
            if str(fact.number) in names or (fact.code in names and codes[fact.code] == 1)
        ]

    async def accept(self, names: Iterable[str | int]) -> list[PendingFact]:
        """Make facts part of memory, as the person's own change, and return the ones found. A fact
        that is replaced, not only reworded, is retired, and so is a fact that a new one surely
        contradicts. Raise `ToolError` if a document would become too large."""
        chosen = await self.find(names)
        stated = list_additions(chosen)
        run, _ = await self.retire_contradicted(stated, Change("you"))
        for path, facts in groupby(sorted(chosen, key=lambda f: f.path), key=lambda f: f.path):
            text = self._store.read(path)
            operations = [fact.fit(text) for fact in facts]
            said = f"{CONFIRMED} {pluralize(len(operations), 'fact')}"
            change = Change("you", said, run=run)
            replaced = [one.old for one in operations if loses_content(one.old, one.new)]
            done = await self._store.apply(path, operations, change, retired=replaced)
            # If the line to reword is gone, the accepted one is added.
            if added := [replace(operation, old="") for operation in done.left if operation.new]:
                await self._store.apply(path, added, change)
        await self._remove(chosen, CONFIRMED)  # last: to accept again after a crash changes nothing
        return chosen

    async def find_contradicted(self, lines: Mapping[str, date]) -> dict[str, list[str]]:
        """Return the facts that lines of the person's surely contradict, by file. Each line comes
        with the day on which they said it: a later fact stands."""

        if not any(lines):
            return {}

        def find(path: str) -> list[str]:
            from nanobot.memory.evidence import find_contradicted  # not needed at the start

            ages, today = self._store.fact_ages(path), self._store.today()
            known = self._store.facts(path)
            days = {fact: today - timedelta(ages.get(fact.strip(), 0)) for fact in known}
            found = [
                one for line, day in lines.items() for one in find_contradicted(line, days, day)
            ]
            return [one for one in dict.fromkeys(found) if one not in lines]

        every = {path: await asyncio.to_thread(find, path) for path in _ABOUT_PERSON}
        return {path: facts for path, facts in every.items() if facts}

    async def retire_contradicted(
        self, lines: Mapping[str, date], change: Change, before: BeforeChange | None = None
    ) -> tuple[str, list[str]]:
        """Retire these facts, as far as so many may go, and hold back the rest. Return the run of
        that change, for the lines themselves, and the facts."""
        found, run = await self.find_contradicted(lines), change.run
        for path, facts in found.items():
            run = run or await asyncio.to_thread(self._store.new_run, change.author)
            retiring = replace(
                change,
                summary=f"retired {pluralize(len(facts), 'fact')}",
                cursors=(),
                operations=(),
                run=run,
            )
            steps = [Operation(old=fact) for fact in facts]
            done = await self._store.apply(path, steps, retiring, retired=facts, before=before)
            await self.hold(done.beyond, path, [BY_NANOBOT], retiring)
        return run, [fact for facts in found.values() for fact in facts]

    async def drop(self, names: Iterable[str | int]) -> list[PendingFact]:
        """Drop facts, and return the ones found."""
        chosen = await self.find(names)
        await self._remove(chosen, "dropped")
        return chosen

    async def _remove(self, chosen: Sequence[PendingFact], why: str) -> None:
        gone = {fact.as_text() for fact in chosen}

        def keep_others(text: str) -> str:
            blocks = pending_blocks(text)
            return "".join(b for b, fact in blocks if fact is None or fact.as_text() not in gone)

        if chosen:
            change = Change("you", f"{why} {pluralize(len(chosen), 'fact')}")
            await self._store.edit(PENDING, keep_others, change)


def list_additions(facts: Iterable[PendingFact]) -> dict[str, date]:
    """Return the lines that replace none, with their days."""
    return {fact.line: fact.day for fact in facts if fact.line and not fact.old}


def loses_content(old: str, new: str) -> bool:
    """Return True if a line that another replaces is not just reworded."""
    return bool(fact_lines(old)) and (
        bool(find_lost_facts(old, new)) or share(words(old), new) < 1.0
    )


def select_fitting(facts: Iterable[PendingFact], room: int) -> Iterator[str]:
    for text in (fact.as_text() for fact in facts):
        if len(text) < room:
            room -= len(text) + 1
            yield text


def make_fact(
    line: str | Operation, path: str, origins: tuple[str, ...], today: date
) -> PendingFact:
    step = Operation(new=line) if isinstance(line, str) else line
    texts = (step.new, step.old, step.section if step.new.strip() else "")
    # A line that others may have caused does not set its importance.
    lines = (" ".join(without_importance(text).split()) for text in texts)
    return PendingFact(0, today, origins, path, *lines)


def pending_blocks(text: str) -> list[tuple[str, PendingFact | None]]:
    """Return the blocks of lines of the file, each with its fact or None."""
    numbers = count(1)
    found = ((block, parse_block(block)) for block in blocks_of(text))
    return [(block, fact and replace(fact, number=next(numbers))) for block, fact in found]


def parse_block(block: str) -> PendingFact | None:
    head, *details = split(block)
    match = re.fullmatch(_FACT, head.rstrip())
    if match is None:
        return None
    try:
        day = date.fromisoformat(match[1])
    except ValueError:
        return None
    line, old, section = ("", match[5], "") if match[4] else (match[5], "", "")
    for detail in details if line else ():
        if detail.startswith(_OLD):
            old = detail.removeprefix(_OLD).strip()
        elif detail.startswith(_SECTION):
            section = detail.removeprefix(_SECTION).strip()
    origins = tuple(part.strip() for part in match[2].split(","))
    path = LONG_TERM if match[3] == "MEMORY.md" else match[3]
    return PendingFact(0, day, origins, path, line, old, section)
