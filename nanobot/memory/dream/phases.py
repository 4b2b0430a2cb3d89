"""What the model is asked in the two phases of Dream, and what its answers may change. Pure.

Phase 1 extracts. The model sees the files with the age of each line, and entries numbered from 0.
A model that read a web page may say what the page told it to, and may say that it comes from an
entry which never saw that page. So where any of the entries that it was asked about was touched by
foreign content, whatever it words itself is held back until the owner confirms it (`classify`).
What it quotes, a line that the person wrote, code copies whole, and that goes in as it stands.

Phase 2 integrates: exact edits of one file. What an edit may do follows from the updates, not from
the model: a line goes only where an update says so or a new fact takes its place, and then to the
retired ones; a line is added or reworded only in the words of an update. Small changes of form are
free; a number, a link, the name of a file or an address is not. So a model that obeys an attacker
can lose nothing and add nothing. An update whose edit may not be made goes in as phase 1 worded it.

An update is an `Operation` whose `new` is the fact without a list mark, and whose `old` is the line
that is over or replaced, as it stands in the file; an edit is one as the model gave it. Nothing
that a model answers is trusted to have the right shape: what cannot be read is left out, and an
answer without any of the known keys is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ToolError
from nanobot.memory.analysis import languages_of
from nanobot.memory.answers import json_object
from nanobot.memory.cleaning import clean_line
from nanobot.memory.documents import LONG_TERM, PERSONAL
from nanobot.memory.dream.reading import DreamEntry
from nanobot.memory.dream.state import Hold, Write
from nanobot.memory.guard import (
    fact_lines,
    find_line,
    lost_facts,
    with_words,
    without_bullet,
)
from nanobot.memory.importance import (
    HIGHEST,
    USUAL,
    Importance,
    importance_mark,
    with_mark,
    without_importance,
)
from nanobot.memory.lines import Operation, find_heading, is_heading, lines_of
from nanobot.memory.similarity import most_similar, share, similar, words
from nanobot.memory.statements import Known, is_part_of, still_says
from nanobot.memory.taint import quotation
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import ToolSpec

PERSON, MANNER = PERSONAL

_AGE_MARK = re.compile(r"\s*←\s*(?:\d+\s*d(?:, importance \d)?|importance \d)\s*$")
_LONGEST_FACT, _LONGEST_TEXT = 500, 4_000
"""Characters of a fact, which is a sentence, and of a text that may be one."""
_MOST_ITEMS = 200
"""Of one list of an answer."""
_LONGEST_HEADING = 40
_MOST_RATED = 20
"""Lines of files whose importance one answer says."""
_KEPT = 0.6
"""An edit states an update if it has this share of its words."""

_FILES = {
    "user_updates": PERSON,
    "memory_updates": LONG_TERM,
    "soul_updates": MANNER,
    "contradictions": LONG_TERM,
    "obsolete": LONG_TERM,
    "importance": LONG_TERM,
}
"""The lists of an answer, each with the file of a fact that takes the place of none."""


_TEXT, _COUNT = {"type": "string"}, {"type": "integer"}
_ITEM = {
    "type": "object",
    "properties": {
        "text": _TEXT,
        "replaces": _TEXT,
        "quote": _TEXT,
        "importance": _COUNT,
        "why": _TEXT,
        "entry": _COUNT,
    },
}
_LISTS = {key: {"type": "array", "items": _ITEM} for key in _FILES}
EXTRACTION = ToolSpec(
    "extracted",
    "What phase 1 found.",
    {
        "type": "object",
        "properties": {**_LISTS, "processed_entries": {"type": "array", "items": _COUNT}},
        "required": [*_LISTS, "processed_entries"],
    },
)
_EDIT = {
    "type": "object",
    "properties": {"old": _TEXT, "new": _TEXT, "section": _TEXT},
    "required": ["old", "new", "section"],
}
EDITS = ToolSpec(
    "edits",
    "The edits of phase 2.",
    {
        "type": "object",
        "properties": {"edits": {"type": "array", "items": _EDIT}},
        "required": ["edits"],
    },
)


class FactCandidate(Struct, frozen=True):
    """Something that phase 1 found.

    `new` is the fact, empty for a line that is only over; `old` the line that is over or that the
    fact replaces, in the model's words; `path` the file of a fact that replaces none. `entry` is
    the number the model gave, None where it gave none that exists. `quote` are words of a line of
    the person's that says it.
    """

    new: str
    old: str = ""
    path: str = LONG_TERM
    entry: int | None = None
    quote: str = ""
    importance: Importance | None = None

    @property
    def only_rates(self) -> bool:
        """Whether it says only how important the line `old` is."""
        return self.new == self.old

    @property
    def mark(self) -> str:
        """What stands behind the line; nothing for what is usual."""
        found = self.importance
        return found.mark if found and found.level != USUAL else ""


class ShownFile(Struct, frozen=True):
    """A file as phase 1 sees it: its text, and of its lines the age in days and the importance."""

    text: str
    ages: Mapping[str, int] = {}
    levels: Mapping[str, int] = {}


def extraction_request(files: Mapping[str, ShownFile], entries: Sequence[DreamEntry]) -> str:
    """The message that shows `files` by path, and the batch."""
    parts = ["## Current files"]
    parts += [f"### {path}\n\n{with_ages(file) or '(empty)'}" for path, file in files.items()]
    parts.append("## New entries")
    parts += [entry.shown(number) for number, entry in enumerate(entries)]
    return "\n\n".join(parts)


def with_ages(file: ShownFile) -> str:
    """The text with the age in days behind each line that has one, and the importance."""
    lines = []
    for line in file.text.strip().splitlines():
        key = line.strip()
        marks = [f"{file.ages[key]} d"] if key in file.ages else []
        marks += [f"importance {file.levels[key]}"] if key in file.levels else []
        lines.append(f"{line}  ← {', '.join(marks)}" if marks else line)
    return "\n".join(lines)


def read_extraction(answer: str, count: int) -> tuple[list[FactCandidate], frozenset[int]] | None:
    """What the model found in `count` entries, and the numbers of those that it read through; None
    where its answer is none."""
    found = json_object(answer, {*_FILES, "processed_entries"})
    if found is None:
        return None
    collected = [item for key in _FILES for item in _items(key, found.get(key), count)]
    listed = found.get("processed_entries")
    # Not said: an answer to a question about all of them is about all of them.
    read = [_number(one, count) for one in listed] if isinstance(listed, list) else range(count)
    return collected, frozenset(number for number in read if number is not None)


def _items(key: str, value: object, count: int) -> Iterator[FactCandidate]:
    listed = items(value) if isinstance(value, list) else [value]
    for raw in listed[: _MOST_RATED if key == "importance" else _MOST_ITEMS]:
        fields = {"text": raw} if isinstance(raw, str) else mapping(raw)
        quote, entry = bare_line(fields.get("quote")), _number(fields.get("entry"), count)
        text = without_bullet(bare_line(fields.get("text")) or quote)
        if not text.strip("#-*_ "):
            continue
        if key == "obsolete":
            yield FactCandidate("", text, entry=entry)
            continue
        importance = _importance(fields)
        if key == "importance":
            yield FactCandidate(text, text, importance=importance)
            continue
        replaced = fields.get("replaces") if key == "contradictions" else ""
        yield FactCandidate(text, bare_line(replaced), _FILES[key], entry, quote, importance)


def _importance(fields: Mapping[str, object]) -> Importance | None:
    level = _number(fields.get("importance"), HIGHEST + 1)
    return Importance.of(level, clean_line(string(fields.get("why")))) if level else None


def bare_line(value: object) -> str:
    """A text as one line without an age mark, of bounded length; empty for what is no text."""
    line = without_importance(clean_line(string(value)[:_LONGEST_TEXT]))
    return _AGE_MARK.sub("", line)[:_LONGEST_FACT].rstrip()


def _number(value: object, count: int) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:9])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < count else None


_TOKEN = re.compile(r"[^\s,;!?()\[\]<>\"'`*]+")
_DATA = re.compile(r"[\w-][@/\\:.=#]+\w|^[@/#~]\w|\d")


def data_tokens(line: str) -> frozenset[str]:
    """What must be copied and cannot be reworded: numbers, links, paths, addresses, handles."""
    tokens = (token.strip(".:-").casefold() for token in _TOKEN.findall(line))
    return frozenset(token for token in tokens if _DATA.search(token))


def is_supported(line: str, *sources: str) -> bool:
    """Whether `line` says nothing beyond `sources`: no data and no content word is new."""
    said = "\n".join(sources)
    if not data_tokens(line) <= data_tokens(said):
        return False
    known = words(said)
    return all(any(similar(word, other) for other in known) for word in words(line))


class Update(Struct, frozen=True):
    """A change of the file at `path`. One with `origins` waits for the owner, one that is
    `verbatim` goes in as it is, any other is for phase 2."""

    path: str
    step: Operation
    origins: tuple[str, ...] = ()
    verbatim: bool = False


def classify(
    wanted: Iterable[FactCandidate],
    entries: Sequence[DreamEntry],
    files: Mapping[str, str],
    *,
    owner: bool,
) -> Iterator[Update]:
    """What becomes of the candidates of one question about `entries`.

    `files` are the texts that the model was shown. How the agent behaves is the owner's to say;
    another person's wish about it is a fact about them.
    """
    tainted = any(entry.origins for entry in entries)
    for item in wanted:
        entry = _behind(item, entries)
        if tainted:
            yield from _from_tainted(item, entry, files, owner=owner)
        elif item.only_rates:
            yield from _rated(item, files)
        else:
            path, old, new = _located(item, files, owner=owner)
            marked = with_mark(new, item.mark) if new and path != MANNER else new
            if old or new:
                yield Update(path, Operation(old, marked, "", entry.cursor, entry.note))


def _from_tainted(
    item: FactCandidate, entry: DreamEntry, files: Mapping[str, str], *, owner: bool
) -> Iterator[Update]:
    """The person's own line that a candidate quotes; without one the candidate waits."""
    if item.only_rates:
        return
    if line := _quoted(item, entry):
        if not any(find_line(line, text) for text in files.values()):
            step = Operation("", f"- {line}", "", entry.cursor, entry.note)
            yield Update(item.path, step, verbatim=True)
        return
    path, old, new = _located(item, files, owner=owner)
    if old or new:
        waiting = Operation(old, f"- {new}" if new else "", "", entry.cursor, entry.note)
        yield Update(path, waiting, entry.origins or ("unknown",))


