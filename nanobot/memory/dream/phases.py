"""What the model is asked in the two phases of Dream, and what its answers may change. Pure.

Phase 1 extracts. The model sees the files with the age of each line, and entries numbered from 0.
A model that read a web page may say what the page told it to, and may say that it comes from an
entry which never saw that page. So where any of the entries that it was asked about was touched by
foreign content, whatever it words itself is held back until the owner confirms it (`judge`). What
it quotes, a line that the person wrote, code copies whole, and that is taken in as it stands.

Phase 2 integrates: exact edits of one file. What an edit may do follows from the updates, not from
the model: a line goes only where an update says so or a new fact takes its place, and then to the
retired ones; a line is added or reworded only in the words of an update. Small changes of form are
free; a number, a link, the name of a file or an address is not. So a model that obeys an attacker
can lose nothing and add nothing. An update whose edit cannot be made goes in as phase 1 worded it.

Nothing that a model answers is trusted to have the right shape: what cannot be read is left out,
and an answer without any of the known keys is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.errors import ToolError
from nanobot.memory.answers import json_object
from nanobot.memory.documents import LONG_TERM, PERSONAL
from nanobot.memory.dream.reading import Entry
from nanobot.memory.dream.state import Hold, Write
from nanobot.memory.guard import bare, fact_lines, indent, lost_facts, standing
from nanobot.memory.lines import Operation, is_heading, lines_of
from nanobot.memory.taint import quotation
from nanobot.memory.wording import most_similar, share, similar, words
from nanobot.providers.endpoint import items, mapping, string

PERSON, MANNER = PERSONAL

_AGE_MARK = re.compile(r"\s*←\s*\d+\s*d\s*$")
_LONGEST_FACT = 500
"""Characters; a fact is a sentence."""
_LONGEST_HEADING = 40

Kind = Literal["add", "replace", "obsolete"]
_KINDS: Mapping[str, tuple[Kind, str]] = {
    "user_updates": ("add", PERSON),
    "memory_updates": ("add", LONG_TERM),
    "soul_updates": ("add", MANNER),
    "contradictions": ("replace", ""),
    "obsolete": ("obsolete", ""),
}


class Item(Struct, frozen=True):
    """Something that phase 1 found.

    `text` is the new fact, for an obsolete one the line that goes; `replaces` the line that a
    contradicting fact takes the place of. `path` is empty where that line decides. `entry` is the
    number the model gave, None where it gave none that exists. `quote` are words of a line of the
    person's that says it.
    """

    kind: Kind
    text: str
    path: str = ""
    replaces: str = ""
    entry: int | None = None
    quote: str = ""


def extraction_request(
    files: Mapping[str, str], ages: Mapping[str, Mapping[str, int]], entries: Sequence[Entry]
) -> str:
    """The message that shows `files` (text by path) with `ages` (days by line), and the batch."""
    parts = ["## Current files"]
    for path, text in files.items():
        parts.append(f"### {path}\n\n{aged(text, ages.get(path, {})) or '(empty)'}")
    parts.append("## New entries")
    parts += [entry.shown(number) for number, entry in enumerate(entries)]
    return "\n\n".join(parts)


def aged(text: str, ages: Mapping[str, int]) -> str:
    """`text` with the age in days behind each line that has one."""
    lines = []
    for line in text.strip().splitlines():
        days = ages.get(line, ages.get(line.strip()))
        lines.append(line if days is None else f"{line}  ← {days} d")
    return "\n".join(lines)


def read_extraction(answer: str, count: int) -> tuple[list[Item], frozenset[int]] | None:
    """What the model found in `count` entries, and the numbers of those that it read through; None
    where its answer is none."""
    found = json_object(answer, {*_KINDS, "processed_entries"})
    if found is None:
        return None
    collected = [item for key in _KINDS for item in _items(key, found.get(key), count)]
    listed = found.get("processed_entries")
    # Not said: an answer to a question about all of them is about all of them.
    read = [_number(one, count) for one in listed] if isinstance(listed, list) else range(count)
    return collected, frozenset(number for number in read if number is not None)


def _items(key: str, value: object, count: int) -> Iterator[Item]:
    kind, path = _KINDS[key]
    for raw in items(value) if isinstance(value, list) else [value]:
        fields = {"text": raw} if isinstance(raw, str) else mapping(raw)
        quote = bare_line(fields.get("quote"))
        text = bare_line(fields.get("text")) or quote
        if bare(text).strip("#-*_ "):
            replaces = bare_line(fields.get("replaces")) or bare_line(fields.get("old"))
            yield Item(kind, text, path, replaces, _number(fields.get("entry"), count), quote)


def bare_line(value: object) -> str:
    """A text as one line without an age mark, of bounded length; empty for what is no text."""
    return _AGE_MARK.sub("", " ".join(string(value).split()))[:_LONGEST_FACT].rstrip()


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


def says_no_more(line: str, *sources: str) -> bool:
    """Whether `line` says nothing beyond `sources`: no data is new, and of its words at most a
    quarter, or one beside others, is."""
    said = "\n".join(sources)
    if not data_tokens(line) <= data_tokens(said):
        return False
    own, known = words(line), words(said)
    new = [word for word in own if not any(similar(word, other) for other in known)]
    return not new or (len(new) <= max(1, len(own) // 4) and len(new) < len(own))


class Update(Struct, frozen=True):
    """Something that goes into the file at `path`.

    `text` is the new fact, without a bullet, empty for an obsolete one. `target` is the line, just
    as it stands in the file, that is replaced or obsolete. `cursor` is the history entry behind it.
    """

    kind: Kind
    path: str
    text: str = ""
    target: str = ""
    cursor: int = 0

    def shown(self) -> str:
        """The update as phase 2 reads it."""
        if self.kind == "obsolete":
            return f"obsolete: {self.target.strip()}"
        instead = f" (instead of: {self.target.strip()})" if self.kind == "replace" else ""
        return f"{self.kind}: {self.text}{instead}"


class Findings(Struct):
    """What was found in a batch, each once: `updates` for phase 2, `quoted` lines of the person's
    that go in word for word, and what waits for the owner, by file and origins. `read` and
    `skipped` are the keys of entries."""

    updates: dict[Update, None] = field(default_factory=dict)
    quoted: dict[Update, None] = field(default_factory=dict)
    held: dict[tuple[str, tuple[str, ...]], dict[Operation, None]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)

    def hold(self, path: str, origins: tuple[str, ...], operation: Operation) -> None:
        """Let a change of the file at `path` wait for the owner's word."""
        self.held.setdefault((path, origins), {})[operation] = None

    def holds(self) -> tuple[Hold, ...]:
        """All that waits."""
        return tuple(Hold(path, tuple(steps), names) for (path, names), steps in self.held.items())


