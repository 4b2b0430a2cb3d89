"""What the owner of a memory can do with it: look, search, explain, undo, confirm, forget.

The one place behind the slash commands and the command line, which calls the operations by name
(`table`), on a running gateway or on the files. Every operation names the scope that it works on
and touches no other; the caller has checked whose scope that is. Each returns a `Report`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from nanobot.bus.events import API
from nanobot.channel import Operation
from nanobot.errors import NanobotError, StorageError, ToolError
from nanobot.memory.documents import FACTS, LONG_TERM
from nanobot.memory.dream import Dream
from nanobot.memory.erase import Eraser
from nanobot.memory.forget import Forgetter, Forgotten, Report
from nanobot.memory.gitstore import GitStore
from nanobot.memory.guard import find_line, without_list_mark
from nanobot.memory.history import paragraph_of
from nanobot.memory.importance import HIGHEST, Importance, with_mark, without_importance
from nanobot.memory.lines import Operation as Line
from nanobot.memory.lines import lines_of
from nanobot.memory.pending import MOST_SHOWN
from nanobot.memory.recall import PERSON
from nanobot.memory.scopes import (
    OWNER,
    Memories,
    Memory,
    Scopes,
    is_group,
    is_scope,
    prefix_of,
)
from nanobot.memory.search import Query, Source
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.tool import looked_up
from nanobot.memory.service import views
from nanobot.memory.service.views import FileView, Overview
from nanobot.memory.sync import SyncResult, sync
from nanobot.memory.version import Change, Version, scope_of
from nanobot.memory.why import Explainer, only_match
from nanobot.memory.why import lines_of as explained_lines
from nanobot.providers.port import estimate_tokens

_LOG_LENGTH, _MOST_VERSIONS = 20, 200
_MOST_HITS, _MOST_ENTRIES = 100, 100

_Number = Annotated[int, msgspec.Meta(ge=1)]


class _Given(msgspec.Struct):
    """What an operation is called with by name, as JSON."""

    scope: str = OWNER
    text: str = ""
    remote: str = ""
    erase: bool = False
    level: _Number | None = None
    version: _Number | None = None
    to: _Number | None = None
    numbers: list[_Number] = []
    codes: list[str] = []
    session: str = ""
    since: date | None = None
    until: date | None = None
    role: str = ""
    source: Source | Literal[""] = ""
    limit: _Number | None = None
    origin: str = ""
    person: str = ""
    skip: Annotated[int, msgspec.Meta(ge=0)] = 0
    own: bool = False

    @property
    def asker(self) -> str:
        """Who asks: with `own` the person of the scope; else the owner, whose words in the memory
        of another person are none of those without an origin."""
        return "" if self.own or self.scope == OWNER or is_group(self.scope) else "owner"

    def needed(self, name: Literal["text", "remote", "person"]) -> str:
        """A text that may not be missing."""
        value: str = getattr(self, name)
        if not value.strip():
            raise NanobotError(f"the operation needs a text in {name!r}")
        return value

    def query(self) -> Query:
        """What to search for."""
        return Query(
            self.needed("text"),
            (),
            session=self.session,
            since=self.since,
            until=self.until,
            role=self.role,
            source=self.source,
            limit=min(self.limit or 10, _MOST_HITS),
            skip=self.skip,
        )

    def number(self) -> int:
        """The version to undo or to go back to."""
        number = self.version if self.to is None else self.to
        if number is None:
            raise NanobotError("the operation needs a number in 'version'")
        return number


G = TypeVar("G", bound=msgspec.Struct)


def with_json(kind: type[G], answer: Callable[[G], Awaitable[object]]) -> Operation:
    """The operation that takes and gives JSON. Raises `NanobotError` for what is no `kind`."""

    async def answered(arguments: Mapping[str, object]) -> object:
        try:
            given = msgspec.convert(arguments, kind)
        except msgspec.ValidationError as error:
            raise NanobotError(f"the operation needs something else: {error}") from None
        return msgspec.to_builtins(await answer(given))

    return answered


_CHANGES = frozenset(
    ("accept", "drop", "dream", "forget", "importance", "log", "propose", "restore", "versions")
)
"""Operations that change the files of their scope, if only by recording what a person edited."""


MOST_OF_FACT = 4_000
"""Characters of a fact that is asked about."""


class MemoryService:
    """The operations on the memories of one nanobot."""

    def __init__(
        self,
        *,
        memories: Memories,
        scopes: Scopes,
        index: MemoryIndex,
        dream: Dream,
        explainer: Explainer,
        forgetter: Forgetter,
        eraser: Eraser,
    ) -> None:
        self._memories, self._scopes, self._index = memories, scopes, index
        self._dream, self._explainer = dream, explainer
        self._forgetter, self._eraser = forgetter, eraser

    def table(self) -> dict[str, Operation]:
        """The operations named `memory.…`. All callers are the owner of the home."""
        operations: dict[str, Callable[[_Given], Awaitable[Report]]] = {
            "show": lambda given: self.overview(given.scope),
            "search": lambda given: self.search(given.query(), given.scope, given.asker),
            "why": lambda given: self.why(given.needed("text"), given.scope, given.asker),
            "log": lambda given: self.log(given.version, given.scope),
            "versions": lambda given: self.versions(
                given.scope, given.limit or _LOG_LENGTH, given.skip
            ),
            "restore": lambda given: self.restore(
                given.number(), given.scope, to=given.to is not None
            ),
            "forget_plan": lambda given: self.forget(
                given.needed("text"), given.scope, erase=given.erase, plan_only=True
            ),
            "forget": lambda given: self.forget(
                given.needed("text"), given.scope, erase=given.erase
            ),
            "recent": lambda given: self.recent(given.limit or 10, given.scope),
            "propose": lambda given: self.propose(given.needed("text"), given.origin, given.scope),
            "scope_of": lambda given: self.scope_of(given.needed("person")),
            "pending": lambda given: self.pending(given.scope),
            "accept": lambda given: self.decide(
                "accept", [*given.numbers, *given.codes], given.scope
            ),
            "drop": lambda given: self.decide("drop", [*given.numbers, *given.codes], given.scope),
            "rebuild": lambda _: self.rebuild(),
            "importance": lambda given: self.set_importance(
                given.level or 0, given.needed("text"), given.scope
            ),
            "sync": lambda given: self.sync(given.needed("remote")),
            "dream": lambda given: self.dream(given.scope),
        }
        return {f"memory.{name}": self._by_name(name, call) for name, call in operations.items()}

    def memory(self, scope: str) -> Memory:
        """The memory of a scope. Raises `NanobotError` for a name that is none."""
        if not is_scope(scope):
            raise NanobotError(
                f"there is no scope {scope!r}",
                hint="A scope is owner, people/<channel>_<id> or groups/<channel>_<chat>; "
                "`nanobot memory show` lists those that there are.",
            )
        return self._memories.of(scope)

    async def overview(self, scope: str) -> Report:
        """What is remembered, and how much there is of everything."""
        memory, problem = self.memory(scope), ""
        try:
            await memory.store.record_hand_edits()
        except StorageError as error:  # what is remembered is in the files all the same
            problem = error.told(is_owner=scope == OWNER).for_people()
        versions = () if problem else await asyncio.to_thread(memory.versions.versions)
        overview = await asyncio.to_thread(_overview, memory, versions)
        overview.problem = problem or overview.problem
        overview.history["unread"] = await asyncio.to_thread(self._dream.unread, scope)
        overview.pending = len(await memory.pending.pending())
        if scope == OWNER:  # what others have is for the owner's eyes, if only as numbers
            await self._index.refresh()
            overview.index = await self._index.stats()
            overview.scopes = (await asyncio.to_thread(self._memories.existing_scopes))[1:]
        return overview.report()

    async def search(self, query: Query, scope: str, asker: str = "") -> Report:
        """What was said and written down about it, in this scope and those it may read. `asker` is
        the origin of the words of who asks, by which they are called "you"."""
        query = replace(query, scopes=self._scopes.readable(self.memory(scope).scope))
        result = await self._index.search(query)
        memory = self.memory(scope)  # what others may see of it they do not move up
        await asyncio.to_thread(memory.recall.note_use, looked_up(result).get(memory.scope, ()))
        return views.search_report(query, result, asker)

    async def why(self, text: str, scope: str, asker: str = "") -> Report:
        """Where a remembered line comes from: its version, its history entry, what was said.
        `asker` as for `search`. Raises `NanobotError` for a text longer than any fact."""
        _expect_a_fact(text)
        explanation = await self._explainer.why(text, self.memory(scope).scope, asker)
        return Report.about(explanation.text, explanation)

    async def recent(self, limit: int, scope: str) -> Report:
        """The latest entries of the history, the newest last."""
        history = self.memory(scope).history

        def read() -> Report:
            cursors = history.cursors()[-min(limit, _MOST_ENTRIES) :]
            entries = history.entries(cursors[0] - 1) if cursors else []
            texts = list(map(paragraph_of, entries))
            return Report.of("\n\n".join(texts) or "There is no history yet.", entries=texts)

        return await asyncio.to_thread(read)

    async def propose(self, text: str, origin: str, scope: str) -> Report:
        """Let a fact that somebody else worded wait for the person's word; `origin` names who."""
        if len(text) > MOST_SHOWN:
            raise NanobotError(f"a fact has at most {MOST_SHOWN:,} characters")
        memory = self.memory(scope)
        pending = memory.pending
        if find_line(text, await asyncio.to_thread(memory.store.read, LONG_TERM)):
            return Report.of("That is remembered already.", held=False)
        facts = await pending.propose(text, LONG_TERM, origin or "unknown")
        if not facts:
            return Report.of("That waits already.", held=False)
        await pending.notify(facts, "")
        return Report.of("It waits until the person accepts it.", held=True)

    async def scope_of(self, person: str) -> Report:
        """Whose memory a person has who goes by this account (`telegram:12345`, `owner`)."""
        scope = self._scopes.of_sender(API, person)
        return Report.of(scope, scope=scope)

    async def log(self, number: int | None, scope: str) -> Report:
        """What a change did, or the latest one; with its lines."""
        versions = (await self._recorded(scope)).versions

        def read() -> Report:
            found = versions.log(1) if number is None else [versions.version(number)]
            if not found:
                return views.versions_report([], 0)
            return views.version_report(found[0], versions.diff(found[0].number))

        return await asyncio.to_thread(read)

    async def versions(self, scope: str, limit: int = _LOG_LENGTH, skip: int = 0) -> Report:
        """The latest changes after the `skip` newest, newest first."""
        versions = (await self._recorded(scope)).versions
        found = await asyncio.to_thread(versions.log, min(limit, _MOST_VERSIONS), skip)
        return views.versions_report(found, await asyncio.to_thread(versions.count))

    async def restore(self, number: int, scope: str, *, to: bool = False) -> Report:
        """Undo one change and keep what came later, or (`to`) bring all long-term files back to
        what they were after version `number`; a version as well, so it can be undone.

        What cannot be undone, because it has changed since, is left and said. Raises `NanobotError`
        for an unknown version, and for the version that holds the files as they were.
        """
        memory = await self._recorded(scope)
        versions = memory.versions
        version = await asyncio.to_thread(versions.version, number)
        if version.author == "start" and not to:
            raise NanobotError(
                f"version {number} holds the files as they were: there is nothing to undo"
            )
        plan = versions.plan_restore if to else versions.plan_undo
        revert = await asyncio.to_thread(plan, number)
        tip = await asyncio.to_thread(versions.tip_number)
        summary = f"back to version {number}" if to else f"undo change {number}"
        change, made = Change("restore", summary, run=f"restore {tip + 1}"), 0
        for path, text in revert.texts.items():
            inside, expected = path.removeprefix(memory.prefix), revert.expected[path]
            made = await memory.store.replace(inside, text, expected=expected, change=change)
        return views.restore_report(number, made, revert.conflicts, to=to)

    async def pending(self, scope: str) -> Report:
        """The facts that wait to be confirmed, numbered."""
        return views.pending_report(await self.memory(scope).pending.pending())

    async def decide(
        self, decision: Literal["accept", "drop"], names: Sequence[str | int], scope: str
    ) -> Report:
        """Take facts that waited into memory, or give them up; by their numbers as `pending` shows
        them, or by the codes of a notice."""
        if not names:
            raise NanobotError("the operation needs a list of numbers in 'numbers'")
        pending = self.memory(scope).pending
        accepted = decision == "accept"
        facts = await (pending.accept(names) if accepted else pending.drop(names))
        done = "Remembered now" if accepted else "Dropped"
        return views.decision_report(done, facts, len(await pending.pending()))

    async def set_importance(self, level: int, text: str, scope: str) -> Report:
        """Say how important the one fact is that says `text`; a version of the person's. Raises
        `NanobotError` for a number that is none, and where it is not clear which fact is meant."""
        if not 1 <= level <= HIGHEST:
            raise NanobotError(f"importance is a number from 1 to {HIGHEST}")
        memory = await self._recorded(scope)
        facts = (line for line in explained_lines(memory) if line.path in (LONG_TERM, PERSON))
        line = only_match(text, list(facts))
        marked, fact = with_mark(line.text, Importance(level).mark), without_list_mark(line.text)

        def with_level(text: str) -> str:
            lines = text.split("\n")
            for at, raw in enumerate(lines):
                if raw.rstrip() == line.text:
                    lines[at] = marked + raw[len(line.text) :]
            return "\n".join(lines)

        change = Change("you", f"importance {level}: {fact}", operations=(Line(line.text, marked),))
        number = await memory.store.edit(line.path, with_level, change)
        undo = f"To take that back: `/dream-restore --version {number}`." if number else ""
        text = f"Importance {level} from now on: {fact}\n{undo}".rstrip()
        return Report.of(text, fact=fact, level=level, version=number)

    async def note(self, text: str, scope: str, origin: str = "") -> Report:
        """Write something into today's notes; `origin` says whose words it is if not the scope's
        own person's."""
        store = self.memory(scope).store
        path = await store.append_today(text, origins=(origin,) if origin else ())
        return Report.of(f"Noted in {path}.", path=path)

    async def dream(self, scope: str) -> Report:
        """Learn now from what was not read yet."""
        report = await self._dream.run(self.memory(scope).scope, asked=True)
        return Report.about(report.digest, report)

    async def forget(
        self, text: str, scope: str, *, erase: bool = False, plan_only: bool = False
    ) -> Report:
        """Forget: it leaves files, search and prompts, and is not learned again from what was said.
        With `erase` the text also leaves everything that is stored, in all scopes. With `plan_only`
        only say what would go; `found` in the data says whether there is anything.

        Raises `NanobotError` for a text that says too little, or is longer than any fact.
        """
        _expect_a_fact(text)
        scope = self.memory(scope).scope
        if erase and scope != OWNER:
            raise NanobotError(
                "erasing reaches every file and every scope, so it is the owner's alone",
                hint="Without --erase this scope alone forgets.",
            )
        if erase:
            erasing = self._eraser.plan(text) if plan_only else self._eraser.apply(text)
            return await erasing
        plan = await self._forgetter.plan(text, scope)
        return Report(plan.text, plan.data) if plan_only else await self._forgetter.apply(plan)

    async def erase_text(self, text: str) -> Report:
        """Erase a text alone, in all scopes: nothing that was said with it is forgotten."""
        return await self._eraser.apply(text, forgets=False)

    async def rebuild(self) -> Report:
        """Build a new search index."""
        await self._index.rebuild()
        stats = await self._index.stats()
        return Report.about(f"The index was built again: {views.index_text(stats)}.", stats)

    async def sync(self, remote: str) -> Report:
        """Share the long-term files with the owner's other devices, through a git repository."""
        loop = asyncio.get_running_loop()
        forgotten: dict[str, Forgotten] = {}

        def store_of(prefix: str) -> GitStore:
            return self.memory(prefix.rstrip("/") or OWNER).versions

        def memory_with(path: str) -> Memory:
            return self.memory((scope_of(path) or "").rstrip("/") or OWNER)

        def write(path: str, expected: str | None, text: str, change: Change) -> int:
            memory = memory_with(path)
            inside = path.removeprefix(memory.prefix)
            writing = memory.store.replace(inside, text, expected=expected, change=change)
            return asyncio.run_coroutine_threadsafe(writing, loop).result()

        def hides(path: str, line: str) -> bool:
            memory = memory_with(path)
            known = forgotten.setdefault(memory.scope, Forgotten(memory.root))
            return known.hides_line(line)

        def synced() -> SyncResult:
            prefixes = [prefix_of(scope) for scope in self._memories.versioned_scopes()]
            return sync(store_of, prefixes, remote, write, hides)

        scopes = await asyncio.to_thread(self._memories.versioned_scopes)
        async with self._memories.holding_each(scopes):
            return views.sync_report(remote, await asyncio.to_thread(synced))

    def _by_name(self, name: str, operation: Callable[[_Given], Awaitable[Report]]) -> Operation:
        """An operation that gives the report's fields, and its text as `text`."""

        async def answer(given: _Given) -> object:
            changes = name in _CHANGES and is_scope(given.scope)
            async with self._memories.holding(given.scope) if changes else nullcontext():
                report = await operation(given)
            return {**report.data, "text": report.text}

        return with_json(_Given, answer)

    async def _recorded(self, scope: str) -> Memory:
        """The memory of a scope, once what was edited by hand is among its versions."""
        memory = self.memory(scope)
        await memory.store.note_hand_edits()
        return memory


