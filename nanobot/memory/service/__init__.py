"""The operations on a memory: show, search, explain, undo, approve, forget.

They are behind the slash commands and the command line, which calls them by name (`table`), on a
running gateway or on the files. Every operation names its scope and touches no other. The caller
has checked whose scope it is. Each returns a `Report`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nanobot.bus.events import API
from nanobot.channel import Operation
from nanobot.errors import NanobotError, StorageError, ToolError
from nanobot.memory.documents import FACTS, LONG_TERM
from nanobot.memory.dream import Dream
from nanobot.memory.erase import Eraser
from nanobot.memory.forget import Forgetter, ForgottenFacts, Report
from nanobot.memory.gitstore import GitStore
from nanobot.memory.guard import find_line, without_list_mark
from nanobot.memory.history import paragraph_of
from nanobot.memory.importance import HIGHEST, Importance, with_mark, without_importance
from nanobot.memory.line_changes import Operation as Line
from nanobot.memory.pending import MOST_SHOWN
from nanobot.memory.recall import PERSON
from nanobot.memory.scopes import OWNER, Memories, Memory, Scopes, is_group, is_scope, prefix_of
from nanobot.memory.search import Query, Source
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.tool import collect_facts
from nanobot.memory.service import views
from nanobot.memory.service.views import FileView, Overview
from nanobot.memory.sync import sync
from nanobot.memory.version import Change, Version, scope_of
from nanobot.memory.why import Explainer, only_match
from nanobot.memory.why import lines_of as explained_lines
from nanobot.providers.port import estimate_tokens
from nanobot.validation import keyword_arguments

_MOST_VERSIONS, _MOST_HITS, _MOST_ENTRIES = 200, 100, 100

Count = Annotated[int, Meta(ge=1)]
Words = Annotated[str, Meta(pattern=r"\S")]


# Operations that change the files of their scope, if only by recording a person's edits.
_CHANGES = frozenset(
    ("accept", "drop", "dream", "forget", "importance", "log", "propose", "restore", "versions")
)


MOST_OF_FACT = 4_000
"""Maximum characters of a fact in a request."""


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
        """Return the operations named `memory.…`. All callers are the owner of the home."""
        same: tuple[Callable[..., Awaitable[Report]], ...] = (
            *(self.search, self.why, self.log, self.versions, self.restore, self.forget),
            *(self.recent, self.propose, self.scope_of, self.pending, self.accept, self.drop),
            *(self.rebuild, self.sync, self.dream),
        )
        operations: dict[str, Callable[..., Awaitable[Report]]] = {
            **{method.__name__: method for method in same},
            "show": self.overview,
            "forget_plan": self.plan_forgetting,
            "importance": self.set_importance,
        }
        return {f"memory.{name}": self._by_name(name, call) for name, call in operations.items()}

    def memory(self, scope: str) -> Memory:
        """Return the memory of a scope. Raise `NanobotError` if the name is invalid."""
        if not is_scope(scope):
            raise NanobotError(
                f"there is no scope {scope!r}",
                hint=(
                    "A scope is `owner`, `people/<channel>_<id>`, or `groups/<channel>_<chat>`. "
                    "`nanobot memory show` lists the existing scopes."
                ),
            )
        return self._memories.of(scope)

    async def overview(self, scope: str = OWNER) -> Report:
        memory, problem = self.memory(scope), ""
        try:
            await memory.store.record_hand_edits()
        except StorageError as error:  # the facts are in the files anyway
            problem = error.redact_for(is_owner=scope == OWNER).for_people()
        versions = () if problem else await asyncio.to_thread(memory.versions.versions)
        overview = await asyncio.to_thread(summarize_files, memory, versions)
        overview.problem = problem or overview.problem
        overview.history["unread"] = await asyncio.to_thread(self._dream.unread, scope)
        overview.pending = len(await memory.pending.pending())
        if scope == OWNER:  # only the owner sees numbers about other scopes
            await self._index.refresh()
            overview.index = await self._index.stats()
            overview.scopes = (await asyncio.to_thread(self._memories.list_scopes))[1:]
        return overview.report()

    async def search(
        self,
        text: Words,
        scope: str = OWNER,
        asker: str | None = None,
        *,
        session: str = "",
        since: date | None = None,
        until: date | None = None,
        role: str = "",
        source: Source | Literal[""] = "",
        limit: Count = 10,
        skip: Annotated[int, Meta(ge=0)] = 0,
    ) -> Report:
        """Search this scope and those it may read.

        `asker` is the origin of the asker's words, which are shown as "you": empty for the scope's
        person. None is the owner, whose words in another person's memory have an origin."""
        memory = self.memory(scope)
        query = Query(
            text,
            self._scopes.readable(memory.scope),
            session=session,
            since=since,
            until=until,
            role=role,
            source=source,
            limit=min(limit, _MOST_HITS),
            skip=skip,
        )
        result = await self._index.search(query)
        # a group's searches do not promote the owner's facts
        await asyncio.to_thread(memory.recall.note_use, collect_facts(result).get(memory.scope, ()))
        return views.search_report(query, result, _asker(asker, scope))

    async def why(self, text: Words, scope: str = OWNER, asker: str | None = None) -> Report:
        """Explain where a remembered line comes from: its version, its history entry, its messages.
        `asker` as for `search`. Raise `NanobotError` for a text longer than any fact."""
        _expect_a_fact(text)
        scope = self.memory(scope).scope
        explanation = await self._explainer.why(text, scope, _asker(asker, scope))
        return Report.about(explanation.text, explanation)

    async def recent(self, limit: Count = 10, scope: str = OWNER) -> Report:
        history = self.memory(scope).history

        def read() -> Report:
            cursors = history.cursors()[-min(limit, _MOST_ENTRIES) :]
            entries = history.entries(cursors[0] - 1) if cursors else []
            texts = list(map(paragraph_of, entries))
            return Report.of("\n\n".join(texts) or "No history yet.", entries=texts)

        return await asyncio.to_thread(read)

    async def propose(self, text: Words, origin: str = "", scope: str = OWNER) -> Report:
        """Hold back a fact by another author until the person approves it. `origin` names the
        author."""
        if len(text) > MOST_SHOWN:
            raise NanobotError(f"a fact can have at most {MOST_SHOWN:,} characters")
        memory = self.memory(scope)
        pending = memory.pending
        if find_line(text, await asyncio.to_thread(memory.store.read, LONG_TERM)):
            return Report.of("This is already in memory.", held=False)
        facts = await pending.propose(text, LONG_TERM, origin or "unknown")
        if not facts:
            return Report.of("This is already pending.", held=False)
        await pending.notify(facts, "")
        return Report.of("It is pending until the person accepts it.", held=True)

    async def scope_of(self, person: Words) -> Report:
        """Return the scope of the person with this account (`telegram:12345`, `owner`)."""
        scope = self._scopes.of_sender(API, person)
        return Report.of(scope, scope=scope)

    async def log(self, version: Count | None = None, scope: str = OWNER) -> Report:
        """Show a change with its lines, by default the latest."""
        versions = (await self._record_edits(scope)).versions

        def read() -> Report:
            found = versions.log(1) if version is None else [versions.version(version)]
            if not found:
                return views.versions_report([], 0)
            return views.version_report(found[0], versions.diff(found[0].number))

        return await asyncio.to_thread(read)

    async def versions(
        self, scope: str = OWNER, limit: Count = 20, skip: Annotated[int, Meta(ge=0)] = 0
    ) -> Report:
        """List the latest changes, newest first, after the `skip` newest."""
        versions = (await self._record_edits(scope)).versions
        found = await asyncio.to_thread(versions.log, min(limit, _MOST_VERSIONS), skip)
        return views.versions_report(found, await asyncio.to_thread(versions.count))

    async def restore(
        self, version: Count | None = None, scope: str = OWNER, *, to: Count | None = None
    ) -> Report:
        """Undo the change `version` and keep later ones, or restore all long-term files `to` a
        version. The result is a version as well, so it can be undone.

        Lines that have changed since are kept and reported. Raise `NanobotError` for an unknown
        version, and for undoing the initial one."""
        number = version if to is None else to
        if number is None:
            raise NanobotError("the operation needs a number in 'version'")
        memory = await self._record_edits(scope)
        versions = memory.versions
        found = await asyncio.to_thread(versions.version, number)
        if found.author == "start" and to is None:
            raise NanobotError(
                f"version {number} contains the initial files, so there is nothing to undo"
            )
        plan = versions.plan_undo if to is None else versions.plan_restore
        revert = await asyncio.to_thread(plan, number)
        tip = await asyncio.to_thread(versions.tip_number)
        summary = f"undo change {number}" if to is None else f"back to version {number}"
        change, made = Change("restore", summary, run=f"restore {tip + 1}"), 0
        for path, text in revert.texts.items():
            inside, expected = path.removeprefix(memory.prefix), revert.expected[path]
            made = await memory.store.replace(inside, text, expected=expected, change=change)
        return views.restore_report(number, made, revert.conflicts, to=to is not None)

    async def pending(self, scope: str = OWNER) -> Report:
        return views.pending_report(await self.memory(scope).pending.pending())

    async def accept(
        self, numbers: Sequence[Count] = (), codes: Sequence[str] = (), scope: str = OWNER
    ) -> Report:
        """Accept pending facts into memory, by their numbers as in `pending`, or by the codes of a
        notice."""
        pending = self.memory(scope).pending
        facts = await pending.accept(_expect_names(numbers, codes))
        return views.decision_report("Remembered", facts, len(await pending.pending()))

    async def drop(
        self, numbers: Sequence[Count] = (), codes: Sequence[str] = (), scope: str = OWNER
    ) -> Report:
        """Drop pending facts, named as for `accept`."""
        pending = self.memory(scope).pending
        facts = await pending.drop(_expect_names(numbers, codes))
        return views.decision_report("Dropped", facts, len(await pending.pending()))

    async def set_importance(self, level: int, text: Words, scope: str = OWNER) -> Report:
        """Set the importance of the only fact that matches `text`, as a version of the person's.
        Raise `NanobotError` for an invalid number, or if no fact or several match."""
        if not 1 <= level <= HIGHEST:
            raise NanobotError(f"importance must be a number from 1 to {HIGHEST}")
        memory = await self._record_edits(scope)
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
        undo = f"To undo this: `/dream-restore --version {number}`." if number else ""
        text = f"Importance is now {level}: {fact}\n{undo}".rstrip()
        return Report.of(text, fact=fact, level=level, version=number)

    async def note(self, text: str, scope: str, origin: str = "") -> Report:
        """Add to today's notes. `origin` is the author, unless it is the scope's own person."""
        store = self.memory(scope).store
        path = await store.append_today(text, origins=(origin,) if origin else ())
        return Report.of(f"Noted in {path}.", path=path)

    async def dream(self, scope: str = OWNER) -> Report:
        report = await self._dream.run(self.memory(scope).scope, asked=True)
        return Report.about(report.digest, report)

    async def plan_forgetting(
        self, text: Words, scope: str = OWNER, *, erase: bool = False
    ) -> Report:
        """Preview `forget`. In the data, `found` is True if it would remove anything."""
        self._expect_forgettable(text, scope, erase=erase)
        if erase:
            return await self._eraser.plan(text)
        plan = await self._forgetter.plan(text, scope)
        return Report(plan.text, plan.data)

    async def forget(self, text: Words, scope: str = OWNER, *, erase: bool = False) -> Report:
        """Remove a fact from files, search and prompts, and do not learn it again from past
        messages. With `erase`, also remove the text from all stored data, in all scopes.

        Raise `NanobotError` for a text that is too vague, or longer than any fact."""
        self._expect_forgettable(text, scope, erase=erase)
        if erase:
            return await self._eraser.apply(text)
        return await self._forgetter.apply(await self._forgetter.plan(text, scope))

    async def erase_text(self, text: str) -> Report:
        """Erase only a text, in all scopes. Related messages are not forgotten."""
        return await self._eraser.apply(text, forgets=False)

    async def rebuild(self) -> Report:
        await self._index.rebuild()
        stats = await self._index.stats()
        return Report.about(f"Rebuilt the index: {views.index_text(stats)}.", stats)

    async def sync(self, remote: Words) -> Report:
        """Share the long-term files with the owner's other devices, through a git repository."""
        loop = asyncio.get_running_loop()
        forgotten: dict[str, ForgottenFacts] = {}

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
            known = forgotten.setdefault(memory.scope, ForgottenFacts(memory.root))
            return known.hides_line(line)

        scopes = await asyncio.to_thread(self._memories.list_versioned_scopes)
        prefixes = [*map(prefix_of, scopes)]
        async with self._memories.holding_each(scopes):
            result = await asyncio.to_thread(sync, store_of, prefixes, remote, write, hides)
            return views.sync_report(remote, result)

    def _by_name(self, name: str, method: Callable[..., Awaitable[Report]]) -> Operation:
        """Return an operation that takes the method's parameters as JSON, and returns the report's
        fields and its text as `text`."""

        async def operation(arguments: Mapping[str, object]) -> object:
            given = keyword_arguments(method, arguments)
            scope = str(given.get("scope", ""))
            changes = name in _CHANGES and is_scope(scope)
            async with self._memories.holding(scope) if changes else nullcontext():
                report = await method(**given)
            return msgspec.to_builtins({**report.data, "text": report.text})

        return operation

    def _expect_forgettable(self, text: str, scope: str, *, erase: bool) -> None:
        _expect_a_fact(text)
        is_owners = self.memory(scope).scope == OWNER
        if erase and not is_owners:
            raise NanobotError(
                "only the owner can erase, because erasing affects all files and scopes",
                hint="Without `--erase`, only this scope forgets the text.",
            )

    async def _record_edits(self, scope: str) -> Memory:
        """Return the memory of a scope, after its manual edits became a version."""
        memory = self.memory(scope)
        await memory.store.note_hand_edits()
        return memory