def _rated(item: FactCandidate, files: Mapping[str, str]) -> Iterator[Update]:
    """How important a line is that stands in a file of facts; that of a line which says so already
    does not change."""
    for path in (LONG_TERM, PERSON):
        if item.mark and (line := find_line(item.old, files.get(path, ""))):
            yield Update(path, Operation(line, with_mark(line, item.mark)), verbatim=True)


def holds_in(updates: Iterable[Update]) -> Iterator[Hold]:
    """Those that wait for the owner, by file and origins."""
    held: dict[tuple[str, tuple[str, ...]], list[Operation]] = {}
    for update in updates:
        if update.origins:
            held.setdefault((update.path, update.origins), []).append(update.step)
    for (path, origins), steps in held.items():
        yield Hold(path, tuple(steps), origins)


def _behind(item: FactCandidate, entries: Sequence[DreamEntry]) -> DreamEntry:
    """The entry that an item comes from: the one named, else the one that shares most with it."""
    if item.entry is not None and item.entry < len(entries):
        return entries[item.entry]
    return max(entries, key=lambda entry: share(words(item.new or item.old), entry.text))


def _quoted(item: FactCandidate, entry: DreamEntry) -> str:
    """The line of the person's that a new fact quotes, empty where it quotes none. How the agent
    behaves is not decided by what was said once."""
    if item.old or item.path == MANNER or not item.quote:
        return ""
    try:
        return quotation(item.quote, entry.said, entry.said_at.date())
    except ToolError:
        return ""


