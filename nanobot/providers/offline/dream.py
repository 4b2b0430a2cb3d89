"""Dream without a language model: what is worth keeping of the new entries, and where it belongs.

Both phases are recognised by the title of their instructions and answered with the JSON that these
ask for. Extraction takes only what an entry says in so many words: its key facts, what the person
is quoted as having said, what they noted. Nothing is made up, nothing that a file says already is
said again, and a new value for something on file replaces the line with the old one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from nanobot.providers.offline.entries import Entry, entries_of, facts_of
from nanobot.providers.offline.facts import (
    fact_lines,
    is_project,
    overtakes,
    plain,
    same_fact,
    section_of,
    subject,
)
from nanobot.providers.offline.prompt import MEMORY
from nanobot.providers.offline.words import terms

USER, SOUL = "USER.md", "SOUL.md"

_PHASE = re.compile(r"#\s+Dream, phase (?P<number>[12])\b")
_FILE = re.compile(r"^### (memory/MEMORY\.md|USER\.md|SOUL\.md)[ \t]*$", re.MULTILINE)
_AGE = re.compile(r"\s*←\s*\d+\s*d[ \t]*$", re.MULTILINE)
_ABOUT_PERSON = re.compile(r"(?:the\s+)?user\b|用户", re.IGNORECASE)
_MANNER = re.compile(
    r"(?:(?:the\s+)?user\b.{0,24}\b(?:wants?|would like|asks?|asked|prefers?) nanobot\b|"
    r"nanobot (?:should|must|shall)\b|用户.{0,6}(?:希望|想要|要求?|让) ?nanobot|"
    r"nanobot ?(?:应该|必须|要))",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:no|not|never|no longer)\b|n't\b|不|没", re.IGNORECASE)
_UPDATE = re.compile(
    r"^\s*(?:\[\d+\]|\d+[.)]|[-*])\s+(?P<kind>add|replace|obsolete): (?P<text>.*)$", re.MULTILINE
)
_INSTEAD = " (instead of: "
_HEADING = re.compile(r"#{1,6}\s+\S")
# By file and by the kind of a fact (see `SECTIONS`): words of the heading that suits it.
_HEADINGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    USER: (
        ("basics", "about", "personal", "profile", "user information", "基本", "个人"),
        ("preference", "interest", "likes", "偏好", "兴趣", "喜好"),
        ("project", "work", "interest", "项目", "工作"),
        ("note", "basics", "备注", "基本"),
    ),
    SOUL: (("behaviour", "behavior", "manner", "style", "行为", "风格"),) * 4,
    MEMORY: (
        ("user", "about", "profile", "personal", "用户", "个人"),
        ("preference", "likes", "偏好", "喜好"),
        ("project", "work", "项目", "工作"),
        ("note", "important", "misc", "备注", "重要", "其他"),
    ),
}
_NEW_HEADINGS = (
    "## User Information",
    "## Preferences",
    "## Project Context",
    "## Important Notes",
)


def dream_phase(system: str) -> int:
    """Which phase of a Dream these instructions ask for, 0 where they ask for something else."""
    match = _PHASE.match(system.lstrip())
    return int(match["number"]) if match else 0


def dream(phase: int, request: str) -> str:
    """The answer to a phase's request, as JSON."""
    answer = extract(request) if phase == 1 else integrate(request)
    return json.dumps(answer, ensure_ascii=False)