def judge(
    wanted: Iterable[Item],
    entries: Sequence[Entry],
    files: Mapping[str, str],
    found: Findings,
    *,
    owner: bool,
) -> None:
    """Sort the items of one question about `entries` into `found`.

    `files` are the texts that the model was shown. How the agent behaves is the owner's to say;
    another person's wish about it is a fact about them.
    """
    tainted = any(entry.origins for entry in entries)
    for item in wanted:
        entry = _behind(item, entries)
        if tainted and (line := _quoted(item, entry)):
            if not any(standing(line, text) for text in files.values()):
                found.quoted[Update("add", item.path, line, cursor=entry.cursor)] = None
        elif (update := _located(item, files, owner=owner)) is None:
            continue
        elif tainted:
            new = f"- {update.text}" if update.text else ""
            waiting = Operation(update.target, new, "", entry.cursor)
            found.hold(update.path, entry.origins or ("unknown",), waiting)
        else:
            found.updates[replace(update, cursor=entry.cursor)] = None


def _behind(item: Item, entries: Sequence[Entry]) -> Entry:
    """The entry that an item comes from: the one named, else the one that shares most with it."""
    if item.entry is not None and item.entry < len(entries):
        return entries[item.entry]
    return max(entries, key=lambda entry: share(words(item.text), entry.text))


def _quoted(item: Item, entry: Entry) -> str:
    """The line of the person's that a new fact quotes, empty where it quotes none. How the agent
    behaves is not decided by what was said once."""
    if item.kind != "add" or item.path == MANNER or not item.quote:
        return ""
    try:
        return quotation(item.quote, entry.said, entry.said_at.date())
    except ToolError:
        return ""


def _located(item: Item, files: Mapping[str, str], *, owner: bool) -> Update | None:
    """The item as an update of a file; None where there is nothing to do."""
    text = bare(item.text)
    if item.kind == "add":
        path = PERSON if item.path == MANNER and not owner else item.path
        stands = any(standing(text, known) for known in files.values())
        return None if stands else Update("add", path, text)
    path, target = _found(item.text if item.kind == "obsolete" else item.replaces, files)
    if item.kind == "obsolete":
        return Update("obsolete", path, "", target) if target else None
    if not target:
        return _located(replace(item, kind="add", path=LONG_TERM), files, owner=owner)
    if standing(text, files[path]):
        return None if bare(target) == text else Update("obsolete", path, "", target)
    return Update("replace", path, text, target)


def _found(line: str, files: Mapping[str, str]) -> tuple[str, str]:
    """The path and the fact, as it stands there, that is `line`, or is most like it."""
    if not line:
        return "", ""
    for path, text in files.items():
        if found := standing(line, text):
            return path, found
    lines = {fact: path for path, text in files.items() for fact, _ in lines_of(text)}
    facts = {fact: path for fact, path in lines.items() if fact_lines(fact)}
    near = most_similar(line, facts, 0.8)
    return facts.get(near, ""), near


