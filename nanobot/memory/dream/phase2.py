"""What of phase 1 may become a memory, and phase 2: exact edits of one file. Pure.

A model that read a web page may say what the page told it to, and may say that it comes from an
entry which never saw that page. So where any of the entries that it was asked about was touched by
foreign content, whatever it words itself is held back until the owner confirms it (`judge`). What
it quotes, a line that the person wrote, code copies whole, and that is taken in as it stands.

What an edit may do follows from the updates, not from the model: a line goes only where an update
says so or a new fact takes its place, and then to the retired ones; a line is added or reworded
only in the words of an update. Small changes of form are free; a number, a link, the name of a file
or an address is not. So a model that obeys an attacker can lose nothing and add nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nanobot.errors import ToolError
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.dream.phase1 import MANNER, PERSON, Entry, Item, Kind, bare_line, json_object
from nanobot.memory.store.guard import bare, fact_lines, indent, lost_facts, standing
from nanobot.memory.taint import quotation
from nanobot.memory.text.layout import is_heading, lines_of
from nanobot.memory.text.lines import Operation, most_similar
from nanobot.memory.text.wording import share, similar, words
from nanobot.providers.endpoint import items, mapping, string

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


def shared(line: str, other: str) -> float:
    """Which part of the content words of `line` the other text has as well; 0 to 1."""
    return share(words(line), other)


@dataclass(frozen=True, slots=True)
class Update:
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


@dataclass(frozen=True, slots=True)
class Held:
    """A fact that waits for the owner's word. `old` is the line that it would replace; where `line`
    is empty, it would go."""

    path: str
    line: str
    origins: tuple[str, ...] = ()
    old: str = ""
    section: str = ""
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What phase 1 comes to. `quoted` updates are lines of the person's, and go in word for
    word."""

    updates: tuple[Update, ...] = ()
    held: tuple[Held, ...] = ()
    quoted: tuple[Update, ...] = ()


def judge(
    items: Sequence[Item], entries: Sequence[Entry], files: Mapping[str, str], *, owner: bool
) -> Judgement:
    """Sort `items` of one question about `entries`.

    `files` are the texts that the model was shown. How the agent behaves is the owner's to say;
    another person's wish about it is a fact about them.
    """
    updates: dict[Update, None] = {}
    held: dict[Held, None] = {}
    quoted: dict[Update, None] = {}
    tainted = any(entry.is_tainted for entry in entries)
    for item in items:
        entry = _behind(item, entries)
        if tainted and (line := _quoted(item, entry)):
            if not any(standing(line, text) for text in files.values()):
                quoted[Update("add", item.path, line, cursor=entry.cursor)] = None
            continue
        wanted = _located(item, files, owner=owner)
        if wanted is None:
            continue
        if not tainted:
            updates[replace(wanted, cursor=entry.cursor)] = None
            continue
        origins = entry.origins or ("unknown",)
        held[Held(wanted.path, wanted.text, origins, wanted.target, "", entry.cursor)] = None
    return Judgement(tuple(updates), tuple(held), tuple(quoted))


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
        stands = any(standing(text, files.get(path, "")) for path in files)
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
    for path, text in files.items():
        if line and (found := standing(line, text)):
            return path, found
    facts = {fact: path for path, text in files.items() for fact in _facts(text)}
    near = most_similar(line, facts, 0.8) if line else ""
    return facts.get(near, ""), near


def _facts(text: str) -> Iterator[str]:
    """The facts of a file, each as it stands there."""
    return (line for line, _ in lines_of(text) if fact_lines(line))


def _behind(item: Item, entries: Sequence[Entry]) -> Entry:
    """The entry that an item comes from: the one named, else the one that shares most with it."""
    if item.entry is not None and item.entry < len(entries):
        return entries[item.entry]
    return max(entries, key=lambda entry: shared(item.text, entry.text))


_LONGEST_HEADING = 40


@dataclass(frozen=True, slots=True)
class Edit:
    """What the model wants: add (`old` empty), take away (`new` empty) or change a line."""

    old: str
    new: str
    section: str = ""


@dataclass(slots=True)
class Integration:
    """What the edits of one file come to: `operations` on its lines, `retired` those of the lines
    that go thereby which are over, `held` what no update supports."""

    operations: list[Operation] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)


def question(path: str, text: str, updates: Sequence[Update]) -> str:
    """The message that shows the file and what is new."""
    numbered = [f"[{number}] {update.shown()}" for number, update in enumerate(updates)]
    return "\n\n".join(
        [
            f"## File: {path}",
            "## Current text",
            text.strip() or "(empty)",
            "## Updates",
            "\n".join(numbered),
        ]
    )


