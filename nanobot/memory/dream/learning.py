"""From a batch of entries to a plan, by both phases; and from a plan to changed files.

Entries that foreign content touched are asked about apart from the others, so that what a page says
is not read together with what it could be taken for, and nothing that was worded after it was read
gets into phase 2.

A plan may be carried out again after a crash. What a version or the file itself shows to be done is
not repeated, also where the person has undone it since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from functools import partial
from itertools import groupby
from typing import TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import ToolError, WriteConflict
from nanobot.memory.cleaning import MOST_ANSWER, Echoes, junk_reason
from nanobot.memory.digests import DIGEST, DigestLine, digest_request, digest_text, read_digest
from nanobot.memory.documents import FACTS
from nanobot.memory.dream.phases import (
    EDITS,
    EXTRACTION,
    MANNER,
    FactCandidate,
    ShownFile,
    Update,
    classify,
    extraction_request,
    holds_in,
    integrate,
    integration_request,
    read_edits,
    read_extraction,
)
from nanobot.memory.dream.reading import DreamEntry
from nanobot.memory.dream.screening import MOST_UPDATES, Screened, screen
from nanobot.memory.dream.state import (
    DreamLimits,
    DreamPlan,
    DreamReport,
    Hold,
    RunBudgetSpent,
    Unintelligible,
    Write,
)
from nanobot.memory.figures import has_passed
from nanobot.memory.forget import Forgotten
from nanobot.memory.guard import find_line, without_list_mark
from nanobot.memory.importance import without_importance
from nanobot.memory.lines import Operation, apply_operations
from nanobot.memory.pending import NOT_SAID, PendingFact
from nanobot.memory.scopes import OWNER, Memory
from nanobot.memory.support import Talk
from nanobot.memory.taint import is_foreign
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
from nanobot.text import counted

_NO_JSON = "That was no JSON object in the form asked for. Answer with the object and nothing else."
_MOST_SET_ASIDE, _SHOWN_AGAIN = 20, 4_000
_LATELY = 50
"""Versions among which one from before a crash is looked for."""


T = TypeVar("T")


class Planner:
    """Asks the model for one scope in one run, within its limits. The first question may be asked
    whatever it costs: a run gets somewhere."""

    def __init__(
        self,
        memory: Memory,
        provider: Provider,
        limits: DreamLimits,
        forgotten: Forgotten,
        now: datetime,
    ) -> None:
        self._memory, self._provider, self._limits = memory, provider, limits
        self._forgotten = forgotten
        names = ("dream_phase1.md", "dream_phase2.md", "dream_digest.md")
        self._echoes = Echoes(render(name, today="") for name in names)
        self._now, self._today = now, f"{now:%A}, {now.date().isoformat()}"
        self._calls = self._tokens = 0
        self.is_answered = False
        """Whether the model has answered anything, be it nonsense."""

    async def plan(self, entries: Sequence[DreamEntry]) -> DreamPlan:
        """What a batch comes to. Raises `RunBudgetSpent` where nothing could be asked,
        `Unintelligible`, or a `ProviderError`."""
        files = self._files()
        updates, set_aside = dict[Update, None](), list[str]()
        by_origin = sorted(entries, key=_is_tainted)
        groups = [list(group) for _, group in groupby(by_origin, _is_tainted)]
        self._require_calls(len(groups))
        for group in groups:
            wanted, left = await self._extract(group, files)
            # In a large memory finding the lines takes long.
            found = await asyncio.to_thread(self._screened, wanted, group, files)
            if left:  # the model left them out: it is asked once more
                more, _ = await self._extract(left, files)
                again = await asyncio.to_thread(self._screened, more, left, files)
                found = Screened(found.kept + again.kept, found.set_aside + again.set_aside)
            updates |= dict.fromkeys(found.kept)
            set_aside += found.set_aside
        writes = [
            await self._integrate(path, text, [one for one in updates if one.path == path])
            for path, text in files.items()
        ]
        return DreamPlan(
            tuple(write for write in writes if write.operations),
            tuple(holds_in(updates)),
            frozenset(entry.key for entry in entries),
            len(entries),
            set_aside=tuple(set_aside[:_MOST_SET_ASIDE]),
        )

    def _files(self) -> dict[str, str]:
        """The files that may change, by path: how the agent behaves is only the owner's to say."""
        store, is_owner = self._memory.store, self._memory.scope == OWNER
        paths = FACTS if is_owner else [path for path in FACTS if path != MANNER]
        return {path: without_importance(store.read(path)) for path in paths}

    def _screened(
        self, wanted: Sequence[FactCandidate], group: Sequence[DreamEntry], files: Mapping[str, str]
    ) -> Screened:
        """What becomes of the candidates of one question. Blocks."""
        changes = classify(wanted, group, files, owner=self._memory.scope == OWNER)
        if any(map(_is_tainted, group)):
            return Screened(list(changes)[:MOST_UPDATES])
        ages = {path: self._memory.store.fact_ages(path) for path in files}

        def is_past(path: str, line: str) -> bool:
            age = ages.get(path, {}).get(line.strip())
            return age is not None and has_passed(line, self._now.date(), age)

        return screen(changes, talk_of(group), files, self._echoes, is_past)

    async def digest(self, month: str, notes: Mapping[date, str]) -> str:
        """The digest of a month with these notes, one question; empty where nothing is worth it.
        Raises like `plan`."""
        if not notes:
            return ""
        self._require_calls(1)
        messages = self._opening("dream_digest.md", digest_request(month, notes))
        read = partial(read_digest, days=notes.keys())
        lines = await self._ask_until_read(messages, read, DIGEST)
        newest = datetime.combine(max(notes), time.max, self._now.tzinfo)

        def rests_on_notes(line: DigestLine) -> bool:
            is_copy = self._echoes.has(line.text) and not talk.is_told(line.text)
            junk = is_copy or junk_reason(line.text)
            return not junk and not talk.objection(line.text, counted=len(line.days))

        talk = await asyncio.to_thread(Talk, (), notes.values())
        kept = [one for one in lines if not self._forgotten.hides_line(one.text, newest)]
        kept = await asyncio.to_thread(list, filter(rests_on_notes, kept))
        return digest_text(month, list({one.text.casefold(): one for one in kept}.values()))

    async def _extract(
        self, group: Sequence[DreamEntry], files: Mapping[str, str]
    ) -> tuple[list[FactCandidate], list[DreamEntry]]:
        """Phase 1: what was found, without what was forgotten, and the entries left out."""
        memory, said = self._memory, [entry.text for entry in group]

        def shown(path: str) -> ShownFile:
            text = memory.recall.related(path, said)
            return ShownFile(text, memory.store.fact_ages(path), memory.recall.levels(path))

        seen = {path: await asyncio.to_thread(shown, path) for path in files}
        messages = self._opening("dream_phase1.md", extraction_request(seen, group))
        newest = max(entry.said_at for entry in group)
        reading = partial(read_extraction, count=len(group))
        items, read = await self._ask_until_read(messages, reading, EXTRACTION)
        rated = "\n".join(line for file in seen.values() for line in file.levels)

        def is_wanted(item: FactCandidate) -> bool:
            """Neither forgotten since it was said, nor rated already; what is over may go."""
            said_at = newest if item.entry is None else group[item.entry].said_at
            if item.new and self._forgotten.hides_line(item.new, said_at):
                return False
            return not item.only_rates or not find_line(item.old, rated)

        left = [entry for number, entry in enumerate(group) if number not in read]
        return list(filter(is_wanted, items)), left

    async def _ask_until_read(
        self, messages: list[PromptMessage], read: Callable[[str], T | None], schema: ToolSpec
    ) -> T:
        """What `read` finds in the model's answer, or in its second one. Raises
        `Unintelligible`."""
        for _ in range(2):
            answer = await self._ask(messages, schema)
            # A model may answer anything, of any length.
            found = await asyncio.to_thread(read, answer) if len(answer) <= MOST_ANSWER else None
            if found is not None:
                return found
            answer = answer[:_SHOWN_AGAIN]
            messages += [assistant_message(answer), user_message(_NO_JSON)]
        raise Unintelligible("the model did not answer in JSON, twice")

    async def _integrate(self, path: str, text: str, wanted: Sequence[Update]) -> Write:
        """Phase 2. Without budget for it, updates go in as phase 1 worded them."""
        updates = [one.step for one in wanted if not one.verbatim and not one.origins]
        edits = None
        if any(update.new for update in updates) and not self._is_spent(1):
            said = [f"{update.old} {update.new}" for update in updates]
            shown = await asyncio.to_thread(self._memory.recall.related, path, said)
            opening = self._opening("dream_phase2.md", integration_request(path, shown, updates))
            answer = await self._ask(opening, EDITS)
            edits = await asyncio.to_thread(read_edits, answer[:MOST_ANSWER])
        write = await asyncio.to_thread(integrate, path, text, updates, edits)
        verbatim = (one.step for one in wanted if one.verbatim)
        return replace(write, operations=(*write.operations, *verbatim))

    def _opening(self, template: str, request: str) -> list[PromptMessage]:
        return [system_message(render(template, today=self._today)), user_message(request)]

    def _require_calls(self, calls: int) -> None:
        if self._calls and self._is_spent(calls):
            raise RunBudgetSpent("the model calls or tokens of a run are used up")

    def _is_spent(self, calls: int) -> bool:
        """Whether the run may not ask so many more questions."""
        limits = self._limits
        return self._calls + calls > limits.max_calls or self._tokens > limits.max_tokens

    async def _ask(self, messages: Sequence[PromptMessage], schema: ToolSpec) -> str:
        """The model's answer. Raises a `ProviderError`."""
        self._calls += 1
        prompt = Prompt(tuple(messages), Toolset.of(()))
        reply = await self._provider.complete(prompt, CallOptions(use="memory", schema=schema))
        self.is_answered = True
        asked = sum(estimate_tokens(message.text) for message in messages)
        used = reply.usage.prompt + reply.usage.completion
        self._tokens += used or asked + estimate_tokens(reply.text)
        return reply.text