class Edit(Struct, frozen=True):
    """What the model wants: add (`old` empty), take away (`new` empty) or change a line."""

    old: str
    new: str
    section: str = ""


def integration_request(path: str, text: str, updates: Iterable[Update]) -> str:
    """The message that shows the file and what is new."""
    numbered = "\n".join(f"[{number}] {update.shown()}" for number, update in enumerate(updates))
    file = text.strip() or "(empty)"
    return f"## File: {path}\n\n## Current text\n\n{file}\n\n## Updates\n\n{numbered}"


def read_edits(answer: str) -> list[Edit] | None:
    """The edits of an answer; None where it is none."""
    whole = f'{{"edits": {answer.strip()}}}'
    found = json_object(answer, {"edits"}) or json_object(whole, {"edits"})
    if found is None:
        return None
    edits = []
    for raw in items(found.get("edits")):
        old, new, section = (bare_line(mapping(raw).get(key)) for key in ("old", "new", "section"))
        if old or new:
            edits.append(Edit(old, new, section))
    return edits


class Integrator:
    """Decides on the edits of the file at `path` that says `text`; what no update supports is held
    back in `found`."""

    def __init__(self, path: str, text: str, updates: Sequence[Update], found: Findings) -> None:
        self._path, self._text, self._updates, self._findings = path, text, updates, found
        self._sections = dict(lines_of(text))
        self._headings = {_name(line): line for line in self._sections if is_heading(line)}
        self._told: set[int] = set()
        self._replaced: set[int] = set()
        self._operations: dict[Operation, None] = {}
        self._retired: list[str] = []

    def integrate(self, edits: Sequence[Edit] | None) -> Write:
        """What the edits come to; None: the model gave none, so each update goes in as it is.

        What the updates say happens whatever the model made of them: lines that are over go.
        """
        plainly: set[int | None] = set(range(len(self._updates))) if edits is None else set()
        for edit in edits or ():
            if not self._make(edit) and edit.new:
                plainly.add(self._nearest(edit.new))
        for number, update in enumerate(self._updates):
            if number in plainly and update.text and number not in self._told:
                self._add(number, update.text, self._sections.get(update.target, ""))
        for number, update in enumerate(self._updates):
            over = update.kind == "obsolete" or (update.kind == "replace" and number in self._told)
            if over and update.target not in self._retired:
                self._retire(update.target, "", update.cursor)
        return Write(self._path, tuple(self._operations), tuple(self._retired))

    def _make(self, edit: Edit) -> bool:
        """Whether an edit could be made, or needs not be."""
        old = standing(edit.old, self._text)
        if (edit.old and not old) or is_heading(edit.new):
            return False
        if not bare(edit.new):
            return True  # what may go goes in any case
        number = self._nearest(edit.new)
        if number is None or not says_no_more(edit.new, old, self._updates[number].text):
            self._findings.hold(self._path, ("dream",), Operation(old, f"- {bare(edit.new)}"))
            return True
        if old:
            return self._change(number, edit.new, old)
        self._add(number, edit.new, self._section(edit.section))
        return True

    def _change(self, number: int, new: str, old: str) -> bool:
        """Reword a line, or put another in its place; False where that would lose what it says."""
        update = self._updates[number]
        if bare(old) == bare(new):
            return True
        like = _like(old, new)
        if share(words(old), new) == 1.0 and data_tokens(old) <= data_tokens(new):
            self._told.add(number)
            self._operations[Operation(old, like, self._sections[old], update.cursor)] = None
            return True
        unasked = update.target != old and (number in self._replaced or lost_facts(old, like))
        if unasked or old in self._retired:
            return False
        self._replaced.add(number)
        self._told.add(number)
        self._retire(old, like, update.cursor)
        return True

    def _add(self, number: int, line: str, section: str) -> None:
        self._told.add(number)
        if not standing(line, self._text):
            fact = line if line != bare(line) else f"- {line}"
            operation = Operation("", fact, section, self._updates[number].cursor)
            self._operations[operation] = None

    def _retire(self, line: str, new: str, cursor: int) -> None:
        self._operations[Operation(line, new, self._sections.get(line, ""), cursor)] = None
        self._retired.append(line)

    def _nearest(self, line: str) -> int | None:
        """The update that `line` is most likely about."""
        found = [
            (share(words(line), update.text), -number)
            for number, update in enumerate(self._updates)
            if update.text
        ]
        shared, number = max(found, default=(0.0, 0))
        return -number if shared > 0 else None

    def _section(self, wanted: str) -> str:
        if known := self._headings.get(_name(wanted)):
            return known
        return wanted if is_heading(wanted) and len(wanted) <= _LONGEST_HEADING else ""


def _name(heading: str) -> str:
    return heading.strip("# ").casefold()


def _like(old: str, new: str) -> str:
    """`new` as far from the margin as `old`, and with its list mark where it has none."""
    mark = "" if bare(new) != new else old.strip().removesuffix(bare(old))
    return f"{indent(old)}{mark}{new}"
