"""What people read about memory, in a chat or in a terminal of 80 columns. Pure.

The texts are plain Markdown that reads well as it is: lists, and blocks indented by four spaces for
what must stay aligned. Remembered text is shown as it was written, so whoever prints to a terminal
takes control characters out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Literal

from nanobot.bus.journal import Usage
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import Hit, IndexStats, Passage, Query, SearchResult
from nanobot.memory.search.tool import Retired
from nanobot.memory.store.pending import PendingFact
from nanobot.memory.versions.version import TAGS, Author, SyncResult, Version
from nanobot.text import shortened, visible

_FACTS_SHOWN = 60
_LINE = 300
_NEIGHBOUR = 120
_DIFF_SHOWN = 200
_PATHS_SHOWN = 3
_HELD, _HELD_SIZE = 8, 3_000
_NOTHING_INDEXED = IndexStats(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class FileView:
    """A long-term file at a glance: `lines` are its facts with their headings, `facts` counts them.
    `author` changed it last."""

    path: str
    lines: tuple[str, ...]
    facts: int
    tokens: int
    changed: datetime | None = None
    author: Author | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """What a scope holds. `notes` counts days, `others` are the other scopes, for the owner;
    `trouble` is what cannot be read, and why."""

    scope: str
    files: tuple[FileView, ...] = ()
    retired: int = 0
    entries: int = 0
    unread: int = 0
    notes: int = 0
    pending: int = 0
    latest_version: int = 0
    index: IndexStats = _NOTHING_INDEXED
    others: tuple[str, ...] = ()
    trouble: str = ""


def overview_text(view: Overview) -> str:
    """What is remembered: the facts, then how much there is of everything."""
    title = "What I remember" + ("" if view.scope == OWNER else f" in {view.scope}")
    blocks = [f"{title}:"]
    if not any(file.path == LONG_TERM for file in view.files):
        blocks.append(f"Nothing yet: there are no facts in {LONG_TERM}.")
    for file in view.files:
        head = [] if file.path == LONG_TERM else [f"From {file.path}:", ""]
        blocks.append("\n".join([*head, *_facts(file)]))
    blocks.append("\n".join(["Where it is:", "", *map(_file, view.files), *_counts(view)]))
    if view.pending:
        wait = count(view.pending, "fact waits", "facts wait")
        blocks.append(f"{wait} for your word: `/memory pending`.")
    if view.trouble:
        blocks.append(f"Not all is well: {view.trouble}")
    return "\n\n".join(blocks)


def search_text(query: Query, result: SearchResult, retired: Sequence[Retired]) -> str:
    """The hits, best first, each with what was said around it; before them what is past."""
    lines = [f"- no longer true since {day}: {shortened(line, _LINE)}" for day, line in retired]
    known = {hit.passage.id for hit in result.hits}
    for hit in result.hits:
        lines += _hit(hit, known)
    if not result.hits:
        looked = ", ".join(result.terms) or shortened(query.text, 80)
        near = f" Words that come close: {', '.join(result.near)}." if result.near else ""
        lines.append(f"Nothing was found for: {looked}.{near}")
    return "\n".join(lines)


def version_text(version: Version, diff: str) -> str:
    """One change: when, by whom, why, and the lines."""
    lines = diff.rstrip().splitlines()
    more = len(lines) - _DIFF_SHOWN
    shown = [*lines[:_DIFF_SHOWN], *([f"… {more:,} more lines"] if more > 0 else [])]
    return f"{version_line(version)}\n\n{indented(shown)}"


def versions_text(versions: Sequence[Version]) -> str:
    """The latest changes, newest first."""
    if not versions:
        return "Nothing has changed yet: there are no versions."
    lines = [f"- {version_line(version)}" for version in versions]
    how = (
        "To undo change N: `/dream-restore --version N`. To go back to what was remembered then: "
        "`/dream-restore --to N`."
    )
    return "\n".join([*lines, "", how])


def version_line(version: Version) -> str:
    """A version on one line: `12  2026-11-21 14:03  [Dream] learned 3 facts (USER.md)`."""
    tag = TAGS[version.author]
    summary = version.summary.removeprefix(tag).strip() or "a change"
    paths = ", ".join(version.paths)
    if len(version.paths) > _PATHS_SHOWN:
        paths = count(len(version.paths), "file")
    return f"{version.number}  {minute(version.when)}  {tag} {shortened(summary, 160)} ({paths})"


def restored_to_text(number: int, made: int) -> str:
    """What going back to version `number` did."""
    if not made:
        return f"All files are as they were after version {number}."
    return (
        f"All files are again as they were after version {number}. To take that back: "
        f"`/dream-restore --version {made}`."
    )


def restored_text(number: int, made: int, conflicts: Sequence[str]) -> str:
    """What undoing change `number` did, and what stood in its way."""
    lines = []
    if made:
        lines.append(
            f"Change {number} is undone. To take that back: `/dream-restore --version {made}`."
        )
    elif not conflicts:
        lines.append(f"Nothing of change {number} stands any more, so there was nothing to undo.")
    if conflicts:
        lines.append("This was left as it is, because it has changed since:")
        lines += [f"- {conflict}" for conflict in conflicts]
    return "\n".join(lines)


def pending_text(facts: Sequence[PendingFact]) -> str:
    """The facts that wait, and how to decide."""
    if not facts:
        return "Nothing waits for your word."
    lines = [
        "I worded these after I had read text from elsewhere, so I do not take them for true yet:",
        "",
        *(f"- {_pending(fact)}" for fact in facts),
        "",
        "`/memory accept N` remembers one, `/memory drop N` gives it up.",
    ]
    return "\n".join(lines)


def shown_of_held(facts: Sequence[PendingFact]) -> Sequence[PendingFact]:
    """Those of some facts that one notice can show whole: at most eight, in 3,000 characters."""
    sizes = accumulate(len(fact.shown) for fact in facts)
    return [fact for fact, size in zip(facts, sizes, strict=True) if size <= _HELD_SIZE][:_HELD]


def held_text(facts: Sequence[PendingFact]) -> str:
    """Facts that begin to wait, as their person is shown them: in a fence, so that nothing that
    others wrote passes for a part of this text, or for a link."""
    shown = shown_of_held(facts)
    origins = ", ".join(dict.fromkeys(origin for fact in facts for origin in fact.origins))
    text = "\n".join(f"{fact.number}: {visible(fact.shown)}" for fact in shown)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    more = len(facts) - len(shown)
    asked = "remember this" if all(fact.line for fact in facts) else "change memory like this"
    lines = [
        f"**May I {asked}?**\n{fence}\n{text}\n{fence}",
        f"I worded it after reading text from elsewhere ({shortened(origins, _NEIGHBOUR)}), so it"
        " waits for your word.",
    ]
    if len(facts) > 1:
        lines.append("Some of it: `/memory accept N` or `/memory drop N`.")
    if more:
        lines.append(f"{count(more, 'more waits', 'more wait')}: `/memory pending`.")
    return "\n".join(lines)


def decision_text(done: str, facts: Sequence[PendingFact], left: int) -> str:
    """What became of facts that waited."""
    lines = [f"{done}:", *(f"- {shortened(_change(fact), _LINE)}" for fact in facts)]
    if not facts:
        lines = ["No such fact waits: it was decided on already, or `/memory pending` has it."]
    if left:
        lines.append(f"{count(left, 'fact waits', 'facts wait')} still: `/memory pending`.")
    return "\n".join(lines)


def index_text(stats: IndexStats) -> str:
    """What is searchable, in a few words."""
    vectors = f", {stats.vectors:,} with vectors" if stats.vectors else ""
    return (
        f"{count(stats.messages, 'message')}, "
        f"{count(stats.history, 'history entry', 'history entries')}, "
        f"{count(stats.notes, 'note')}, {count(stats.facts, 'fact')}, "
        f"{count(stats.library, 'library passage')}{vectors}"
    )


def sync_text(remote: str, result: SyncResult) -> str:
    """What came from other devices, and what could not be merged."""
    others = count(len(result.devices), "other device")
    news = (
        f"{count(len(result.numbers), 'change')} came from {others}"
        if result.numbers
        else f"nothing new came from {others}"
        if result.devices
        else "no other device has been there yet"
    )
    lines = [f"Memory is in step with {shortened(remote, 200)}: {news}."]
    if result.conflicts:
        lines += ["Both sides of these lines were kept; look at them:"]
        lines += [f"- {shortened(conflict, _LINE)}" for conflict in result.conflicts]
    return "\n".join(lines)


def usage_text(rows: Iterable[tuple[str, Usage]], learning: Usage | None = None) -> str:
    """Tokens by stretch of time, aligned; `learning` is what memory itself used this month."""
    lines = [_usage_line(name, usage, "turn") for name, usage in rows]
    if learning is not None:
        lines.append(_usage_line("  memory, besides", learning, "call"))
    return "Tokens used:\n\n" + indented(lines)


def _usage_line(name: str, usage: Usage, unit: str) -> str:
    return (
        f"{name:<18} {usage.prompt:>11,} in ({usage.cached:,} cached)  {usage.completion:>9,} out"
        f"  {count(usage.turns, unit)}"
    )


def minute(moment: datetime) -> str:
    """A moment as people write it, in its own zone."""
    return f"{moment:%Y-%m-%d %H:%M}"


def indented(lines: Iterable[str]) -> str:
    """A block that stays as it is, in Markdown as well."""
    return "\n".join(f"    {line}".rstrip() for line in lines)


def count(number: int, one: str, many: str = "") -> str:
    """`1 fact`, `2 facts`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _facts(file: FileView) -> list[str]:
    shown: list[str] = []
    for line in file.lines[:_FACTS_SHOWN]:
        gap = [""] if shown and line.startswith("#") else []
        shown += [*gap, shortened(line, _LINE)]
    if len(file.lines) > _FACTS_SHOWN:
        shown.append(f"… and {len(file.lines) - _FACTS_SHOWN:,} more lines in {file.path}")
    return shown


