"""Phase 1 of Dream: the request for facts, and the updates that may follow from its answer. Pure.

The model sees the files with the age of each line, and entries numbered from 0. No shape of its
answer is trusted: unreadable parts are left out, and an answer without any of the known keys is no
answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ToolError
from nanobot.memory.answers import json_object
from nanobot.memory.documents import LONG_TERM, PERSONAL
from nanobot.memory.dream.entries import DreamEntry
from nanobot.memory.dream.state import Hold
from nanobot.memory.evidence import Screen
from nanobot.memory.guard import fact_lines, find_line, without_bullet, without_list_mark
from nanobot.memory.importance import HIGHEST, USUAL, Importance, with_mark, without_importance
from nanobot.memory.line_changes import Operation, lines_of
from nanobot.memory.model_text import Echoes, clean_line
from nanobot.memory.pending import BY_NANOBOT
from nanobot.memory.similarity import most_similar, share, words
from nanobot.memory.support import Talk
from nanobot.memory.taint import quotation
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import ToolSpec

PERSON, MANNER = PERSONAL

_AGE_MARK = re.compile(r"\s*←\s*(?:\d+\s*d(?:, importance \d)?|importance \d)\s*$")
_LONGEST_FACT, _LONGEST_TEXT = 500, 4_000
"""Characters of a fact (a sentence), and of a text that may be one."""
MOST_ITEMS = 200
"""Items of one list of an answer."""
MOST_UPDATES = 100
"""Updates of one answer."""
_MOST_RATED = 20
"""Lines of files that one answer rates."""

_FILES = {
    "user_updates": PERSON,
    "memory_updates": LONG_TERM,
    "soul_updates": MANNER,
    "contradictions": LONG_TERM,
    "obsolete": LONG_TERM,
    "importance": LONG_TERM,
}
"""The lists of an answer, each with the file of a fact that replaces none."""


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


class FactCandidate(Struct, frozen=True):
    """A fact or an outdated line that phase 1 found.

    `new` is the fact, empty for a line that is only over. `old` is the line that is over or
    replaced, in the model's words. `path` is the file of a fact that replaces none. `entry` is the
    model's number, or None if it is invalid. `quote` are words of a line of the person that states
    it."""

    new: str
    old: str = ""
    path: str = LONG_TERM
    entry: int | None = None
    quote: str = ""
    importance: Importance | None = None

    @property
    def only_rates(self) -> bool:
        """True if it only rates the importance of the line `old`."""
        return self.new == self.old

    @property
    def mark(self) -> str:
        """The mark behind the line, empty for the usual importance."""
        found = self.importance
        return found.mark if found and found.level != USUAL else ""


def extraction_request(files: Mapping[str, str], entries: Sequence[DreamEntry]) -> str:
    """Return the message that shows `files` (texts of `with_ages` by path) and the batch."""
    parts = ["## Current files"]
    parts += [f"### {path}\n\n{text or '(empty)'}" for path, text in files.items()]
    parts.append("## New entries")
    parts += [entry.render(number) for number, entry in enumerate(entries)]
    return "\n\n".join(parts)


def with_ages(text: str, ages: Mapping[str, int], levels: Mapping[str, int]) -> str:
    """Append the age in days, and the importance, to each line that has one."""
    lines = []
    for line in text.strip().splitlines():
        key = line.strip()
        marks = [f"{ages[key]} d"] if key in ages else []
        marks += [f"importance {levels[key]}"] if key in levels else []
        lines.append(f"{line}  ← {', '.join(marks)}" if marks else line)
    return "\n".join(lines)


def read_extraction(answer: str, count: int) -> tuple[list[FactCandidate], frozenset[int]] | None:
    """Return the candidates from `count` entries, and the numbers of the processed entries, or None
    if the answer is unreadable."""
    found = json_object(answer, {*_FILES, "processed_entries"})
    if found is None:
        return None
    collected = [item for key in _FILES for item in read_items(key, found.get(key), count)]
    listed = found.get("processed_entries")
    # Without the list, the answer covers all entries of the request.
    read = [_number(one, count) for one in listed] if isinstance(listed, list) else range(count)
    return collected, frozenset(number for number in read if number is not None)


def read_items(key: str, value: object, count: int) -> Iterator[FactCandidate]:
    listed = items(value) if isinstance(value, list) else [value]
    for raw in listed[: _MOST_RATED if key == "importance" else MOST_ITEMS]:
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
    """Return a text as one line without an age mark, of limited length, or ""."""
    line = without_importance(clean_line(string(value)[:_LONGEST_TEXT]))
    return _AGE_MARK.sub("", line)[:_LONGEST_FACT].rstrip()


def _number(value: object, count: int) -> int | None:
    """Parse a number below `count`, also from a text or 1.0."""
    text = str(value).strip().removesuffix(".0")[:9]
    number = int(text) if text.isdecimal() else count
    return number if number < count else None


class Update(Struct, frozen=True):
    """A change of the file at `path`. With `origins` it needs approval, a `verbatim` one is added
    unchanged, and any other goes to phase 2."""

    path: str
    step: Operation
    origins: tuple[str, ...] = ()
    verbatim: bool = False


def classify(
    wanted: Iterable[FactCandidate], entries: Sequence[DreamEntry], files: Mapping[str, str]
) -> Iterator[Update]:
    """Convert the candidates of one request about `entries` to updates of `files`.

    A model that read a web page may repeat its instructions, and may attribute them to an entry
    that never saw that page. So if untrusted content touched any entry in the request, all facts
    that the model words need approval. A line of the person that it quotes is copied by code and
    added verbatim. Only the owner decides how the agent behaves. Without that file, another
    person's wish about it is a fact about them."""
    tainted = any(entry.origins for entry in entries)
    for item in wanted:
        entry = find_entry(item, entries)
        if item.only_rates:
            yield from () if tainted else rate_line(item, files)
        elif tainted:
            yield from classify_tainted(item, entry, files)
        else:
            path, old, new = locate_fact(item, files)
            marked = with_mark(new, item.mark) if new and path != MANNER else new
            if old or new:
                yield Update(path, Operation(old, marked, "", entry.cursor, entry.note))


