"""Consolidation and Dream without a language model: an extract of the person's statements.

Requests are recognised by their instructions, and answered in the requested form. Only the person's
own statements can become facts, never texts of tools and others. Nothing is invented, and facts
that a file already contains are not repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate, chain, zip_longest
from typing import NamedTuple

from nanobot.providers.offline.language import (
    ENOUGH,
    facts_to_remember,
    is_lasting,
    is_own_fact,
    is_personal,
    is_question,
    key_of,
    plain,
    section_of,
    sentences,
    share,
    stands_out,
    subject,
    terms,
    third_person,
)

SAVE_MEMORY = "save_memory"
SECTIONS = ("## User Information", "## Preferences", "## Project Context", "## Important Notes")
MEMORY = "memory/MEMORY.md"

_ALIASES = (
    ("user", "basics", "about", "personal", "用户", "个人", "基本"),
    ("preference", "interest", "likes", "偏好", "兴趣"),
    ("project", "work", "项目", "工作"),
    ("note", "important", "misc", "备注", "重要"),
)
_SPOKEN = re.compile(
    r"^\[?(?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\?)[^\]\s]{0,20}\]?\s+(?P<who>USER|ASSISTANT|TOOL)"
    r"(?:\s*\[tools:(?P<tools>[^\]\n]{0,400})\])?:[ ]?",
    re.MULTILINE,
)
_PLACEHOLDER = re.compile(r"\s*(?:[-*]\s+)?[*_]{0,2}[(（].*[)）][*_]{0,2}\s*$|\s*<!--.*-->\s*$")
_NO_FACT = re.compile(r"\s*(?:#|-{3,}\s*$|\*{3,}\s*$|\*[^*].*\*\s*$|\[cut here|$)")
_SPEAKER = re.compile(
    r"(?:\[(?:(?P<others>said by another|forwarded|untrusted content)|what stands in brackets)"
    r"[^\]\n]*\]\s*)?(?P<kept>\[marked to keep\]\s*)?(?:\[from (?P<name>[^\]\n]+)\]\s*)?"
)
_MOST_FACTS, _MOST_SENTENCES, _MOST_LINES, _READ = 40, 4, 20, 8_000
_LONGEST, _KEPT, _LONGEST_ENTRY = 220, 400, 4_000
"""Characters of a quotation, of a statement to remember, and of all of these in an entry."""

_FILE = re.compile(r"^### (?:memory/MEMORY\.md|USER\.md|SOUL\.md)[ \t]*$", re.MULTILINE)
_AGE = re.compile(r"(?m)[ \t]*←\s*(?:\d+\s*d)?(?:, )?(?:importance \d)?[ \t]*$")
_ENTRY = re.compile(
    r"^\[(?P<number>\d{1,6})\] (?:\[\d{4}-\d\d-\d\d[^\]\n]{0,30}\] ?)?(?P<head>[^\n]*)$",
    re.MULTILINE,
)
_FOREIGN = re.compile(r"[(\[](?:from|origin:?) [^)\]\n]{1,300}[)\]]|^from \S+", re.IGNORECASE)
_SAID = re.compile(r"The user said(?: on [\d-]{10})?: “([^”\n]{3,400})”|用户说：“([^”\n]{2,400})”")
_QUOTED_LINE = re.compile(
    r"(?:\[[^\]\n]{1,40}\] ?)?USER(?: [\[(][^\])\n]{0,200}[\])])?: (?P<text>\S.*)$"
)
_UPDATE = re.compile(
    r"^[ \t]*(?:\[\d+\]|\d+[.)]|[-*])[ \t]+(?P<kind>add|replace): (?P<text>.*)$", re.MULTILINE
)
_INSTEAD = " (instead of: "
_MINUTE, _DAYS = re.compile(r"^\d\d:\d\d "), re.compile(r" \((?:\d\d-\d\d(?:, )?)+\)$")
"""Before a note, and after a line of a digest."""
_DAY = re.compile(r"^### \d{4}-\d\d-(?P<day>\d\d)$", re.MULTILINE)


def fact_lines(markdown: str) -> list[str]:
    """Return the lines of a memory file that are facts: no headings, placeholders, rules or
    footers."""
    lines = markdown.splitlines()
    return [line for line in lines if not _NO_FACT.match(line) and not _PLACEHOLDER.match(line)]


def rival_of(fact: str, lines: Iterable[str]) -> str:
    """Return the line that `fact` replaces because both have the same subject, or an empty text."""
    about = subject(fact)
    return next((line for line in lines if about and subject(line) == about), "")


def heading_for(fact: str, text: str) -> str:
    """Return the heading in `text` for a new fact, or the usual one if it is missing."""
    kind = section_of(fact)
    headings = [line.strip() for line in text.splitlines() if line.startswith("##")]
    fitting = (one for word in _ALIASES[kind] for one in headings if word in one.lower())
    return next(fitting, SECTIONS[kind])


def split_at(marks: list[re.Match[str]], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each mark with the text up to the next one."""
    for mark, following in zip_longest(marks, marks[1:]):
        yield mark, text[mark.end() : following.start() if following else len(text)]