def _is_tainted(entry: DreamEntry) -> bool:
    return bool(entry.origins)


def talk_of(group: Sequence[DreamEntry]) -> Talk:
    """Return the messages behind these entries, or the entries' own text if no message is known."""
    messages = (
        one if one.timestamp else replace(one, timestamp=entry.said_at)
        for entry in group
        for one in entry.said
        if not is_foreign(one)
    )
    return Talk(messages, [entry.text for entry in group if not entry.said])


async def carry_out(memory: Memory, plan: DreamPlan, report: DreamReport, *, again: bool) -> None:
    """Do all of `plan`, and report it; `again` where a part of it may have been done before a
    crash.

    Raises `WriteConflict` where a file does not hold still, `StorageError` when the disk does not
    take it; the plan can then be carried out again.
    """
    report.entries += plan.entries
    report.set_aside += plan.set_aside
    for line in plan.set_aside:
        logger.info("Dream of {} set aside {}", memory.scope, line)
    held = [fact for hold in plan.holds for fact in await _hold(memory, hold, plan.run, report)]
    for write in plan.writes:
        if again and (number := await asyncio.to_thread(_version_of, memory, write)):
            report.add(write, number)
        else:
            held += await _write(memory, write, plan.run, report)
    if held:
        await memory.pending.notify(held, "")