def _file(file: FileView) -> str:
    size = f"{count(file.facts, 'fact')}, about {count(file.tokens, 'token')}"
    by = f" {TAGS[file.author]}" if file.author else ""
    changed = f", changed {minute(file.changed)}{by}" if file.changed else ""
    return f"- {file.path}: {size}{changed}"


def _counts(view: Overview) -> Iterable[str]:
    unread = f", {view.unread:,} of them not yet read by Dream" if view.unread else ""
    yield f"- history: {count(view.entries, 'entry', 'entries')}{unread}"
    yield f"- daily notes: {count(view.notes, 'day')}"
    if view.retired:
        yield f"- memory/retired.md: {count(view.retired, 'fact')} that are no longer true"
    if view.latest_version:
        yield f"- versions: {view.latest_version:,} is the latest; `/dream-restore --list`"
    if view.index != _NOTHING_INDEXED:
        yield f"- searchable: {index_text(view.index)}"
    if view.others:
        yield f"- other scopes: {', '.join(view.others)}"


def _pending(fact: PendingFact) -> str:
    origins = ", ".join(fact.origins) or "elsewhere"
    where = f"from {origins}, {fact.day.isoformat()}, for {fact.path}"
    return f"{fact.number}: {shortened(_change(fact), _HELD_SIZE)} [{where}]"


def _change(fact: PendingFact) -> str:
    """What a fact that waits would do, with nothing hidden in it."""
    if not fact.line:
        return f"no longer: {visible(fact.old)}"
    instead = f" (in place of: {visible(fact.old)})" if fact.old else ""
    return f"{visible(fact.line)}{instead}"


def _hit(hit: Hit, known: set[str]) -> Iterable[str]:
    """A hit with what was said around it, unless that is `known` from elsewhere on the page."""
    yield f"- {_place(hit.passage)}{_said(hit.passage, _LINE)}"
    around = [("before", hit.before[-1:]), ("after", hit.after[:1])]
    for where, passage in ((where, passage) for where, found in around for passage in found):
        if passage.id not in known:
            known.add(passage.id)
            yield f"  - {where}: {_said(passage, _NEIGHBOUR)}"


def _place(passage: Passage) -> str:
    when = f"{minute(passage.when)}, " if passage.when else ""
    return f"[{when}{passage.place}] "


def _said(passage: Passage, width: int) -> str:
    who = {"user": "you", "assistant": "nanobot"}.get(passage.speaker, passage.speaker)
    return f"{who}: {shortened(passage.text, width)}" if who else shortened(passage.text, width)