def again(problems: Sequence[tuple[Edit, str]]) -> str:
    """What the model is told about edits that could not be made."""
    reasons = [f"- old: {edit.old!r}, new: {edit.new!r}: {reason}" for edit, reason in problems]
    return "\n".join(
        [
            "These edits could not be made:",
            *reasons,
            "Answer in the same form, with these edits only, fixed. Leave out what cannot be.",
        ]
    )


def parse(answer: str) -> list[Edit] | None:
    """The edits of an answer; None where it is none."""
    found = json_object(answer, {"edits"}) or json_object(
        f'{{"edits": {answer.strip()}}}', {"edits"}
    )
    if found is None:
        return None
    edits = []
    for raw in items(found.get("edits")):
        fields = mapping(raw)
        old, new = (bare_line(string(fields.get(key))) for key in ("old", "new"))
        if old or new:
            edits.append(Edit(old, new, bare_line(string(fields.get("section")))))
    return edits


class Integrator:
    """Decides on the edits of the file at `path` that says `text`."""

    def __init__(self, path: str, text: str, updates: Sequence[Update]) -> None:
        self._path, self._text = path, text
        self._updates = updates
        self._sections = dict(lines_of(text))
        self._headings = {_name(line): line for line in self._sections if is_heading(line)}
        self._told: set[int] = set()
        self._replaced: set[int] = set()
        self.result = Integration()

    def take(self, edits: Sequence[Edit]) -> list[tuple[Edit, str]]:
        """Decide on `edits`; return those that cannot be made, each with the reason."""
        problems = []
        for edit in edits:
            old = standing(edit.old, self._text)
            if edit.old and not old:
                problems.append((edit, "no line of the file reads like `old`"))
            elif reason := self._decide(edit, old):
                problems.append((edit, reason))
        return problems

    def finish(self) -> Integration:
        """What follows from the updates whatever the model made of them: lines that are over go."""
        for number, update in enumerate(self._updates):
            over = update.kind == "obsolete" or (update.kind == "replace" and number in self._told)
            if over and update.target not in self.result.retired:
                self._retire(update.target, "", update.cursor)
        return self.result

    def add_plainly(self, only: Sequence[Edit] | None = None) -> None:
        """Put in the updates that no edit has put in, word for word; `only` those that these edits
        meant."""
        meant = None if only is None else {self._nearest(edit.new) for edit in only if edit.new}
        for number, update in enumerate(self._updates):
            wanted = meant is None or number in meant
            if update.text and number not in self._told and wanted:
                self._add(number, update.text, self._sections.get(update.target, ""))

    def _decide(self, edit: Edit, old: str) -> str:
        if not edit.new:
            # What may go goes in any case; see `finish`.
            targets = {update.target for update in self._updates}
            return "" if old in targets else "no update says that this line is obsolete"
        number = self._nearest(edit.new)
        if is_heading(edit.new) or not bare(edit.new):
            return "`new` must be a fact, not a heading; give a heading as `section`"
        if number is None or not says_no_more(edit.new, old, self._updates[number].text):
            self._hold(edit, old)
            return ""
        if old:
            return self._change(number, edit, old)
        self._add(number, edit.new, self._section(edit.section))
        return ""

    def _change(self, number: int, edit: Edit, old: str) -> str:
        """Reword a line, or put another in its place."""
        update = self._updates[number]
        if bare(old) == bare(edit.new):
            return ""
        new = _like(old, edit.new)
        if shared(old, edit.new) == 1.0 and data_tokens(old) <= data_tokens(edit.new):
            self._told.add(number)
            self._write(Operation(old, new, self._sections[old], update.cursor))
            return ""
        if update.target != old and (number in self._replaced or lost_facts(old, new)):
            return "this would drop what the line says, and no update replaces it"
        if old in self.result.retired:
            return "another edit has changed this line already"
        self._replaced.add(number)
        self._told.add(number)
        self._retire(old, new, update.cursor)
        return ""

    def _add(self, number: int, line: str, section: str) -> None:
        self._told.add(number)
        if not standing(line, self._text):
            fact = line if line != bare(line) else f"- {line}"
            self._write(Operation("", fact, section, self._updates[number].cursor))

    def _write(self, operation: Operation) -> None:
        if operation not in self.result.operations:
            self.result.operations.append(operation)

    def _retire(self, line: str, new: str, cursor: int) -> None:
        self._write(Operation(line, new, self._sections.get(line, ""), cursor))
        self.result.retired.append(line)

    def _hold(self, edit: Edit, old: str) -> None:
        self.result.held.append(Held(self._path, bare(edit.new), ("dream",), old))

    def _nearest(self, line: str) -> int | None:
        """The update that `line` is most likely about."""
        found = [
            (shared(line, update.text), -number)
            for number, update in enumerate(self._updates)
            if update.text
        ]
        share, number = max(found, default=(0.0, 0))
        return -number if share > 0 else None

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