def classify_tainted(
    item: FactCandidate, entry: DreamEntry, files: Mapping[str, str]
) -> Iterator[Update]:
    """Yield the person's line that a candidate quotes, or else the candidate for approval."""
    if line := find_quoted(item, entry):
        if not any(find_line(line, text) for text in files.values()):
            step = Operation("", f"- {line}", "", entry.cursor, entry.note)
            yield Update(item.path, step, verbatim=True)
        return
    path, old, new = locate_fact(item, files)
    if old or new:
        waiting = Operation(old, f"- {new}" if new else "", "", entry.cursor, entry.note)
        yield Update(path, waiting, entry.origins or ("unknown",))


def rate_line(item: FactCandidate, files: Mapping[str, str]) -> Iterator[Update]:
    """Yield the importance of an existing line of facts, unless it has one."""
    for path in (LONG_TERM, PERSON):
        if item.mark and (line := find_line(item.old, files.get(path, ""))):
            yield Update(path, Operation(line, with_mark(line, item.mark)), verbatim=True)


def holds_in(updates: Iterable[Update]) -> Iterator[Hold]:
    """Yield the updates that need approval, by file and origins."""
    held: dict[tuple[str, tuple[str, ...]], list[Operation]] = {}
    for update in updates:
        if update.origins:
            held.setdefault((update.path, update.origins), []).append(update.step)
    for (path, origins), steps in held.items():
        yield Hold(path, tuple(steps), origins)


def find_entry(item: FactCandidate, entries: Sequence[DreamEntry]) -> DreamEntry:
    """Return the given entry of an item, or else the entry with the most words in common."""
    if item.entry is not None and item.entry < len(entries):
        return entries[item.entry]
    return max(entries, key=lambda entry: share(words(item.new or item.old), entry.text))