def consolidate(request: str, now: datetime) -> dict[str, object]:
    """Return the arguments of `save_memory`: `history_entry`, `memory_update`, `key_facts`."""
    _, _, after = request.partition("## Current Long-term Memory")
    current, _, conversation = after.partition("\n## Conversation to Process")
    memory = current.strip("\n")
    empty = memory.strip() in ("", "(empty)")
    marks = list(_SPOKEN.finditer(conversation))
    spoken = ((mark, text.strip()) for mark, text in split_at(marks, conversation))
    said = [_parse(mark["when"], text) for mark, text in spoken if mark["who"] == "USER" and text]
    stated = [*dict.fromkeys(third_person(fact) for one in said for fact in one.facts)]
    facts = stated[:_MOST_FACTS]
    updated = add_facts("# Long-term Memory\n" if empty else memory, facts)
    when = next((m["when"] for m in reversed(marks) if m["when"] != "?"), f"{now:%Y-%m-%d %H:%M}")
    used = ", ".join(filter(None, (mark["tools"] for mark in marks)))
    history, left = summarise(said, stated, len(marks), used, when[:10])
    return {
        "history_entry": f"[{when.replace('T', ' ')}] {history}",
        "memory_update": updated or ("" if empty else memory),
        "key_facts": [*dict.fromkeys([*left, *facts])][:_MOST_FACTS],
    }


class _Message(NamedTuple):
    """A message: its author and day, and the facts that it asks to remember."""

    who: str
    day: str
    text: str
    facts: list[str]


def _parse(when: str, text: str) -> _Message:
    mark = _SPEAKER.match(text)
    text = text[mark.end() :] if mark else text
    if mark and mark["others"]:
        return _Message(mark["name"] or "Somebody else", when[:10], text, [])
    facts = facts_to_remember(text[:_READ])
    if mark and mark["kept"]:
        facts = facts or [one for one in sentences(text[:_READ]) if not is_question(one)]
    return _Message("The user", when[:10], text, facts)


def add_facts(memory: str, facts: list[str]) -> str:
    """Return `memory` with missing facts added, or an empty text if it has them all."""
    lines = memory.rstrip("\n").split("\n")
    known = {key_of(line) for line in fact_lines(memory)}
    new = [fact for fact in facts if key_of(fact) not in known]
    for fact in new:
        if old := rival_of(fact, fact_lines("\n".join(lines))):
            lines[lines.index(old)] = f"- {fact}"
            continue
        heading = heading_for(fact, "\n".join(lines))
        if heading not in lines:
            lines += ["", heading]
        at = lines.index(heading) + 1
        end = next((n for n in range(at, len(lines)) if re.match(r"#|---", lines[n])), len(lines))
        body = [li for li in lines[at:end] if li.strip() and not _PLACEHOLDER.match(li)]
        lines[at:end] = ["", *body, f"- {fact}", *([""] if end < len(lines) else [])]
    return "\n".join(lines) + "\n" if new else ""