class _Known:
    """The lines on file, found by what they say and by what they are about."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._saying: dict[object, list[str]] = {}
        self._about: dict[frozenset[str], list[str]] = {}
        self._replaced: set[str] = set()
        for line in lines:
            text = _bare(line)
            for key in (plain(text), tuple(terms(text))):
                self._saying.setdefault(key, []).append(text)
            for about in filter(None, {subject(text), subject(_whole(text))}):
                self._about.setdefault(about, []).append(line)

    def says(self, fact: str) -> bool:
        """Whether a line says it."""
        if any(same_fact(text, fact) for text in self._saying.get(plain(fact), ())):
            return True
        words = tuple(terms(fact))
        denied = bool(_NEGATED.search(fact))
        alike = self._saying.get(words, ()) if words else ()
        return any(bool(_NEGATED.search(text)) == denied for text in alike)

    def replaced_by(self, fact: str) -> str:
        """The line that `fact` takes the place of, empty where there is none; each goes once."""
        for line in self._about.get(subject(fact), ()):
            if line not in self._replaced and overtakes(fact, _bare(line)):
                self._replaced.add(line)
                return line
        return ""


def extract(request: str) -> dict[str, object]:
    """Phase 1: the updates that the entries of `request` give."""
    shown, _, new = request.partition("\n## New entries")
    files = _Known(_lines_on_file(shown))
    entries = entries_of(new)
    found: dict[str, list[dict[str, object]]] = {
        key: []
        for key in ("user_updates", "memory_updates", "soul_updates", "contradictions", "obsolete")
    }
    for fact, entry in _newest(entries):
        if files.says(fact):
            continue
        if old := files.replaced_by(fact):
            found["contradictions"].append({"text": fact, "replaces": old, "entry": entry.number})
        else:
            found[_target(fact)].append({"text": fact, "entry": entry.number})
    return {**found, "processed_entries": [entry.number for entry in entries]}


def _newest(entries: list[Entry]) -> list[tuple[str, Entry]]:
    """The facts of all entries; of several about the same thing only the one said last."""
    kept: dict[object, tuple[str, Entry]] = {}
    for entry in entries:
        for fact in facts_of(entry):
            if entry.is_foreign and not (_ABOUT_PERSON.match(fact) and not _MANNER.match(fact)):
                continue
            key = subject(fact) or tuple(terms(fact)) or fact
            kept.pop(key, None)
            kept[key] = (fact, entry)
    return list(kept.values())


def _target(fact: str) -> str:
    if _MANNER.match(fact):
        return "soul_updates"
    return (
        "user_updates" if _ABOUT_PERSON.match(fact) and not is_project(fact) else "memory_updates"
    )


def _lines_on_file(shown: str) -> Iterator[str]:
    """The fact lines of all files as they stand there, ages off."""
    marks = list(_FILE.finditer(shown))
    ends = [*(mark.start() for mark in marks[1:]), len(shown)][: len(marks)]
    for mark, end in zip(marks, ends, strict=True):
        yield from _standing(_AGE.sub("", shown[mark.end() : end]))


def _standing(text: str) -> list[str]:
    """The lines of `text` that are facts, bullets included."""
    return [line.strip() for line in text.splitlines() if fact_lines(line)]


def _bare(line: str) -> str:
    return re.sub(r"^[-*+]\s+", "", line.strip())


def _whole(line: str) -> str:
    """ "Lives in Porto" as a line about the person usually is written: without its subject."""
    if _ABOUT_PERSON.match(line) or not re.match(r"[A-Z][a-z]+s\b", line):
        return line
    return f"The user {line[0].lower()}{line[1:]}"


def integrate(request: str) -> dict[str, object]:
    """Phase 2: the edits that put the updates of `request` into its file."""
    named = re.search(r"^#+\s+File:\s*(\S+)", request, re.MULTILINE)
    path = named[1] if named else MEMORY
    current, _, wanted = request[named.end() if named else 0 :].rpartition("\n## Updates")
    current = current.partition("\n## Current text\n")[2] or current
    lines = current.splitlines()
    known = _Known(_standing(current))
    updates = _UPDATE.finditer(wanted)
    return {"edits": [edit for update in updates for edit in _edits(path, lines, known, update)]}


def _edits(
    path: str, lines: list[str], known: _Known, update: re.Match[str]
) -> Iterator[dict[str, str]]:
    kind, text = update["kind"], update["text"].strip()
    if kind == "obsolete":
        if line := _standing_line(lines, text):
            yield {"old": line, "new": "", "section": ""}
        return
    old = ""
    if kind == "replace" and _INSTEAD in text:
        text, _, instead = text.removesuffix(")").rpartition(_INSTEAD)
        old = _standing_line(lines, instead)
    text = _bare(text)
    if known.says(text):
        return
    section = "" if old else _section(path, lines, text)
    yield {"old": old, "new": f"- {text}", "section": section}


def _standing_line(lines: list[str], wanted: str) -> str:
    """The line of the file that `wanted` names, as it stands there."""
    bare = _bare(wanted)
    return next((line for line in lines if bare and _bare(line) == bare), "")


def _section(path: str, lines: list[str], fact: str) -> str:
    """The heading that suits a fact, of those in the file if there is one."""
    kind = section_of(fact)
    headings = [line.strip() for line in lines if _HEADING.match(line)]
    for word in _HEADINGS.get(path, _HEADINGS[MEMORY])[kind]:
        for heading in headings:
            if heading.startswith("##") and word in heading.lower():
                return heading
    below = [heading for heading in headings if heading.startswith("##")]
    return below[-1] if below and path != MEMORY else _NEW_HEADINGS[kind]