def _overview(memory: Memory, versions: Sequence[Version]) -> Overview:
    """What the files say; what Dream, the index and what waits would add is left out. Blocks."""
    overview, newest = Overview(memory.scope), list(reversed(versions))
    for path in FACTS:
        try:
            facts, text = memory.store.facts(path), memory.store.read(path)
        except ToolError as error:
            overview.problem = error.for_people()
            continue
        lines = _under_headings(text, frozenset(facts))
        latest = next((one for one in newest if memory.prefix + path in one.blobs), None)
        if facts:
            tokens = estimate_tokens(without_importance(text))
            view = FileView(path, lines, len(facts), tokens, memory.recall.left_out(path))
            if latest:
                view = replace(view, changed=latest.when, author=latest.author)
            overview.files.append(view)
        if path == LONG_TERM:
            overview.facts = [*lines]
    overview.retired = len(memory.store.retired())
    overview.history = {"entries": len(memory.history.cursors())}
    overview.notes = len(memory.store.note_days())
    overview.digests = len(memory.store.digest_months())
    overview.latest_version = newest[0].number if newest else 0
    return overview


def _under_headings(text: str, facts: frozenset[str]) -> tuple[str, ...]:
    """The facts in their order, each group after its heading."""
    found, above = list[str](), ""
    for line, section in lines_of(text):
        if line.strip() in facts:
            found += [line.strip()] if section == above else [section, line.strip()]
            above = section
    return tuple(found)


def _expect_a_fact(text: str) -> None:
    """The words of a text are compared with those of everything that is remembered."""
    if len(text) > MOST_OF_FACT:
        raise NanobotError(
            f"that is longer than any fact ({len(text):,} characters)",
            hint=f"Name it in at most {MOST_OF_FACT:,} characters.",
        )