def _located(item: FactCandidate, files: Mapping[str, str], *, owner: bool) -> tuple[str, str, str]:
    """The file that an item changes, the line of it that goes, and the new fact; without either
    there is nothing to do."""
    path, old = _found(item.old, files)
    if not old:
        path = PERSON if item.path == MANNER and not owner else item.path
        stands = any(find_line(item.new, text) for text in files.values())
        return path, "", "" if stands else item.new
    if item.new and (same := find_line(item.new, files[path])):
        return path, "" if same == old else old, ""
    return path, old, item.new


def _found(line: str, files: Mapping[str, str]) -> tuple[str, str]:
    """The path and the fact, as it stands there, that is `line`, or is most like it."""
    if not line:
        return "", ""
    for path, text in files.items():
        if found := find_line(line, text):
            return path, found
    lines = {fact: path for path, text in files.items() for fact, _ in lines_of(text)}
    facts = {fact: path for fact, path in lines.items() if fact_lines(fact)}
    near = most_similar(line, facts, 0.8)
    return facts.get(near, ""), near


def integration_request(path: str, text: str, updates: Sequence[Operation]) -> str:
    """The message that shows the file and what is new."""
    numbered = "\n".join(f"[{number}] {_shown(update)}" for number, update in enumerate(updates))
    file = text.strip() or "(empty)"
    return f"## File: {path}\n\n## Current text\n\n{file}\n\n## Updates\n\n{numbered}"


