"""`/forget`: remove a fact and its evidence from memory, search and prompts for good.

A plan lists everything that will go. `Forgetter.apply` orders its steps so that a crash never
leaves less hidden than before, and applying it again finishes the work. The conversations and
earlier versions still hold the words: `/forget --erase` removes them.

`memory/forgotten.jsonl` of a scope has one line for each `/forget`: the numbers of the retracted
messages and history entries, and the words of each fact as salted hashes. These recognize the fact
in other words without naming it. (They withstand a glance, not a determined search.)"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import NanobotError, WriteConflict
from nanobot.io import FileState, lstate_of, without_long_lines
from nanobot.memory.analysis import languages_of
from nanobot.memory.documents import ALL_FACTS, PENDING
from nanobot.memory.gitstore import LIMIT
from nanobot.memory.history import NOTHING_LEFT, READABLE, HistoryEntry
from nanobot.memory.line_changes import blocks_of
from nanobot.memory.provenance import FactLine, SourceMessage, excerpt
from nanobot.memory.scopes import Memories, Memory, Scopes
from nanobot.memory.similarity import Fact, Request, remove_sentences, tokenize_parts
from nanobot.memory.store import MemoryStore
from nanobot.memory.version import Change
from nanobot.memory.why import (
    Explainer,
    closest_lines,
    entries_in,
    lines_of,
    note_lines,
    source_message,
)
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.tasks import pace
from nanobot.text import pluralize

FORGOTTEN = "memory/forgotten.jsonl"


class _Record(Struct, frozen=True):
    """One `/forget`. The words of `facts` are hashes; `messages` has the retracted seqs by key."""

    timestamp: datetime
    salt: str
    facts: tuple[Fact, ...]
    messages: Mapping[str, frozenset[int]]
    entries: frozenset[int]

    @property
    def when(self) -> datetime:
        """Aware: a time without an offset is local time."""
        return self.timestamp if self.timestamp.tzinfo else self.timestamp.astimezone()

    def hides(self, text: str) -> bool:
        salt = bytes.fromhex(self.salt)
        return any(
            fact.is_held_by(hash_words(salt, said))
            for fact in self.facts
            for said in tokenize_parts(text, fact.language)
        )


class ForgottenFacts:
    """The forgotten facts of a scope, whose folder is `root`. A read costs one system call."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._read: tuple[FileState | None, list[_Record]] = (None, [])

    def hides_message(self, session: str, message: Message) -> bool:
        """Return True for a retracted message. A later message with the same number, in a new
        conversation of the same name, is not hidden."""
        records = self._since(message.timestamp)
        return any(message.seq in record.messages.get(session, ()) for record in records)

    def hides_entry(self, cursor: int) -> bool:
        """Return True if the history entry had only forgotten content."""
        return any(cursor in record.entries for record in self._since(None))

    def hides_line(self, line: str, said_at: datetime | None = None) -> bool:
        """Return True if a line states a forgotten fact. With `said_at`, the time of its newest
        evidence, only facts that were forgotten later count, so a repeated fact is not hidden."""
        return any(record.hides(line) for record in self._since(said_at))

    def add(
        self,
        when: datetime,
        salt: bytes,
        facts: Iterable[Fact],
        messages: Mapping[str, Sequence[int]],
        entries: Iterable[int] = (),
    ) -> None:
        """Durably record a `/forget`: its facts in clear text, and the numbers of messages and
        entries."""
        hashed = (
            replace(fact, words=hash_words(salt, fact.words), keys=hash_words(salt, fact.keys))
            for fact in facts
        )
        numbers = {key: frozenset(seqs) for key, seqs in messages.items()}
        record = _Record(when, salt.hex(), tuple(hashed), numbers, frozenset(entries))
        line = msgspec.json.encode(record, order="deterministic") + b"\n"
        place = self._root.place(FORGOTTEN)
        while True:
            current = place.read_bytes(LIMIT)
            with suppress(WriteConflict):  # another writer came first
                place.write_bytes((current or b"") + line, expected=current)
                return

    def _since(self, moment: datetime | None) -> list[_Record]:
        """Return the records since then, without invalid lines."""
        state, (seen, records) = lstate_of(f"{self._root.path}/{FORGOTTEN}"), self._read
        if state != seen:
            content, records = b"", []
            if state is not None:
                with self._root.place(FORGOTTEN).open(os.O_RDONLY) as descriptor:
                    content = without_long_lines(descriptor)[0]
            for line in content.splitlines():
                with suppress(msgspec.MsgspecError, ValueError, RecursionError):
                    record = msgspec.json.decode(line, type=_Record)
                    bytes.fromhex(record.salt)
                    records.append(record)
            self._read = state, records  # one assignment: other threads may be reading
        return [one for one in records if moment is None or moment <= one.when]


