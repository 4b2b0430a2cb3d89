"""Phase 2, integrate: one file and its updates go in, small exact edits come out. Pure.

What an edit may do follows from the updates, not from the model: a line goes only where an update
says so or a new fact takes its place, and then to the retired ones; a line is added or reworded
only in the words of an update. So a model that obeys an attacker can lose nothing and add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nanobot.memory.dream.judging import Held, Update
from nanobot.memory.dream.phase1 import json_object, one_line
from nanobot.memory.dream.words import data_tokens, says_no_more, shared
from nanobot.memory.store.guard import bare, indent, lost_facts, standing
from nanobot.memory.text.layout import is_heading, lines_of
from nanobot.memory.text.lines import Operation
from nanobot.providers.failures import items, mapping, string

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
            "Answer in the same form, with these edits only, mended. Leave out what cannot be.",
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
        old, new = (one_line(string(fields.get(key))) for key in ("old", "new"))
        if old or new:
            edits.append(Edit(old, new, one_line(string(fields.get("section")))))
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
