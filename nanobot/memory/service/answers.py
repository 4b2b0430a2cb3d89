"""The answers of `MemoryService`: each a text for people and the same as JSON for machines. Pure.

Times in JSON are ISO 8601 with their offset; a field that has nothing to say is empty, not absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nanobot.memory.documents import LONG_TERM
from nanobot.memory.dream.state import DreamReport
from nanobot.memory.search import Hit, IndexStats, Passage, Query, SearchResult
from nanobot.memory.search.tool import Retired
from nanobot.memory.service import views
from nanobot.memory.service.views import Overview
from nanobot.memory.store.pending import PendingFact
from nanobot.memory.versions.version import SyncResult, Version
from nanobot.session.records import JsonValue


@dataclass(frozen=True, slots=True)
class Report:
    """What an operation found or did: `text` for people (see `views`), `data` for machines."""

    text: str
    data: dict[str, JsonValue] = field(default_factory=dict)


def of_overview(view: Overview) -> Report:
    """What a scope holds."""
    files: list[JsonValue] = [
        {
            "path": file.path,
            "lines": list(file.lines),
            "facts": file.facts,
            "tokens": file.tokens,
            "changed": file.changed.isoformat() if file.changed else "",
            "author": file.author,
        }
        for file in view.files
    ]
    data: dict[str, JsonValue] = {
        "scope": view.scope,
        "facts": [line for file in view.files if file.path == LONG_TERM for line in file.lines],
        "files": files,
        "history": {"entries": view.entries, "unread": view.unread},
        "notes": view.notes,
        "retired": view.retired,
        "pending": view.pending,
        "latest_version": view.latest_version,
        "index": _stats(view.index),
        "scopes": list(view.others),
        "trouble": view.trouble,
    }
    return Report(views.overview_text(view), data)


def of_search(query: Query, result: SearchResult, retired: Sequence[Retired]) -> Report:
    """What was found, best first."""
    data: dict[str, JsonValue] = {
        "hits": [_hit(hit) for hit in result.hits],
        "terms": list(result.terms),
        "near": list(result.near),
        "retired": [{"day": str(day), "line": line} for day, line in retired],
    }
    return Report(views.search_text(query, result, retired), data)


def of_version(version: Version, diff: str) -> Report:
    """One change with its lines."""
    return Report(views.version_text(version, diff), {**_version(version), "diff": diff})


def of_versions(versions: Sequence[Version]) -> Report:
    """The latest changes."""
    return Report(views.versions_text(versions), {"versions": [_version(v) for v in versions]})


def of_restore(number: int, made: int, conflicts: Sequence[str]) -> Report:
    """What undoing a change did; `made` is the version that it became, 0 for none."""
    data: dict[str, JsonValue] = {
        "undone": number,
        "versions": [made] if made else [],
        "conflicts": list(conflicts),
    }
    return Report(views.restored_text(number, made, conflicts), data)


def of_restore_to(number: int, made: int) -> Report:
    """What going back to a version did."""
    return Report(
        views.restored_to_text(number, made), {"to": number, "versions": [made] if made else []}
    )


def of_pending(facts: Sequence[PendingFact]) -> Report:
    """The facts that wait."""
    return Report(views.pending_text(facts), {"pending": [_fact(fact) for fact in facts]})


def of_decision(done: str, facts: Sequence[PendingFact], left: int) -> Report:
    """What became of facts that waited; `left` wait still."""
    data: dict[str, JsonValue] = {"facts": [_fact(fact) for fact in facts], "left": left}
    return Report(views.decision_text(done, facts, left), data)


def of_dream(report: DreamReport) -> Report:
    """What a Dream came to."""
    data: dict[str, JsonValue] = {
        "scope": report.scope,
        "entries": report.entries,
        "learned": list(report.learned),
        "retired": list(report.retired),
        "held_back": list(report.held_back),
        "refused": list(report.refused),
        "versions": list(report.versions),
        "problem": report.problem,
    }
    return Report(report.digest, data)


def of_forgetting(text: str, fields: Mapping[str, JsonValue], *, found: bool) -> Report:
    """What would be forgotten, or was; `found` says whether there was anything."""
    return Report(text, {"found": found, **fields})


def of_index(stats: IndexStats) -> Report:
    """What is searchable."""
    return Report(f"The index is made anew: {views.index_text(stats)}.", _stats(stats))


def of_sync(remote: str, result: SyncResult) -> Report:
    """What a sync brought."""
    data: dict[str, JsonValue] = {
        "versions": list(result.numbers),
        "devices": list(result.devices),
        "conflicts": list(result.conflicts),
    }
    return Report(views.sync_text(remote, result), data)


def _version(version: Version) -> dict[str, JsonValue]:
    return {
        "version": version.number,
        "commit": version.commit,
        "when": version.when.isoformat(),
        "author": version.author,
        "summary": version.summary,
        "paths": list(version.paths),
        "session": version.change.session,
        "turn": version.change.turn,
        "history": list(version.change.cursors),
    }


def _hit(hit: Hit) -> JsonValue:
    return {
        **_passage(hit.passage),
        "score": round(hit.score, 4),
        "before": [_passage(passage) for passage in hit.before],
        "after": [_passage(passage) for passage in hit.after],
    }


def _passage(passage: Passage) -> dict[str, JsonValue]:
    return {
        "id": passage.id,
        "source": passage.source,
        "scope": passage.scope,
        "session": passage.session,
        "seq": passage.seq,
        "role": passage.role,
        "speaker": passage.speaker,
        "when": passage.when.isoformat() if passage.when else "",
        "text": passage.text,
        "origin": passage.origin,
        "place": passage.place,
    }


def _fact(fact: PendingFact) -> dict[str, JsonValue]:
    return {
        "number": fact.number,
        "day": fact.day.isoformat(),
        "from": list(fact.origins),
        "path": fact.path,
        "line": fact.line,
        "replaces": fact.old,
    }


def _stats(stats: IndexStats) -> dict[str, JsonValue]:
    return {
        "messages": stats.messages,
        "history": stats.history,
        "notes": stats.notes,
        "library": stats.library,
        "facts": stats.facts,
        "vectors": stats.vectors,
    }