async def _hold(memory: Memory, hold: Hold, run: str, report: DreamReport) -> list[PendingFact]:
    """Let changes wait for the owner; those that were new."""
    if not hold.operations:
        return []
    change = Change("dream", "held back for the person to confirm", run=run)
    lines = (
        without_list_mark(one.new) or f"no longer: {without_list_mark(one.old)}"
        for one in hold.operations
    )
    report.held_back += tuple(lines)
    return await memory.pending.add(hold.operations, hold.path, hold.origins, change)


async def _write(memory: Memory, write: Write, run: str, report: DreamReport) -> list[PendingFact]:
    """Make the changes of a file; what could not be written waits for the person."""
    store, left = memory.store, write.operations
    text = await asyncio.to_thread(store.read, write.path)
    if apply_operations(text, write.operations).text == text:
        return []
    beyond = tuple[Operation, ...]()
    try:
        change = _change(write, run)
        outcome = await store.apply(write.path, write.operations, change, retired=write.retired)
    except WriteConflict:
        raise
    except ToolError as error:  # the guard: the file is full, or would lose too much
        logger.warning("Dream could not write: {}", error)
    else:
        left, beyond = outcome.left, outcome.beyond
        done = outcome.made(write.operations)
        report.add(replace(write, operations=done), outcome.version)
    report.refused += tuple(without_list_mark(one.old) for one in left if not one.new)
    facts = tuple(one for one in left if one.states)
    return await _hold(memory, Hold(write.path, facts + beyond, (NOT_SAID,)), run, report)


def _version_of(memory: Memory, write: Write) -> int:
    """The version that made this change already, 0 where none did. Blocks."""
    path, steps = memory.prefix + write.path, set(write.operations)
    for version in memory.versions.log(_LATELY):
        made = steps <= set(version.change.operations)
        if version.author == "dream" and path in version.paths and made:
            return version.number
    return 0


def _change(write: Write, run: str) -> Change:
    learned, parts = [without_list_mark(one.new) for one in write.operations if one.states], []
    if learned:
        more = f" and {len(learned) - 1} more" if len(learned) > 1 else ""
        parts.append(f"learned: {learned[0][:60]}{more}")
    if rated := sum(one.says_nothing_new for one in write.operations):
        parts.append(f"rated {counted(rated, 'fact')}")
    if write.retired:
        parts.append(f"retired {len(write.retired)}")
    cursors = sorted({one.cursor for one in write.operations if one.cursor})
    return Change(
        "dream", "; ".join(parts), cursors=tuple(cursors), operations=write.operations, run=run
    )