def summarise(
    said: list[_Message], facts: list[str], count: int, tools: str, day: str
) -> tuple[str, list[str]]:
    """Summarise in two to five sentences, or more if more is to be remembered or names a day or its
    importance. Also return the statements that did not fit."""
    quoted = dict.fromkeys(chain.from_iterable(quote_parts(one, day) for one in said))
    every = [*(one_line(fact, _KEPT) for fact in facts), *quoted]
    room = sum(size <= _LONGEST_ENTRY for size in accumulate(map(len, every)))
    stated, kept = every[: min(room, len(facts))], every[len(facts) : room]
    chosen = [*filter(None, ["; ".join(stated)]), *kept]
    rest = [one for one in said if not one.facts and not any(quote_parts(one, day))]
    for who, _, text, _ in rest[: max(0, _MOST_SENTENCES - len(chosen))]:
        chosen.append(f"{who} {'asked' if is_question(text) else 'said'}: “{one_line(text)}”")
    if left := every[room:]:
        chosen.append(f"{len(left)} more statements: see the key facts and the messages")
    if tools or len(chosen) < 2:
        used = f"; tools: {one_line(tools)}" if tools else ""
        chosen.append(f"The conversation had {count} messages{used}")
    return " ".join(f"{text}." for text in dict.fromkeys(chosen)), left


def quote_parts(said: _Message, day: str) -> Iterator[str]:
    """Yield the important parts of a message besides its facts."""
    who, on, text, told = said
    spoken = filter(stands_out, sentences(text[:_READ]))
    matters = [one for one in spoken if not (told and facts_to_remember(one))]
    dated = f"{who} said on {on}" if on not in {day, "?"} else f"{who} said"
    parts = [text] if matters and not told and len(text) <= _LONGEST else matters
    yield from (f"{dated}: “{one_line(part, _KEPT)}”" for part in parts)


def one_line(text: str, most: int = _LONGEST) -> str:
    """Return `text` on one line, without sentence ends inside, cut if it is long."""
    line = re.sub(r"[.!?]+\s+(?=\S)", "; ", " ".join(text[: 4 * most].split()))
    line = re.sub(r"[。！？]+(?=.)", "；", line).rstrip(".!?。！？;； ")
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def dream_phase(system: str) -> str:
    """Return the phase of a Dream that these instructions request, or an empty text."""
    match = re.match(r"#\s+Dream, (phase 1|phase 2|digest)\b", system.lstrip())
    return match[1] if match else ""


def dream(phase: str, request: str) -> str:
    """Return the answer to a phase's request as JSON."""
    answers = {"phase 1": _extract, "phase 2": _integrate, "digest": _digest}
    return json.dumps(answers[phase](request), ensure_ascii=False)


def _extract(request: str) -> dict[str, object]:
    """Find the statements of the new entries that no file contains (phase 1)."""
    shown, _, new = request.partition("\n## New entries")
    first = _FILE.search(shown)
    on_file = _AGE.sub("", shown[first.end() :]) if first else ""
    lines = [line.strip() for line in fact_lines(on_file)]
    said = {key_of(line) for line in lines}
    known = {subject(line): line for line in reversed(lines)}  # of two lines the first counts
    kinds = ("user_updates", "memory_updates", "soul_updates", "contradictions", "obsolete")
    found = {kind: list[dict[str, object]]() for kind in kinds}
    entries = dict(read_entries(new))
    for fact, number in keep_newest(entries):
        if key_of(fact) in said:
            continue
        if subject(fact) and (rival := known.pop(subject(fact), "")):
            found["contradictions"].append({"text": fact, "replaces": rival, "entry": number})
        else:
            is_own = is_personal(fact) and section_of(fact) != 2
            file = "user_updates" if is_own else "memory_updates"
            found[file].append({"text": fact, "entry": number})
    return {**found, "processed_entries": list(entries)}