def find_quoted(item: FactCandidate, entry: DreamEntry) -> str:
    """Return the person's line that a new fact quotes, or "". A single remark does not decide how
    the agent behaves."""
    if item.old or item.path == MANNER or not item.quote:
        return ""
    try:
        return quotation(item.quote, entry.said, entry.said_at.date())
    except ToolError:
        return ""


def locate_fact(item: FactCandidate, files: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the file of an item, the line that goes, and the new fact. If both are empty, there is
    nothing to do."""
    path, old = find_fact(item.old, files)
    if not old:
        stands = any(find_line(item.new, text) for text in files.values())
        return item.path if item.path in files else PERSON, "", "" if stands else item.new
    if item.new and (same := find_line(item.new, files[path])):
        return path, "" if same == old else old, ""
    return path, old, item.new


def find_fact(line: str, files: Mapping[str, str]) -> tuple[str, str]:
    """Return the path and the fact that matches `line`, or is most similar to it."""
    if not line:
        return "", ""
    for path, text in files.items():
        if found := find_line(line, text):
            return path, found
    lines = {fact: path for path, text in files.items() for fact, _ in lines_of(text)}
    facts = {fact: path for fact, path in lines.items() if fact_lines(fact)}
    near = most_similar(line, facts, 0.8)
    return facts.get(near, ""), near


def screen(
    updates: Iterable[Update],
    talk: Talk,
    files: Mapping[str, str],
    echoes: Echoes,
    is_past: Callable[[str, str], bool],
) -> tuple[list[Update], list[str]]:
    """Return the updates that the conversation supports (`memory.evidence`), before any is
    integrated, and the rejected ones with reasons.

    In addition, a known fact is replaced by one fact at most. It is over only if the person spoke
    of it as over, or if its day has passed, which `is_past` decides for a line of the file at a
    path. Other lines that the model finds to be over need approval, a few at a time."""
    facts = (fact for text in files.values() for fact in fact_lines(text))
    work, kept = Screen(talk, facts, echoes), list[Update]()
    for update in list(updates)[:MOST_UPDATES]:
        if update.verbatim:
            kept.append(update)
            continue
        asked = len(work.asked)
        for step in screen_step(work, update, is_past):
            is_quote = bool(step.new) and step.new != update.step.new
            kept.extend(place_step(replace(update, verbatim=is_quote), step, files))
        for step in work.asked[asked:]:
            line = without_importance(step.new) or f"remove: {without_list_mark(step.old)}"
            work.note(line, "the person did not state it")
            new = f"- {without_importance(step.new)}" if step.new else ""
            waiting = replace(update, origins=(BY_NANOBOT,))
            kept.extend(place_step(waiting, replace(step, new=new), files))
    return kept, work.set_aside


def screen_step(
    work: Screen, update: Update, is_past: Callable[[str, str], bool]
) -> Iterator[Operation]:
    step = update.step
    new = without_importance(step.new)
    if not new and (work.talk.says_over(step.old) or is_past(update.path, step.old)):
        yield step
    elif not new:
        work.ask(step)
    elif reason := work.junk_in(new, step.old):
        work.note(new, reason)
    elif step.old:
        yield from work.screen_replacement(step, asks=True)
    else:
        yield from work.screen_new(step, is_wish=update.path == MANNER)


def place_step(update: Update, step: Operation, files: Mapping[str, str]) -> Iterator[Update]:
    """Yield the update with this step, for the file that contains its old line."""
    if not step.old or step.old == update.step.old:
        yield replace(update, step=step)
        return
    path = next((path for path, text in files.items() if find_line(step.old, text)), "")
    if path:
        yield replace(update, step=step, path=path)
    elif not update.origins:  # learned in this run
        yield replace(update, step=replace(step, old=""))
