"""The changes that an answer of the consolidating model may make, to memory and to its entry. Pure.

The model returns the whole long-term file, against the version that it was shown; what counts is
the lines that differ, so that changes which others made at the same time survive. Consolidation
learns and rewords, and forgets nothing: a line that the model left out stays (models leave lines
out by carelessness far more often than by intent), unless another line says the same.

Each change is held against the conversation (`support`). A new fact with a number or a negation
that was not said gives way to the line of the person's that says most of it. A change of a known
fact needs the person's own plain words; if they named it otherwise, it waits for them. What is set
aside is named, with the reason, in the entry. If the stretch holds foreign text, every change is
held back for the person to confirm, except lines of their own, which code copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory import guard
from nanobot.memory.cleaning import Echoes, clean_line, distinct_lines, junk_reason
from nanobot.memory.importance import without_importance
from nanobot.memory.lines import Operation, is_heading, operations_between
from nanobot.memory.support import UNSAID, Known, Talk, is_part_of
from nanobot.memory.taint import quoted_line

MOST_LINES = 200
"""Lines of one answer that the file does not have yet; one with more is no consolidation."""
MOST_OPERATIONS = 100
MOST_ASKED, _MOST_QUOTED, MOST_SET_ASIDE = 5, 5, 20
_LONGEST_HEADING, _SHOWN = 60, 160
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")

Operations = tuple[Operation, ...]


class Changes(Struct, frozen=True):
    """`held` wait for the person; `set_aside` says what was not taken, and why."""

    operations: Operations = ()
    held: Operations = ()
    set_aside: tuple[str, ...] = ()


def memory_changes(
    base: str,
    update: str | None,
    talk: Talk,
    *,
    tainted: bool = False,
    quoted: Sequence[str] = (),
    echoes: Echoes | None = None,
) -> Changes:
    """What `update` changes in `base`, the file as the model knew it, with what lines of the
    person's that were `quoted` add to it.

    Headings stay as they are and are made where a fact needs one; a placeholder is no fact.
    """
    own = tuple(Operation(new=f"- {line}") for line in quoted if not guard.find_line(line, base))
    if update is None:
        return Changes(own)
    standing = {line.rstrip() for line in base.split("\n")}
    lines, junk = list[str](), list[str]()
    for line in distinct_lines(without_importance(update)):
        reason = "" if line in standing else _line_reason(line, echoes, talk)
        (junk if reason else lines).append(f"{_shown(line)}: {reason}" if reason else line)
    if len({*lines} - standing) > MOST_LINES:
        said = f"an answer with {len(lines):,} lines, of which none was taken"
        return Changes(own, set_aside=(said,))
    every = operations_between(base, "\n".join(lines))
    renamed = {change.new: change.old for change in every if change.old and is_heading(change.new)}
    changes = [
        _under(replace(change, section=renamed.get(change.section, change.section)), standing)
        for change in every
        if guard.fact_lines(change.new or change.old)
    ]
    if tainted:
        added = (change for change in changes if change.new)
        listed = tuple(
            one if one.section in standing else replace(one, section="") for one in added
        )
        return Changes(own, listed[:MOST_OPERATIONS], tuple(junk[:MOST_SET_ASIDE]))
    screen = _Screen(base, talk)
    made = screen.screened(changes)
    aside = (*screen.set_aside, *junk)
    return Changes((*made, *own)[:MOST_OPERATIONS], tuple(screen.held), aside[:MOST_SET_ASIDE])


class _Screen:
    """Decides change by change; `held` and `set_aside` grow."""

    def __init__(self, base: str, talk: Talk) -> None:
        self._talk, self._facts = talk, guard.fact_lines(base)
        self._base = base
        self._known = Known(self._facts, talk.languages)
        self._quoted = 0
        self.held: list[Operation] = []
        self.set_aside: list[str] = []

    def screened(self, changes: Sequence[Operation]) -> list[Operation]:
        """Those that may be made."""
        left_out = [one for one in changes if not one.new]
        is_whole = len(left_out) <= max(1, len(self._facts) // 2)
        made = list[Operation]()
        for change in changes:
            if change.rewords:
                made += self._reworded(change, is_whole=is_whole)
            elif change.new:
                made += self._added(change)
        longer = [one.new for one in made if not guard.without_list_mark(one.new).startswith("“")]
        made += (one for one in left_out if any(is_part_of(one.old, line) for line in longer))
        return made

    def _reworded(self, change: Operation, *, is_whole: bool) -> Iterator[Operation]:
        old, new = change.old, change.new
        beside = replace(change, old="")
        if reason := self._talk.objection_to_change(old, new):
            # If the person said it and it changes no fact, it is one of its own.
            fact = self._known.touched_by(new)
            if self._talk.names_change(old, new):
                self._ask(change)
            elif fact or self._talk.objection(new, own=True):
                yield from self._set_aside(beside, reason)
            else:
                yield from self._added(beside)
            return
        keeps = is_part_of(old, new)
        # If the file was not given whole, a similar line is not meant to replace one.
        if keeps or (is_whole and self._talk.ends(old, new)):
            self._known.add(new)
            yield change
        else:
            yield from self._added(beside)

    def _added(self, change: Operation) -> Iterator[Operation]:
        line = change.new
        if self._known.has(line):
            return
        fact = self._known.touched_by(line)
        reason = self._talk.objection_to_change(fact, line) if fact else self._talk.objection(line)
        if reason and fact and self._talk.names_change(fact, line):
            self._ask(replace(change, old=fact))
            return
        if reason:
            yield from self._set_aside(change, reason)
            return
        is_turned = bool(fact) and self._known.is_turned(fact, line)
        self._known.add(line)
        yield replace(change, old=fact) if is_turned else change

    def _ask(self, change: Operation) -> None:
        """Let the person say whether it is so."""
        if len(self.held) < MOST_ASKED and change not in self.held:
            self.held.append(change)

    def _set_aside(self, change: Operation, reason: str) -> Iterator[Operation]:
        """In the place of a line that was not said, the line that the person wrote about it."""
        self.set_aside.append(f"{_shown(change.new)}: {reason}")
        quote = self._talk.quote(change.new) if reason != UNSAID else None
        text = quoted_line(*quote) if quote and self._quoted < _MOST_QUOTED else ""
        if (
            quote
            and text
            and not self._known.has(quote[0])
            and not guard.find_line(text, self._base)
        ):
            self._quoted += 1
            self._known.add(text)
            yield replace(change, new=f"- {text}")


def _under(change: Operation, standing: set[str]) -> Operation:
    """Under a heading that stands there, or one that may be made."""
    heading = change.section
    fits = len(heading) <= _LONGEST_HEADING and not junk_reason(heading.lstrip("# "))
    return change if heading in standing or fits else replace(change, section="")


def _line_reason(line: str, echoes: Echoes | None, talk: Talk) -> str:
    """Return the reason to reject a line of an answer, or ""."""
    if not line.strip() or is_heading(line):
        return "it copies the instructions" if echoes and echoes.has(line) else ""
    if talk.has_own_line(guard.without_list_mark(line)):
        return ""
    if reason := junk_reason(line):
        return reason
    is_copy = echoes and echoes.has(line) and not talk.is_told(line)
    return "it copies the instructions" if is_copy else ""


def checked_summary(text: str, talk: Talk, echoes: Echoes) -> tuple[str, list[str]]:
    """The sentences of an entry that the conversation does not gainsay, each once, and what was set
    aside. A sentence with a number or a negation that was not said becomes a quotation."""
    kept, aside = dict[str, None](), list[str]()
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        if reason := _line_reason(sentence, echoes, talk):
            aside.append(f"{_shown(sentence)}: {reason}")
        elif reason := talk.objection(sentence, lenient=True):
            aside.append(f"{_shown(sentence)}: {reason}")
            if quote := talk.quote(sentence):
                kept[quoted_line(*quote)] = None
        else:
            kept[sentence] = None
    return " ".join(filter(None, kept)), aside


def checked_facts(facts: Iterable[str], talk: Talk, echoes: Echoes) -> Iterator[str]:
    """The key facts that the conversation does not gainsay."""
    for fact in facts:
        line = clean_line(fact)
        if _line_reason(line, echoes, talk) or talk.objection(line, lenient=True):
            continue
        yield line


def _shown(line: str) -> str:
    text = guard.without_list_mark(line)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