def keep_newest(entries: Mapping[int, list[str]]) -> list[tuple[str, int]]:
    """Return the last fact on each subject, with its entry."""
    newest: dict[object, tuple[str, int]] = {}
    for fact, number in ((one, key) for key, facts in entries.items() for one in facts):
        newest.pop(subject(fact) or fact, None)
        newest[subject(fact) or fact] = (fact, number)
    return list(newest.values())


def read_entries(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbers of the entries, each with its lasting facts."""
    marks: list[re.Match[str]] = []
    for mark in _ENTRY.finditer(text):
        if int(mark["number"]) == len(marks):  # a line in an entry may look like an entry
            marks.append(mark)
    for mark, body in split_at(marks, text):
        stated = () if _FOREIGN.search(mark["head"]) else find_facts(f"{mark['head']}\n{body}")
        yield int(mark["number"]), list(dict.fromkeys(stated))


def find_facts(entry: str) -> Iterator[str]:
    for line in entry.splitlines():
        if spoken := _QUOTED_LINE.match(line.strip()):
            yield from find_spoken(spoken["text"])
        elif bullet := re.match(r"\s*[-*]\s+(\S.*)$", line):
            note = _DAYS.sub("", _MINUTE.sub("", bullet[1], count=1))
            if note.startswith("(from "):  # derived from another person's text
                continue
            if _MINUTE.match(bullet[1]) or re.search(r"\b(?:I|I'm|my|me)\b|我", note):
                yield from find_spoken(note)
            elif not is_question(note) and len(plain(note)) > 2:
                # The same wording as in consolidation, or it would be another fact.
                yield third_person(note) if re.search(r"(?i)\bour\b", note) else note.strip()
    for said in _SAID.finditer(entry):
        yield from find_spoken(said[1] or said[2])


def find_spoken(text: str) -> Iterator[str]:
    remembered = facts_to_remember(text)
    for sentence in remembered or sentences(text):
        if remembered or is_own_fact(sentence) or is_lasting(sentence):
            yield third_person(sentence)


def _integrate(request: str) -> dict[str, object]:
    """Make the edits that put the updates of `request` into its file (phase 2)."""
    current, _, wanted = request.rpartition("\n## Updates")
    current = current.partition("\n## Current text\n")[2] or current
    edits: list[dict[str, str]] = []
    for update in _UPDATE.finditer(wanted):
        text, old = update["text"].strip(), ""
        if update["kind"] == "replace" and _INSTEAD in text:
            text, _, instead = text.removesuffix(")").rpartition(_INSTEAD)
            old = next((li for li in fact_lines(current) if plain(li) == plain(instead)), "")
        text = plain(text)
        if text and key_of(text) not in map(key_of, fact_lines(current)):
            section = "" if old else heading_for(text, current)
            edits.append({"old": old, "new": f"- {text}", "section": section})
    return {"edits": edits}


def _digest(request: str) -> dict[str, object]:
    """Merge similar notes of a month into one line each, most frequent first."""
    days: dict[str, set[int]] = {}
    for mark, body in split_at(list(_DAY.finditer(request)), request):
        for bullet in re.finditer(r"^[-*] (\S.*)$", body, re.MULTILINE):
            note = _MINUTE.sub("", bullet[1]).strip()
            if len(plain(note)) > 2 and not is_question(note):
                alike = (one for one in days if share(terms(note), one) >= ENOUGH)
                days.setdefault(next(alike, note), set()).add(int(mark["day"]))
    often = sorted(days.items(), key=lambda item: -len(item[1]))[:_MOST_LINES]
    return {"lines": [{"text": note, "days": sorted(on)} for note, on in often]}