@lru_cache(maxsize=64)
def hash_words(salt: bytes, found: frozenset[str]) -> frozenset[str]:
    return frozenset(
        hashlib.blake2b(word.encode("utf-8", "replace"), key=salt, digest_size=8).hexdigest()
        for word in found
    )


async def remove_lines(
    store: MemoryStore, lines: Sequence[FactLine]
) -> tuple[tuple[FactLine, ...], list[int]]:
    """Remove lines from their files. Return the removed lines and the new versions."""
    versions, gone = list[int](), set[tuple[str, str]]()

    def remove_texts(text: str, path: str, texts: set[str]) -> str:
        pieces = re.split(r"(?<=\n)", text) if path in ALL_FACTS else blocks_of(text)
        gone.update((path, one) for one in texts.intersection(map(str.rstrip, pieces)))
        return "".join(piece for piece in pieces if piece.rstrip() not in texts)

    for path in dict.fromkeys(line.path for line in lines):
        texts = {line.text for line in lines if line.path == path}
        change = Change("forget", f"forgot {pluralize(len(texts), 'line')}")
        versions.append(
            await store.edit(path, partial(remove_texts, path=path, texts=texts), change)
        )
    went = tuple(one for one in lines if (one.path, one.text) in gone)
    return went, [version for version in versions if version]


_MARK = r"^\s*[-*+]\s+(\d{4}-\d{2}-\d{2}:\s|\d{2}:\d{2}\s)?"
_STAMP = r"\[\d{4}-\d{2}-\d{2} \d{2}:\d{2}\]"
_SHOWN = 20


class ForgetTarget(Struct, frozen=True):
    """The subject of `/forget`: the person's words, matched at least as closely as `least`, and the
    `facts` found by them."""

    request: Request
    least: int = 2
    facts: tuple[Fact, ...] = ()

    def is_stated_by(self, text: str) -> bool:
        """Return True if a part of `text` states any of the facts."""
        is_named = self.request.closeness(text) >= self.least
        return is_named or any(fact.is_stated_by(text) for fact in self.facts)


class Report(Struct, frozen=True):
    """The result of an operation: `text` for people, `data` for machines."""

    text: str
    data: Mapping[str, JsonValue]

    @classmethod
    def of(cls, text: str, **data: object) -> Report:
        """Convert data of any kind. Structs become objects."""
        return cls(text, msgspec.to_builtins(data))

    @classmethod
    def about(cls, text: str, value: object) -> Report:
        return cls(text, msgspec.to_builtins(value))


