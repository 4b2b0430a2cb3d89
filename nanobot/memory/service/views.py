"""The answers of `MemoryService`: a text for people and the same as JSON for machines. Pure.

The texts are Markdown that is also readable as plain text, in a chat or in a terminal of 80
columns: lists, and blocks indented by four spaces if they must stay aligned. Remembered text is
unescaped, so code that prints to a terminal removes control characters. Times in JSON are ISO 8601
with their offset, or null if unknown. Empty fields are not left out."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Literal

import msgspec
from msgspec import Struct, field

from nanobot.bus.journal import UsageTotals
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.forget import Report
from nanobot.memory.guard import without_list_mark
from nanobot.memory.importance import Importance, importance_of, without_importance
from nanobot.memory.line_changes import is_heading, lines_of
from nanobot.memory.losses import Loss
from nanobot.memory.pending import BY_NANOBOT, PendingFact
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import Hit, IndexStats, Passage, Query, SearchResult
from nanobot.memory.sync import SyncResult
from nanobot.memory.version import TAGS, Author, Version
from nanobot.messages import attribute_message, source_name
from nanobot.text import escape_invisible, pluralize, shorten

_LINE, _NEIGHBOUR = 300, 120
_FACTS_SHOWN, _DIFF_SHOWN, _PATHS_SHOWN = 60, 200, 3
_HELD, _HELD_SIZE = 8, 3_000
_MOST_LOST = 12
_USUAL = Importance()


class FileView(Struct, frozen=True):
    """Summary of a long-term file: `lines` are its facts with their headings, `facts` counts them,
    and `left_out` counts the facts without room in the prompt. `author` changed it last."""

    path: str
    lines: tuple[str, ...]
    facts: int
    tokens: int
    left_out: int = 0
    changed: datetime | None = None
    author: Author | Literal[""] = ""


class Overview(Struct):
    """Summary of a scope. `history` counts entries and unread ones, `notes` days, `digests` months.
    `index` and the other `scopes` are for the owner. `problem` describes an unreadable file."""

    scope: str
    facts: list[str] = field(default_factory=list)
    files: list[FileView] = field(default_factory=list)
    history: dict[str, int] = field(default_factory=dict)
    notes: int = 0
    digests: int = 0
    retired: int = 0
    pending: int = 0
    latest_version: int = 0
    index: IndexStats | None = None
    scopes: list[str] = field(default_factory=list)
    problem: str = ""

    def report(self) -> Report:
        blocks = [f"What I remember{'' if self.scope == OWNER else f' in {self.scope}'}:"]
        if not self.facts:
            blocks.append(f"No facts in {LONG_TERM} yet.")
        blocks += ["\n".join(render_facts(file)) for file in self.files]
        blocks.append(
            "\n".join(["Storage:", "", *map(render_size, self.files), *self._render_counts()])
        )
        if self.pending:
            blocks.append(
                f"To review {pluralize(self.pending, 'pending fact')}, send `/memory pending`."
            )
        if self.problem:
            blocks.append(f"Problem: {self.problem}")
        return Report.about("\n\n".join(blocks), self)

    def _render_counts(self) -> Iterator[str]:
        entries, unread = self.history["entries"], self.history["unread"]
        behind = f", {unread:,} not yet read by Dream" if unread else ""
        yield f"- history: {pluralize(entries, 'entry', 'entries')}{behind}"
        digests = f", and digests of {pluralize(self.digests, 'month')}" if self.digests else ""
        yield f"- daily notes: {pluralize(self.notes, 'day')}{digests}"
        if self.retired:
            yield f"- memory/retired.md: {pluralize(self.retired, 'outdated fact')}"
        if self.latest_version:
            yield f"- latest version: {self.latest_version:,} (`/dream-restore --list`)"
        if self.index is not None:
            yield f"- searchable: {index_text(self.index)}"
        if self.scopes:
            yield f"- other scopes: {', '.join(self.scopes)}"


def render_facts(file: FileView) -> Iterator[str]:
    """Render the facts of a file, or the most important ones of many."""
    if file.path != LONG_TERM:
        yield from (f"From {file.path}:", "")
    shown = select_important(file)
    for number, line in enumerate(shown):
        yield from ("",) if number and is_heading(line) else ()
        found = importance_of(line)
        importance = f" (importance {found.label})" if found else ""
        yield shorten(without_importance(line), _LINE) + importance
    if (more := file.facts - sum(not is_heading(line) for line in shown)) > 0:
        yield f"… and {pluralize(more, 'more fact')} in {file.path}"


def select_important(file: FileView) -> Sequence[str]:
    """Return the facts to show, in their order, with their headings."""
    facts = [line for line in file.lines if not is_heading(line)]
    facts.sort(key=lambda line: -(importance_of(line) or _USUAL).level)
    return under_headings("\n".join(file.lines), {*facts[:_FACTS_SHOWN]})


def under_headings(text: str, facts: Container[str]) -> tuple[str, ...]:
    """Return the facts of a text in their order, each group after its heading."""
    found, above = list[str](), ""
    for line, section in lines_of(text):
        if line.strip() in facts:
            found += [line.strip()] if section == above else [section, line.strip()]
            above = section
    return tuple(found)


def render_size(file: FileView) -> str:
    changed = ""
    if file.changed and file.author:
        changed = f", changed {format_minute(file.changed)} {TAGS[file.author]}"
    size = f"{pluralize(file.facts, 'fact')}, about {pluralize(file.tokens, 'token')}"
    if file.left_out:
        size += f" ({pluralize(file.left_out, 'fact')} not in the prompt, but found by search)"
    return f"- {file.path}: {size}{changed}"


def search_report(query: Query, result: SearchResult, asker: str = "") -> Report:
    """Render the hits, best first, each with its neighbours. `asker` is the reader, as for
    `attribute_message`."""
    lines = list[str]()
    known = {hit.passage.id for hit in result.hits}
    for hit in result.hits:
        lines += render_hit(hit, known, asker)
    if not result.hits:
        looked = ", ".join(result.terms) or shorten(query.text, 80)
        lines.append(f"No results for: {looked}.")
    hits = [
        msgspec.to_builtins(hit.passage)
        | {"score": round(hit.score, 4), "before": hit.before, "after": hit.after}
        for hit in result.hits
    ]
    return Report.of("\n".join(lines), hits=hits, terms=result.terms, left=result.left)


def render_hit(hit: Hit, known: set[str], asker: str) -> Iterator[str]:
    """Render a hit with its neighbours, except those `known` from other hits."""
    when = f"{format_minute(hit.passage.when)}, " if hit.passage.when else ""
    yield f"- [{when}{hit.passage.place}] {quote_passage(hit.passage, _LINE, asker)}"
    for where, around in (("before", hit.before[-1:]), ("after", hit.after[:1])):
        for passage in around:
            if passage.id not in known:
                known.add(passage.id)
                yield f"  - {where}: {quote_passage(passage, _NEIGHBOUR, asker)}"


def quote_passage(passage: Passage, width: int, asker: str) -> str:
    if passage.source != "message":
        return shorten(passage.text, width)
    who, text = attribute_message(
        passage.role, passage.speaker, passage.text, passage.origin, asker
    )
    kept = " (marked to keep)" if passage.kept else ""
    return f"{who}: {shorten(text, width)}{kept}"


def version_report(version: Version, diff: str) -> Report:
    lines = diff.rstrip().splitlines()
    more = len(lines) - _DIFF_SHOWN
    shown = [*lines[:_DIFF_SHOWN], *([f"… {pluralize(more, 'more line')}"] if more > 0 else [])]
    text = f"{render_version(version)}\n\n{indent(shown)}"
    return Report.of(text, **_version_data(version), diff=diff)


def versions_report(versions: Sequence[Version], total: int) -> Report:
    """Render the latest changes, newest first, of `total` in all."""
    text = "No versions yet."
    if versions:
        lines = [f"- {render_version(version)}" for version in versions]
        how = (
            "To undo change N: `/dream-restore --version N`. To restore version N: "
            "`/dream-restore --to N`."
        )
        text = "\n".join([*lines, "", how])
    return Report.of(text, versions=[*map(_version_data, versions)], total=total)


def render_version(version: Version) -> str:
    """Render a version on one line: `12  2026-11-21 14:03  [Dream] learned 3 facts (USER.md)`."""
    tag = TAGS[version.author]
    summary = version.summary.removeprefix(tag).strip() or "a change"
    paths = ", ".join(version.paths)
    if len(version.paths) > _PATHS_SHOWN:
        paths = pluralize(len(version.paths), "file")
    when = format_minute(version.when)
    return f"{version.number}  {when}  {tag} {shorten(summary, 160)} ({paths})"


def _version_data(version: Version) -> dict[str, object]:
    return {
        "version": version.number,
        "commit": version.commit,
        "when": version.when,
        "author": version.author,
        "summary": version.summary,
        "paths": version.paths,
        "session": version.change.session,
        "turn": version.change.turn,
        "history": version.change.cursors,
    }


def sync_report(remote: str, result: SyncResult) -> Report:
    news = "no other device has synced yet"
    if result.devices:
        count = len(result.numbers) + sum(map(len, result.others.values()))
        changes = pluralize(count, "change") if count else "nothing new"
        news = f"{changes} from {pluralize(len(result.devices), 'other device')}"
    lines = [f"Memory is in sync with {shorten(remote, 200)}: {news}."]
    if result.conflicts:
        lines.append("Both versions of these lines were kept. Check them:")
        lines += [f"- {shorten(conflict, _LINE)}" for conflict in result.conflicts]
    return Report.of(
        "\n".join(lines),
        versions=result.numbers,
        others=result.others,
        devices=result.devices,
        conflicts=result.conflicts,
    )


def restore_report(number: int, made: int, conflicts: Sequence[str], *, to: bool) -> Report:
    """Render the result of undoing change `number`, or of restoring `to` that version, with its
    conflicts. `made` is the resulting version, 0 for none."""
    lines = []
    if to:
        done = "Restored all files to" if made else "All files already match"
        lines.append(f"{done} version {number}.")
    elif made:
        lines.append(f"Undid change {number}.")
    elif not conflicts:
        lines.append(f"Nothing from change {number} is left to undo.")
    if made:
        lines[0] += f" To undo this: `/dream-restore --version {made}`."
    if conflicts:
        lines.append("Kept because they have changed since:")
        lines += [f"- {conflict}" for conflict in conflicts]
    data = {"to" if to else "undone": number, "versions": [made] if made else []}
    return Report.of("\n".join(lines), **data, conflicts=conflicts)


def pending_report(facts: Sequence[PendingFact]) -> Report:
    lines = ["No pending facts."]
    if facts:
        lines = [
            "These facts need your approval:",
            "",
            *(
                f"- {one.number}: {escape_invisible(one.description)}"
                f" [from {', '.join(map(source_name, one.origins))}, {one.day}]"
                for one in facts
            ),
            "",
            "To remember a fact, send `/memory accept N`. To drop it, send `/memory drop N`.",
        ]
    return Report.of("\n".join(lines), pending=[*map(_fact_data, facts)])


def decision_report(done: str, facts: Sequence[PendingFact], left: int) -> Report:
    """Render the decision on pending facts. `left` counts the remaining ones."""
    lines = [
        f"{done}:",
        *(f"- {shorten(escape_invisible(fact.description), _LINE)}" for fact in facts),
    ]
    if not facts:
        lines = ["This fact is not pending. To list pending facts, send `/memory pending`."]
    if left:
        lines.append(f"To review {pluralize(left, 'more pending fact')}, send `/memory pending`.")
    return Report.of("\n".join(lines), facts=[*map(_fact_data, facts)], left=left)


def _fact_data(fact: PendingFact) -> dict[str, object]:
    return {**msgspec.to_builtins(fact), "code": fact.code}


def select_for_notice(facts: Sequence[PendingFact]) -> Sequence[PendingFact]:
    """Return the facts that fit one notice as a whole: at most eight, in 3,000 characters."""
    sizes = accumulate(len(fact.description) for fact in facts)
    return [fact for fact, size in zip(facts, sizes, strict=True) if size <= _HELD_SIZE][:_HELD]


def pending_notice(facts: Sequence[PendingFact]) -> str:
    """Render new pending facts for their person, in a fence."""
    shown = select_for_notice(facts)
    text = "\n".join(f"{fact.number}: {escape_invisible(fact.description)}" for fact in shown)
    # Longer than any fence in the text, so that no text by others passes for a part of ours.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    more = len(facts) - len(shown)
    asked = "Remember this" if all(fact.line for fact in facts) else "Make this change to memory"
    origins = dict.fromkeys(origin for fact in facts for origin in fact.origins)
    named = shorten(", ".join(map(source_name, origins)), _NEIGHBOUR)
    why = f"I worded it after reading untrusted content (from {named}), so I need your approval."
    if {*origins} == {BY_NANOBOT}:
        why = "I'm not sure that you meant this, or it would remove too much at once."
    lines = [f"**{asked}?**\n{fence}\n{text}\n{fence}", why]
    if len(facts) > 1:
        lines.append("To decide one by one, send `/memory accept N` or `/memory drop N`.")
    if more:
        lines.append(f"To review {pluralize(more, 'more pending fact')}, send `/memory pending`.")
    return "\n".join(lines)


def loss_notice(loss: Loss) -> str:
    shown = [f"- {escape_invisible(without_list_mark(one))}" for one in loss.facts[:_MOST_LOST]]
    count, more = pluralize(len(loss.facts), "fact"), len(loss.facts) - len(shown)
    since = "" if loss.within_a_day <= len(loss.facts) else " ({} since yesterday)"
    lines = [
        f"{count} removed from {loss.path}{since.format(loss.within_a_day)}:",
        *shown,
        *([f"- … and {more} more"] if more else []),
        f"Not right? Undo it with `/dream-restore --version {loss.number}`.",
    ]
    return "\n".join(lines)


def index_text(stats: IndexStats) -> str:
    vectors = f", {stats.vectors:,} with vectors" if stats.vectors else ""
    vectors += f" (paused: {stats.trouble})" if stats.trouble else ""
    return (
        f"{pluralize(stats.messages, 'message')}, "
        f"{pluralize(stats.history, 'history entry', 'history entries')}, "
        f"{pluralize(stats.notes, 'note')}, {pluralize(stats.facts, 'fact')}, "
        f"{pluralize(stats.library, 'library passage')}{vectors}"
    )


def usage_text(rows: Iterable[tuple[str, UsageTotals]], learning: UsageTotals | None = None) -> str:
    """Render tokens by period, aligned. `learning` is the usage of memory itself this month."""
    named = [(name, usage, "turn") for name, usage in rows]
    if learning is not None:
        named.append(("  plus memory", learning, "call"))
    return "Tokens used:\n\n" + indent(
        f"{name:<18} {usage.prompt:>11,} in ({usage.cached:,} cached)  {usage.completion:>9,} out"
        f"  {pluralize(usage.turns, unit)}"
        for name, usage, unit in named
    )


def format_minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def indent(lines: Iterable[str]) -> str:
    """Indent lines, so that Markdown keeps them as they are."""
    return "\n".join(f"    {line}".rstrip() for line in lines)
