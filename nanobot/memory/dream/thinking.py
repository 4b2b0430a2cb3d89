"""From a batch of entries to a plan: both phases, and the judging in between. Writes nothing.

Entries that foreign content touched are asked about apart from the others, so that what a page says
is not read together with what it could be taken for, and nothing that was worded after it was read
gets into phase 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from loguru import logger

from nanobot.errors import NanobotError
from nanobot.memory.documents import FACTS
from nanobot.memory.dream import phase1, phase2
from nanobot.memory.dream.phase1 import (
    MANNER,
    Batch,
    Entry,
    Extraction,
    Item,
)
from nanobot.memory.dream.phase2 import Held, Judgement, Update, judge
from nanobot.memory.dream.state import (
    Hold,
    Plan,
    Write,
)
from nanobot.memory.forgetting.forgotten import Forgotten
from nanobot.memory.scopes import OWNER, Memory
from nanobot.memory.text.lines import Operation
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    PromptMessage,
    Provider,
    Toolset,
    assistant_message,
    system_message,
    user_message,
)
from nanobot.providers.tokens import estimate_tokens
from nanobot.templates import render

_NO_JSON = "That was no JSON object in the form asked for. Answer with the object and nothing else."


class Unintelligible(NanobotError):
    """The model does not answer in the form that it is asked for."""


@dataclass(slots=True)
class _Found:
    updates: list[Update] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    quoted: list[Update] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


class Thinker:
    """Thinks for one scope in one run."""

    def __init__(
        self, memory: Memory, questions: Questions, forgotten: Forgotten, now: datetime
    ) -> None:
        self._memory = memory
        self._questions = questions
        self._forgotten = forgotten
        self._today = f"{now:%A}, {now.date().isoformat()}"
        self._is_owner = memory.scope == OWNER
        self._paths = FACTS if self._is_owner else tuple(path for path in FACTS if path != MANNER)

    async def plan(self, batch: Batch, since: datetime) -> Plan:
        """What `batch`, which was read after `since`, comes to. Raises `BudgetSpent` where nothing
        could be asked, `Unintelligible`, or a `ProviderError`."""
        files = {path: self._memory.store.read(path) for path in self._paths}
        found = _Found()
        for group in _apart(batch.entries):
            try:
                await self._extract(group, files, found)
            except BudgetSpent:
                if not found.read and not found.skipped:
                    raise
                break
        writes = [await self._integrate(path, text, found) for path, text in files.items()]
        return Plan(
            tuple(write for write in writes if write.operations),
            _holds(found.held),
            frozenset(found.read) | batch.empty,
            frozenset(found.skipped),
            len(found.read) + len(found.skipped),
            since,
        )

    async def _extract(
        self, group: Sequence[Entry], files: Mapping[str, str], found: _Found
    ) -> None:
        extraction = await self._asked(group, files)
        judgement = self._judged(extraction.items, group, files)
        found.updates += judgement.updates
        found.held += judgement.held
        found.quoted += judgement.quoted
        for number, entry in enumerate(group):
            (found.read if number in extraction.processed else found.skipped).add(entry.key)

    async def _asked(self, group: Sequence[Entry], files: Mapping[str, str]) -> Extraction:
        ages = {path: await asyncio.to_thread(self._memory.store.fact_ages, path) for path in files}
        messages = self._opening("dream_phase1.md", phase1.question(files, ages, group))
        for _ in range(2):
            answer = await self._questions.ask(messages)
            if (extraction := phase1.parse(answer, len(group))) is not None:
                return extraction
            messages += [assistant_message(answer), user_message(_NO_JSON)]
        raise Unintelligible("the model did not answer in JSON, twice")

    def _judged(
        self, items: Iterable[Item], group: Sequence[Entry], files: Mapping[str, str]
    ) -> Judgement:
        newest = max(entry.said_at for entry in group)
        wanted = []
        for item in items:
            said_at = newest if item.entry is None else group[item.entry].said_at
            # What is over may go, forgotten or not.
            if item.kind == "obsolete" or not self._forgotten.hides_line(item.text, said_at):
                wanted.append(item)
        return judge(wanted, group, files, owner=self._is_owner)

    async def _integrate(self, path: str, text: str, found: _Found) -> Write:
        updates = [update for update in found.updates if update.path == path]
        integrator = phase2.Integrator(path, text, updates)
        if any(update.text for update in updates):
            try:
                await self._edited(path, text, updates, integrator)
            except BudgetSpent:
                integrator.add_plainly()
        result = integrator.finish()
        found.held += result.held
        said = [
            Operation("", f"- {update.text}", "", update.cursor)
            for update in found.quoted
            if update.path == path
        ]
        return Write(path, (*result.operations, *said), tuple(result.retired))

    async def _edited(
        self,
        path: str,
        text: str,
        updates: Sequence[Update],
        integrator: phase2.Integrator,
    ) -> None:
        messages = self._opening("dream_phase2.md", phase2.question(path, text, updates))
        answer = await self._questions.ask(messages)
        edits = phase2.parse(answer)
        problems = integrator.take(edits or [])
        if edits is not None and not problems:
            return
        reason = _NO_JSON if edits is None else phase2.again(problems)
        messages += [assistant_message(answer), user_message(reason)]
        edits = phase2.parse(await self._questions.ask(messages))
        if edits is None and not problems:
            integrator.add_plainly()
            return
        for edit, reason in integrator.take(edits or []):
            logger.info("an edit of {} was skipped: {} ({})", path, edit, reason)
        # What was meant by them is not lost: it goes in as phase 1 worded it.
        integrator.add_plainly([edit for edit, _ in problems])

    def _opening(self, template: str, question: str) -> list[PromptMessage]:
        return [system_message(render(template, today=self._today)), user_message(question)]


def _apart(entries: Sequence[Entry]) -> list[list[Entry]]:
    clean = [entry for entry in entries if not entry.is_tainted]
    tainted = [entry for entry in entries if entry.is_tainted]
    return [group for group in (clean, tainted) if group]


def _holds(held: Iterable[Held]) -> tuple[Hold, ...]:
    holds: dict[tuple[str, tuple[str, ...]], Hold] = {}
    for fact in held:
        new = f"- {fact.line}" if fact.line else ""
        operation = Operation(fact.old, new, fact.section, fact.cursor)
        key = (fact.path, fact.origins)
        hold = holds.get(key, Hold(fact.path, (), fact.origins))
        if operation not in hold.operations:
            holds[key] = replace(hold, operations=(*hold.operations, operation))
    return tuple(holds.values())


class BudgetSpent(NanobotError):
    """A run has asked as much as it may; what is left waits for the next."""


@dataclass(frozen=True, slots=True)
class DreamLimits:
    """What one run may use. `batch` is entries a question; `max_tokens` counts questions and
    answers; `model` overrides the configured one."""

    batch: int = 20
    max_calls: int = 20
    max_tokens: int = 200_000
    model: str = ""


class Questions:
    """The questions of one run. The first may be asked whatever it costs: a run gets somewhere."""

    def __init__(self, provider: Provider, limits: DreamLimits) -> None:
        self._provider = provider
        self._limits = limits
        self._calls = 0
        self._tokens = 0

    async def ask(self, messages: Sequence[PromptMessage]) -> str:
        """The model's answer. Raises `BudgetSpent`, or a `ProviderError`."""
        asked = sum(estimate_tokens(message.text) for message in messages)
        self._check(asked)
        self._calls += 1
        prompt = Prompt(tuple(messages), Toolset.of(()))
        reply = await self._provider.complete(prompt, CallOptions(model=self._limits.model))
        told = reply.usage.prompt + reply.usage.completion
        self._tokens += told or asked + estimate_tokens(reply.text)
        return reply.text

    def _check(self, coming: int) -> None:
        if not self._calls:
            return
        if self._calls >= self._limits.max_calls:
            raise BudgetSpent(f"the {self._limits.max_calls} model calls of a run are used up")
        if self._tokens + coming > self._limits.max_tokens:
            raise BudgetSpent(f"the {self._limits.max_tokens:,} tokens of a run are used up")