class ForgetPlan(Struct, frozen=True):
    """The effect of a `/forget`. `lines` are in files, `entries` are cursors of history entries,
    `emptied` those without any remaining content, `paragraphs` are in HISTORY.md without an entry.
    `sought` is None if nothing states it."""

    scope: str
    lines: tuple[FactLine, ...] = ()
    messages: tuple[SourceMessage, ...] = ()
    entries: tuple[int, ...] = ()
    emptied: tuple[int, ...] = ()
    paragraphs: tuple[FactLine, ...] = ()
    sought: ForgetTarget | None = None

    @property
    def is_empty(self) -> bool:
        return self.sought is None

    @property
    def counts(self) -> str:
        lines, messages = (
            pluralize(len(self.lines), "line"),
            pluralize(len(self.messages), "message"),
        )
        history = len(self.entries) + len(self.paragraphs)
        entries = pluralize(history, "history entry", "history entries")
        return f"{lines}, {messages}, {entries}"

    @property
    def text(self) -> str:
        """List of everything that will go, for people."""
        if self.is_empty:
            return "I remember nothing about this."
        lines = (*self.lines, *self.paragraphs)
        found = [f"{one.path}, line {one.number}: {excerpt(one.text)}" for one in lines]
        found += [f"{one.session} #{one.seq}, {one.who}: {excerpt(one.text)}"
                  for one in self.messages]  # fmt: skip
        found += [f"history {cursor}" for cursor in self.entries]
        return "\n".join([f"This will be forgotten: {self.counts}.", *bullet_list(found)])

    @property
    def data(self) -> dict[str, JsonValue]:
        return {
            "found": not self.is_empty,
            "scope": self.scope,
            "lines": msgspec.to_builtins(self.lines),
            "messages": [{"session": said.session, "seq": said.seq} for said in self.messages],
            "entries": list(self.entries),
            "paragraphs": msgspec.to_builtins(self.paragraphs),
        }


def report_forgotten(plan: ForgetPlan, versions: Sequence[int]) -> Report:
    """Report an applied plan with the removed lines and the new versions."""
    undo = " and ".join(f"/dream-restore --version {number}" for number in versions)
    back = f" To restore lines in long-term files: {undo}." if undo else ""
    text = (
        f"Forgotten: {plan.counts}. They are no longer in memory, search, or prompts, and "
        f"will not be learned again from earlier messages.{back} The conversation files and "
        "earlier versions still contain the text. `/forget --erase` deletes it there, too."
    )
    return Report(plan.text if plan.is_empty else text, plan.data | {"versions": [*versions]})


def bullet_list(lines: Sequence[str]) -> list[str]:
    """Return the first lines as a list for people, and the number of others."""
    more = len(lines) - _SHOWN
    return [f"- {line}" for line in (*lines[:_SHOWN], *([f"and {more} more"] if more > 0 else []))]