def _shown(update: Operation) -> str:
    old, new = update.old.strip(), without_importance(update.new)
    if not new:
        return f"obsolete: {old}"
    return f"replace: {new} (instead of: {old})" if old else f"add: {new}"


def read_edits(answer: str) -> list[Operation] | None:
    """The edits of an answer; None where it is none."""
    whole = f'{{"edits": {answer.strip()}}}'
    found = json_object(answer, {"edits"}) or json_object(whole, {"edits"})
    if found is None:
        return None
    edits = []
    for raw in items(found.get("edits"))[:_MOST_ITEMS]:
        old, new, section = (bare_line(mapping(raw).get(key)) for key in ("old", "new", "section"))
        if old or new:
            edits.append(Operation(old, new, section))
    return edits


def integrate(
    path: str, text: str, updates: Sequence[Operation], edits: Sequence[Operation] | None
) -> Write:
    """What the edits of the file `text` come to. An update that no edit states goes in as it is; so
    do all without `edits`. A line that an update says is over goes.
    """
    sections = dict(lines_of(text))
    known = Known(() if edits is None else fact_lines(text), languages_of([text]))
    made, retired, changed = dict[Operation, None](), list[str](), set[str]()
    for update in updates:
        old, step = update.old, _step_of(update, edits or (), text, changed)
        if not step.old and known.has(without_importance(update.new)):
            continue
        if step.new:
            made[step] = None
            changed |= {step.old} - {""}
        if old not in retired and _loses(old, step):
            retired.append(old)
            if step.old != old:
                made[replace(update, new="", section=sections.get(old, ""))] = None
    return Write(path, tuple(made), tuple(retired))


def _step_of(
    update: Operation, edits: Sequence[Operation], text: str, changed: set[str]
) -> Operation:
    """The change of `text` that puts an update in, by the first edit that may be made and whose
    line is not `changed` yet; empty if there is nothing to put in."""
    if not update.new:
        return Operation()
    bare = replace(update, new=without_importance(update.new))
    fitting = (_fitting(edit, bare, text) for edit in edits)
    step = next((one for one in fitting if one and one.old not in changed), None)
    if step is None:
        step = _added(bare.new, dict(lines_of(text)).get(bare.old, ""), bare)
    if not step.old and find_line(step.new, text):
        return Operation()
    return replace(step, new=f"{step.new}{importance_mark(update.new)}")


def _fitting(edit: Operation, update: Operation, text: str) -> Operation | None:
    """The change of `text` that an edit makes, if it states the update and nothing beyond it, and
    keeps what the line says that it joins."""
    old = find_line(edit.old, text)
    if not _states(edit, update, old) or (edit.old and not old):
        return None
    if not old:
        return _added(edit.new, _section(edit.section, text), update)
    new = with_words(old, edit.new)
    joins = is_part_of(old, edit.new) and still_says(edit.new, old) and not lost_facts(old, new)
    if update.old != old and not joins:
        return None
    return replace(update, old=old, new=new, section=dict(lines_of(text))[old])


def _added(line: str, section: str, update: Operation) -> Operation:
    item = line if line != without_bullet(line) else f"- {line}"
    return replace(update, old="", new=item, section=section)


def _states(edit: Operation, update: Operation, old: str) -> bool:
    """Whether an edit states the update, and nothing beyond it and the line `old`."""
    return (
        not is_heading(edit.new)
        and share(words(update.new), edit.new) >= _KEPT
        and still_says(edit.new, update.new)
        and is_supported(edit.new, old, update.new)
    )


def _loses(old: str, step: Operation) -> bool:
    """Whether a line is retired: the step leaves it out, or says less in its place."""
    keeps = step.old == old and data_tokens(old) <= data_tokens(step.new)
    return bool(old) and not (keeps and share(words(old), step.new) >= 1.0)


def _section(wanted: str, text: str) -> str:
    """The heading that is meant, or the new one; empty for none."""
    is_new = is_heading(wanted) and len(wanted) <= _LONGEST_HEADING
    return find_heading(wanted, text) or (wanted if is_new else "")