def summarize_files(memory: Memory, versions: Sequence[Version]) -> Overview:
    """Summarize the files, without the fields about Dream, the index and pending facts. Blocks."""
    overview, newest = Overview(memory.scope), list(reversed(versions))
    for path in FACTS:
        try:
            facts, text = memory.store.facts(path), memory.store.read(path)
        except ToolError as error:
            overview.problem = error.for_people()
            continue
        lines = views.under_headings(text, {*facts})
        if facts:
            tokens = estimate_tokens(without_importance(text))
            latest = next((one for one in newest if memory.prefix + path in one.blobs), None)
            by = (latest.when, latest.author) if latest else ()
            left_out = memory.recall.count_left_out(path)
            overview.files.append(FileView(path, lines, len(facts), tokens, left_out, *by))
        if path == LONG_TERM:
            overview.facts = [*lines]
    overview.retired = len(memory.store.list_retired())
    overview.history = {"entries": len(memory.history.cursors())}
    overview.notes = len(memory.store.note_days())
    overview.digests = len(memory.store.digest_months())
    overview.latest_version = newest[0].number if newest else 0
    return overview


def _expect_a_fact(text: str) -> None:
    """Raise `NanobotError` if a text is too long: its words are compared with all of memory."""
    if len(text) > MOST_OF_FACT:
        raise NanobotError(
            f"the text is too long ({len(text):,} characters)",
            hint=f"Use at most {MOST_OF_FACT:,} characters.",
        )


def _expect_names(numbers: Sequence[int], codes: Sequence[str]) -> list[str | int]:
    if not numbers and not codes:
        raise NanobotError("the operation needs a list of numbers in 'numbers'")
    return [*numbers, *codes]


def _asker(asker: str | None, scope: str) -> str:
    """Return the origin of the asker, which is the owner's in the memory of another person."""
    if asker is not None:
        return asker
    return "" if scope == OWNER or is_group(scope) else "owner"