class Forgetter:
    """Plans and applies `/forget` in one scope at a time. `pause_learning` stops writers of facts
    in the meantime."""

    def __init__(
        self,
        memories: Memories,
        explainer: Explainer,
        sessions: SessionManager,
        scopes: Scopes,
        clock: Clock,
        pause_learning: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self.pause_learning = pause_learning
        self._memories, self._explainer, self._sessions = memories, explainer, sessions
        self._scopes, self._clock = scopes, clock

    async def seek(self, text: str, scope: str) -> ForgetTarget:
        """Find the facts that `text` names, in any wording. Raise `NanobotError` if it has no
        words."""
        if not Request.of(text).groups:
            raise NanobotError(
                "the text does not have enough words to find a fact",
                hint="Use words from the fact as `/memory` shows it.",
            )
        return await asyncio.to_thread(self._seek, text.strip(), scope)

    async def plan(self, text: str, scope: str) -> ForgetPlan:
        """Plan to forget `text`. Change nothing. Raise like `seek`."""
        return await self.plan_for(await self.seek(text, scope), scope)

    async def plan_for(self, sought: ForgetTarget, scope: str) -> ForgetPlan:
        """Plan for the result of `seek`."""
        plan = await asyncio.to_thread(self._stating, sought, scope)
        if plan.is_empty and sought.least > 1:  # perhaps only relatives of the words occur
            plan = await asyncio.to_thread(self._stating, ForgetTarget(sought.request, 1), scope)
        return plan

    async def apply(self, plan: ForgetPlan) -> Report:
        """Apply a plan. After a crash, a new plan finishes the rest."""
        sought = plan.sought
        if sought is None:
            return report_forgotten(plan, ())
        memory = self._memories.of(plan.scope)
        numbers = defaultdict[str, list[int]](list)
        for said in plan.messages:
            numbers[said.session].append(said.seq)
        facts = (*sought.request.facts(), *sought.facts)
        async with self.pause_learning():
            record = (self._clock.now(), secrets.token_bytes(16), facts, numbers, plan.emptied)
            # The record is first: all other code skips the fact from here on.
            await asyncio.to_thread(ForgottenFacts(memory.root).add, *record)
            for key, seqs in numbers.items():
                await self._sessions.retract(await self._sessions.get_or_create(key), seqs)
            if plan.entries or plan.paragraphs:
                left = partial(remove_facts, sought=sought)
                await asyncio.to_thread(memory.history.rewrite, left)
            try:
                gone, versions = await remove_lines(memory.store, plan.lines)
                await asyncio.to_thread(memory.recall.refresh)
                return report_forgotten(replace(plan, lines=gone), versions)
            finally:  # if one line cannot be removed, others may be gone
                self._memories.forgotten += 1

    def _seek(self, text: str, scope: str) -> ForgetTarget:
        memory = self._memories.of(scope)
        known = list(lines_of(memory))
        request = Request.of(text, languages_of(line.text for line in known))
        close, lines = closest_lines(request, known)
        wordings = (one for line in lines for one in self._explainer.wordings(memory, line))
        facts = (Fact.of(re.sub(_MARK, "", one)).add_keys(request) for one in wordings)
        return ForgetTarget(
            request, close or 2, tuple(dict.fromkeys(one for one in facts if one.words))
        )

    def _stating(self, sought: ForgetTarget, scope: str) -> ForgetPlan:
        """Plan to forget everything that states `sought`."""
        memory = self._memories.of(scope)
        entries = [one for one in pace(memory.history.entries()) if _entry_states(one, sought)]
        emptied = [
            one.cursor for one in entries if not remove_sentences(one.summary, sought.is_stated_by)
        ]
        paragraphs = tuple(
            FactLine(READABLE, number, text)
            for number, text, _ in pace(memory.history.paragraphs())
            if remove_sentences(text, sought.is_stated_by) != text
        )
        lines, messages = find_stating_lines(memory, sought), tuple(self._messages(scope, sought))
        is_found = any((lines, messages, entries, paragraphs))
        return ForgetPlan(
            scope,
            lines=lines,
            messages=messages,
            entries=tuple(entry.cursor for entry in entries),
            emptied=tuple(emptied),
            paragraphs=paragraphs,
            sought=sought if is_found else None,
        )

    def _messages(self, scope: str, sought: ForgetTarget) -> Iterator[SourceMessage]:
        for info in pace(self._sessions.list_sessions()):
            if self._scopes.of_session(info.key, info.metadata) == scope:
                for message in pace(self._sessions.read_window(info.key)):
                    if any(map(sought.is_stated_by, message.texts)):
                        yield source_message(info.key, message)


def find_stating_lines(memory: Memory, sought: ForgetTarget) -> tuple[FactLine, ...]:
    """Return the facts that the request names, and the notes, digests and pending facts that state
    them."""
    close, facts = closest_lines(sought.request, lines_of(memory))
    files = (entries_in(memory, path) for path in (PENDING, *memory.store.files_by_hand()))
    entries = chain(*files, note_lines(memory))
    stating = (line for line in entries if sought.is_stated_by(line.text))
    return (*(facts if close >= sought.least else ()), *stating)


def remove_facts(text: str, sought: ForgetTarget) -> str:
    """Return a text of history without the sentences that state `sought`."""
    kept = []
    for block in re.split(r"(\n\s*\n)", text):
        left = remove_sentences(block, sought.is_stated_by) if block.strip() else block
        stamp = re.match(_STAMP, block)
        kept.append(f"{stamp[0]} {NOTHING_LEFT}" if stamp and not left else left)
    return "".join(kept)


def _entry_states(entry: HistoryEntry, sought: ForgetTarget) -> bool:
    lines = [line for op in entry.operations for line in (op.old, op.new)]
    stated = any(map(sought.is_stated_by, (*entry.key_facts, *entry.set_aside, *lines)))
    return stated or remove_sentences(entry.summary, sought.is_stated_by) != entry.summary
