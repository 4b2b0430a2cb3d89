"""One run of Dream for one scope: batch by batch, then the digests that are due.

Entries with untrusted content are in separate requests, so that a page cannot pass for another
entry, and no words of the model after reading it reach phase 2.

A plan is stored before its first write and removed after its last, and may be applied again after a
crash. Changes that a version or the file contains are not repeated, even if the person has undone
them since. `dream` lists the invariants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import PathRefused, ProviderRejected, ToolError, WriteConflict
from nanobot.memory.digests import (
    DIGEST,
    DigestLine,
    digest_path,
    digest_request,
    digest_text,
    read_digest,
)
from nanobot.memory.documents import FACTS, LONG_TERM
from nanobot.memory.dream.entries import DreamEntry, Reader
from nanobot.memory.dream.extraction import (
    EXTRACTION,
    MOST_UPDATES,
    PERSON,
    FactCandidate,
    Update,
    classify,
    extraction_request,
    holds_in,
    read_extraction,
    screen,
    with_ages,
)
from nanobot.memory.dream.integration import EDITS, integrate, integration_request, read_edits
from nanobot.memory.dream.state import (
    DreamLimits,
    DreamPlan,
    DreamReport,
    DreamState,
    Hold,
    RunBudgetSpent,
    ScopeState,
    UnreadableAnswer,
    Write,
)
from nanobot.memory.figures import has_passed
from nanobot.memory.guard import find_line, without_list_mark
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import Operation, apply_operations
from nanobot.memory.model_text import MOST_ANSWER, Echoes, junk_reason
from nanobot.memory.pending import BY_NANOBOT, PendingFact
from nanobot.memory.scopes import OWNER, Memory
from nanobot.memory.support import Talk
from nanobot.memory.taint import days_of_quotations, is_foreign
from nanobot.memory.version import Change
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    PromptMessage,
    Provider,
    Toolset,
    ToolSpec,
    assistant_message,
    estimate_tokens,
    system_message,
    user_message,
)
from nanobot.templates import render
from nanobot.text import join_some, pluralize

_NO_JSON = "That was no JSON object in the form asked for. Answer with the object and nothing else."
_MOST_SET_ASIDE, _SHOWN_AGAIN = 20, 4_000
_LATELY = 50
"""Newest versions among which one from before a crash is searched."""

T = TypeVar("T")
Ages = Mapping[str, Mapping[str, int]]
"""The age in days of each line of a file, by path."""


class DreamRun:
    """Reads and learns for the scope of `memory` and fills `report`. The first request ignores the
    limits, so a run makes progress."""

    def __init__(
        self,
        memory: Memory,
        reader: Reader,
        provider: Provider,
        limits: DreamLimits,
        state: DreamState,
        report: DreamReport,
    ) -> None:
        self._memory, self._provider, self._limits = memory, provider, limits
        self._state, self._report, self._reader = state, report, reader
        self._now, self._name = reader.now, f"dream {reader.now.isoformat()}"
        names = ("dream_phase1.md", "dream_phase2.md", "dream_digest.md")
        self._echoes = Echoes(render(name, today="") for name in names)
        self._calls = self._tokens = 0
        self._is_answered = False
        """True if the model has answered anything, even nonsense."""

    async def learn(self) -> None:
        """Finish a crashed run's plan, then read to the end, or as far as the budget allows. Raise
        the errors of requests to the model."""
        async with self._state.lock:
            await asyncio.to_thread(self._state.load)
            if plan := self._load_state().plan:
                self._name = plan.run or self._name
                await self._finish(plan, again=True)
        try:
            await self._read_on()
            await self._condense()
        except RunBudgetSpent as spent:
            logger.info("Dream for {} is postponed: {}", self._memory.scope, spent)

    async def remember(self, **changes: object) -> None:
        """Store the state of the scope with these changes."""
        state = replace(self._load_state(), **changes)
        await asyncio.to_thread(self._state.put, self._memory.scope, state)

    def _load_state(self) -> ScopeState:
        return self._state.of(self._memory.scope)

    async def _read_on(self) -> None:
        """Read batch by batch until nothing is left.

        An entry that the model refuses (a content filter, a small window) delays no others. A
        refused batch is halved down to the entry at fault, which is given up, but only if the model
        answered anything: a model that refuses everything is misconfigured, and the run fails."""
        refused, most = set[str](), self._limits.batch
        refusal: ProviderRejected | None = None
        while True:
            forgotten, state = self._state.forgotten, self._load_state()
            entries, empty = await asyncio.to_thread(self._reader.next_batch, state, most, refused)
            if not entries:
                break
            try:
                plan = await self._plan(entries)
            except ProviderRejected as error:
                if not error.blames_content:
                    raise
                most, refusal = max(1, len(entries) // 2), error
                if len(entries) == 1:
                    refused.add(entries[0].key)
                continue
            most = self._limits.batch
            plan = replace(plan, done=plan.done | empty | refused)
            if await self._commit(plan, forgotten):
                refused.clear()
        if refusal and not self._is_answered:
            raise refusal
        if left := empty | refused:
            await self._commit(DreamPlan(done=frozenset(left)), forgotten)

    async def _condense(self) -> None:
        """Write the due digests, each by one request, and learn their recurring lines. A digest
        that a person wrote is kept. A month that the model refuses twice has none."""
        for month in await asyncio.to_thread(self._reader.due_months, self._load_state()):
            forgotten, plan, path = self._state.forgotten, DreamPlan(), digest_path(month)
            try:
                if month not in self._memory.store.digest_months():
                    text = await self._digest(month)
                    async with self._state.lock:
                        if forgotten != self._state.forgotten:
                            return  # the digest may hold forgotten text
                        await self._write_digest(path, text)
                if entry := await asyncio.to_thread(self._reader.digest_of, month):
                    plan = await self._plan([entry])
            except (ProviderRejected, UnreadableAnswer) as error:
                refused = isinstance(error, UnreadableAnswer) or error.blames_content
                if not refused or not self._is_answered:
                    raise
                logger.warning("{} was not written or read: {}", path, error)
            except PathRefused as error:  # the path is a link or a folder
                logger.warning("{} was not written: {}", path, error)
            await self._commit(replace(plan, done=frozenset({month})), forgotten)

    async def _write_digest(self, path: str, text: str) -> None:
        with suppress(WriteConflict):
            if text:
                store, made = self._memory.store, Change("dream")
                await store.replace(path, text, expected=None, change=made)
                self._report.digests += (path,)

    async def _commit(self, plan: DreamPlan, forgotten: int) -> bool:
        """Store a plan, apply it, and move on. Return False, with nothing done, if something was
        forgotten since: the plan may contain it."""
        async with self._state.lock:
            if forgotten != self._state.forgotten:
                return False
            plan = replace(plan, run=self._name)
            await self.remember(plan=plan)
            await self._finish(plan)
            return True

    async def _finish(self, plan: DreamPlan, *, again: bool = False) -> None:
        """Apply and report a stored plan, then move on. With `again` a crash may have left it half
        done.

        Raise `WriteConflict` if a file keeps changing, `StorageError` if the disk refuses. The plan
        can then be applied again."""
        memory, report = self._memory, self._report
        report.entries += plan.entries
        report.set_aside += plan.set_aside
        for line in plan.set_aside:
            logger.info("Dream for {} left out {}", memory.scope, line)
        held = [fact for hold in plan.holds for fact in await self._hold(hold)]
        held += await self._retire_contradicted(plan)
        for write in plan.writes:
            if again and (number := await asyncio.to_thread(self._version_of, write)):
                report.add(write, number)
            else:
                held += await self._write(write)
        if held:
            await memory.pending.notify(held, "")
        state = await asyncio.to_thread(self._reader.move_on, self._load_state(), plan.done)
        await asyncio.to_thread(self._state.put, memory.scope, state)

    async def _retire_contradicted(self, plan: DreamPlan) -> list[PendingFact]:
        """Retire the facts that the quotations of a plan contradict. Return facts to approve."""
        said = days_of_quotations(one.new for write in plan.writes for one in write.operations)
        held = list[PendingFact]()
        for path, facts in (await self._memory.pending.find_contradicted(said)).items():
            steps = tuple(Operation(old=fact) for fact in facts)
            held += await self._write(Write(path, steps, tuple(facts)))
        return held

    async def _hold(self, hold: Hold) -> list[PendingFact]:
        """Hold changes back for approval. Return the new ones."""
        if not hold.operations:
            return []
        change = Change("dream", "held back for the person to confirm", run=self._name)
        self._report.held_back += tuple(
            without_list_mark(one.new) or f"remove: {without_list_mark(one.old)}"
            for one in hold.operations
        )
        return await self._memory.pending.add(hold.operations, hold.path, hold.origins, change)

    async def _write(self, write: Write) -> list[PendingFact]:
        """Change a file. Changes that could not be made need approval."""
        store, left, beyond = self._memory.store, write.operations, tuple[Operation, ...]()
        text = await asyncio.to_thread(store.read, write.path)
        applied = apply_operations(text, write.operations)
        if applied.text == text and not applied.left:
            return []
        try:
            change = _change(write, self._name)
            outcome = await store.apply(write.path, write.operations, change, retired=write.retired)
        except WriteConflict:
            raise
        except ToolError as error:  # the guard: the file is full, or would lose too much
            logger.warning("Dream could not write: {}", error)
        else:
            left, beyond = outcome.left, outcome.beyond
            done = replace(write, operations=outcome.select_applied(write.operations))
            self._report.add(done, outcome.version)
        self._report.refused += tuple(without_list_mark(one.old) for one in left if not one.new)
        facts = tuple(one for one in left if one.states)
        return await self._hold(Hold(write.path, facts + beyond, (BY_NANOBOT,)))

    def _version_of(self, write: Write) -> int:
        """Return the version that made this change already, or 0. Blocks."""
        path, steps = self._memory.prefix + write.path, set(write.operations)
        for version in self._memory.versions.log(_LATELY):
            made = steps <= set(version.change.operations)
            if version.author == "dream" and path in version.paths and made:
                return version.number
        return 0

    async def _plan(self, entries: Sequence[DreamEntry]) -> DreamPlan:
        """Return the plan of a batch. Raise `RunBudgetSpent` if no request was possible,
        `UnreadableAnswer`, or a `ProviderError`."""
        # Only the owner decides how the agent behaves.
        paths = FACTS if self._memory.scope == OWNER else (LONG_TERM, PERSON)
        files = {path: without_importance(self._memory.store.read(path)) for path in paths}
        updates, set_aside = dict[Update, None](), list[str]()
        by_origin = sorted(entries, key=_is_tainted)
        groups = [list(group) for _, group in groupby(by_origin, _is_tainted)]
        self._require_calls(len(groups))
        for group in groups:
            if left := await self._learn_from(group, files, updates, set_aside):
                # Ask once more about entries that the model left out.
                await self._learn_from(left, files, updates, set_aside)
        writes = [
            await self._integrate(path, text, [one for one in updates if one.path == path])
            for path, text in files.items()
        ]
        return DreamPlan(
            tuple(filter(attrgetter("operations"), writes)),
            tuple(holds_in(updates)),
            frozenset(entry.key for entry in entries),
            len(entries),
            set_aside=tuple(set_aside[:_MOST_SET_ASIDE]),
        )

    async def _learn_from(
        self,
        group: Sequence[DreamEntry],
        files: Mapping[str, str],
        updates: dict[Update, None],
        set_aside: list[str],
    ) -> list[DreamEntry]:
        """Phase 1: add the updates of these entries, except forgotten facts. Return the entries
        that the model left out."""
        store, recall = self._memory.store, self._memory.recall
        said, newest = [entry.text for entry in group], max(entry.said_at for entry in group)

        def read_files() -> tuple[Ages, dict[str, str], str]:
            ages = {path: store.fact_ages(path) for path in files}
            levels = {path: recall.levels(path) for path in files}
            shown = {
                path: with_ages(recall.select_related(path, said), ages[path], levels[path])
                for path in files
            }
            return ages, shown, "\n".join(line for rated in levels.values() for line in rated)

        ages, shown, rated = await asyncio.to_thread(read_files)
        messages = self._opening("dream_phase1.md", extraction_request(shown, group))
        reading = partial(read_extraction, count=len(group))
        items, read = await self._ask_until_read(messages, reading, EXTRACTION)

        def is_wanted(item: FactCandidate) -> bool:
            """Return True unless it was forgotten or rated in the meantime. Outdated lines may
            go."""
            said_at = newest if item.entry is None else group[item.entry].said_at
            if item.new and self._reader.forgotten.hides_line(item.new, said_at):
                return False
            return not item.only_rates or not find_line(item.old, rated)

        changes = classify(filter(is_wanted, items), group, files)
        # In a thread, because finding lines in a large memory takes long.
        kept, aside = await asyncio.to_thread(self._screen, changes, group, files, ages)
        updates |= dict.fromkeys(kept)
        set_aside += aside
        return [entry for number, entry in enumerate(group) if number not in read]

    def _screen(
        self,
        changes: Iterable[Update],
        group: Sequence[DreamEntry],
        files: Mapping[str, str],
        ages: Ages,
    ) -> tuple[Iterable[Update], list[str]]:
        """Return the accepted changes of one request, and the rejected ones with reasons.
        Blocks."""
        if any(map(_is_tainted, group)):
            return list(changes)[:MOST_UPDATES], []

        def is_past(path: str, line: str) -> bool:
            age = ages.get(path, {}).get(line.strip())
            return age is not None and has_passed(line, self._now.date(), age)

        messages = (
            one if one.timestamp else replace(one, timestamp=entry.said_at)
            for entry in group
            for one in entry.said
            if not is_foreign(one)
        )
        # The messages behind the entries, or an entry's own text if none is known.
        talk = Talk(messages, [entry.text for entry in group if not entry.said])
        return screen(changes, talk, files, self._echoes, is_past)

    async def _integrate(self, path: str, text: str, wanted: Sequence[Update]) -> Write:
        """Phase 2. Without budget for it, updates are added as phase 1 worded them."""
        updates = [one.step for one in wanted if not one.verbatim and not one.origins]
        edits = None
        if any(update.new for update in updates) and not self._is_spent(1):
            said = [f"{update.old} {update.new}" for update in updates]
            shown = await asyncio.to_thread(self._memory.recall.select_related, path, said)
            opening = self._opening("dream_phase2.md", integration_request(path, shown, updates))
            answer = await self._ask(opening, EDITS)
            edits = await asyncio.to_thread(read_edits, answer[:MOST_ANSWER])
        write = await asyncio.to_thread(integrate, path, text, updates, edits)
        verbatim = (one.step for one in wanted if one.verbatim)
        return replace(write, operations=(*write.operations, *verbatim))

    async def _digest(self, month: str) -> str:
        """Return the digest of a month, or "". If the model refuses once, it is asked again. Raise
        like `_plan`."""
        notes = await asyncio.to_thread(self._reader.notes_of, month)
        if not notes:
            return ""
        try:
            return await self._request_digest(month, notes)
        except ProviderRejected as error:
            if not error.blames_content:
                raise
        return await self._request_digest(month, notes)

    async def _request_digest(self, month: str, notes: Mapping[date, str]) -> str:
        self._require_calls(1)
        messages = self._opening("dream_digest.md", digest_request(month, notes))
        read = partial(read_digest, days=notes.keys())
        lines = await self._ask_until_read(messages, read, DIGEST)
        newest = datetime.combine(max(notes), time.max, self._now.tzinfo)

        def select_lines() -> dict[str, DigestLine]:
            """Return the lines that the notes support and that were not forgotten, each once."""
            talk, found = Talk((), notes.values()), dict[str, DigestLine]()
            for line in lines:
                is_copy = self._echoes.has(line.text) and not talk.is_covered(line.text)
                unfit = is_copy or junk_reason(line.text)
                unfit = unfit or talk.objection(line.text, counted=len(line.days))
                if not unfit and not self._reader.forgotten.hides_line(line.text, newest):
                    found[line.text.casefold()] = line
            return found

        return digest_text(month, (await asyncio.to_thread(select_lines)).values())

    def _opening(self, template: str, request: str) -> list[PromptMessage]:
        today = f"{self._now:%A}, {self._now.date().isoformat()}"
        return [system_message(render(template, today=today)), user_message(request)]

    def _require_calls(self, calls: int) -> None:
        if self._calls and self._is_spent(calls):
            raise RunBudgetSpent("the run has reached its limit of model calls or tokens")

    def _is_spent(self, calls: int) -> bool:
        """Return True if the budget does not allow so many more requests."""
        limits = self._limits
        return self._calls + calls > limits.max_calls or self._tokens > limits.max_tokens

    async def _ask_until_read(
        self, messages: list[PromptMessage], read: Callable[[str], T | None], schema: ToolSpec
    ) -> T:
        """Return the result of `read` for the model's first or second answer. Raise
        `UnreadableAnswer`."""
        for _ in range(2):
            answer = await self._ask(messages, schema)
            # In a thread, because an answer may be long.
            found = await asyncio.to_thread(read, answer) if len(answer) <= MOST_ANSWER else None
            if found is not None:
                return found
            answer = answer[:_SHOWN_AGAIN]
            messages += [assistant_message(answer), user_message(_NO_JSON)]
        raise UnreadableAnswer("two of the model's answers were not JSON")

    async def _ask(self, messages: Sequence[PromptMessage], schema: ToolSpec) -> str:
        """Return the model's answer. Raise a `ProviderError`."""
        self._calls += 1
        prompt = Prompt(tuple(messages), Toolset.of(()))
        reply = await self._provider.complete(prompt, CallOptions(use="memory", schema=schema))
        self._is_answered = True
        asked = sum(estimate_tokens(message.text) for message in messages)
        used = reply.usage.prompt + reply.usage.completion
        self._tokens += used or asked + estimate_tokens(reply.text)
        return reply.text


def _is_tainted(entry: DreamEntry) -> bool:
    return bool(entry.origins)


def _change(write: Write, run: str) -> Change:
    learned, parts = [without_list_mark(one.new) for one in write.operations if one.states], []
    if learned:
        parts.append(f"learned: {join_some([one[:60] for one in learned], 1)}")
    if rated := sum(one.only_rates for one in write.operations):
        parts.append(f"rated {pluralize(rated, 'fact')}")
    if write.retired:
        parts.append(f"retired {pluralize(len(write.retired), 'fact')}")
    cursors = sorted({one.cursor for one in write.operations if one.cursor})
    return Change(
        "dream", "; ".join(parts), cursors=tuple(cursors), operations=write.operations, run=run
    )
