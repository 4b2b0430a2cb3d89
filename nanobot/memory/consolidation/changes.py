"""The changes that an answer of the consolidating model may make, to memory and to its entry. Pure.

The model returns the whole long-term file, against the version that it was shown; what counts is
the lines that differ, so that changes which others made at the same time survive. Consolidation
learns and rewords, and forgets nothing: a line that the model left out stays (models leave lines
out by carelessness far more often than by intent), unless another line says the same.

Each change is held against the conversation (`screening`). What is set aside is named, with the
reason, in the entry. If the stretch holds foreign text, every change is
held back for the person to confirm, except lines of their own, which code copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory import guard
from nanobot.memory.cleaning import Echoes, clean_line, distinct_lines, junk_reason
from nanobot.memory.importance import without_importance
from nanobot.memory.lines import Operation, is_heading, operations_between
from nanobot.memory.screening import Screen
from nanobot.memory.statements import is_part_of
from nanobot.memory.support import Talk
from nanobot.memory.taint import quoted_line

MOST_LINES = 200
"""Lines of one answer that the file does not have yet; one with more is no consolidation."""
MOST_OPERATIONS = 100
MOST_SET_ASIDE = 20
_LONGEST_HEADING = 60
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
    standing, facts = {*map(str.rstrip, base.split("\n"))}, guard.fact_lines(base)
    screen, lines = Screen(talk, facts, echoes), list[str]()
    for line in distinct_lines(without_importance(update)):
        if line not in standing and (reason := _line_reason(line, echoes, screen)):
            screen.note(line, reason)
        else:
            lines.append(line)
    if len({*lines} - standing) > MOST_LINES:
        said = f"an answer with {len(lines):,} lines, of which none was taken"
        return Changes(own, set_aside=(said,))
    changes = _fact_changes(base, "\n".join(lines), standing, tainted=tainted)
    made, held = own, changes
    if not tainted:
        made = (*_screened(screen, changes, len(facts)), *own)
        held = screen.asked
    aside = tuple(screen.set_aside[:MOST_SET_ASIDE])
    return Changes(made[:MOST_OPERATIONS], tuple(held[:MOST_OPERATIONS]), aside)


def _fact_changes(base: str, new: str, standing: set[str], *, tainted: bool) -> list[Operation]:
    """The changes of facts, under headings of the file or ones that may be made. Without the
    person's word no line goes and no heading is made."""
    every = operations_between(base, new)
    renamed = {change.new: change.old for change in every if change.old and is_heading(change.new)}
    changes = list[Operation]()
    for change in every:
        heading = renamed.get(change.section, change.section)
        may_stand = heading in standing or (not tainted and _may_be_heading(heading))
        if guard.fact_lines(change.new if tainted else change.new or change.old):
            changes.append(replace(change, section=heading if may_stand else ""))
    return changes


def _screened(screen: Screen, changes: Sequence[Operation], facts: int) -> list[Operation]:
    """Return the changes that may be made of a file with so many facts."""
    left_out = [one for one in changes if not one.new]
    # If the file was not given whole, a similar line is not meant to replace one.
    is_whole = len(left_out) <= max(1, facts // 2)
    made = list[Operation]()
    for change in changes:
        if change.rewords:
            made += screen.screen_replacement(change, replaces=is_whole)
        elif change.new:
            made += screen.screen_new(change)
    return made + [one for one in left_out if _is_within(one.old, made)]


def _is_within(line: str, made: Sequence[Operation]) -> bool:
    """Whether a new line that is no quotation says all that `line` does."""
    lines = (one.new for one in made if not guard.without_list_mark(one.new).startswith("“"))
    return any(is_part_of(line, new) for new in lines)


def _may_be_heading(heading: str) -> bool:
    return len(heading) <= _LONGEST_HEADING and not junk_reason(heading.lstrip("# "))


def _line_reason(line: str, echoes: Echoes | None, screen: Screen) -> str:
    """Return the reason to reject a line of an answer, or ""."""
    if not line.strip() or is_heading(line):
        return "it copies the instructions" if echoes and echoes.has(line) else ""
    return screen.junk_in(line)


def checked_summary(text: str, talk: Talk, echoes: Echoes) -> tuple[str, list[str]]:
    """The sentences of an entry that the conversation does not gainsay, each once, and what was set
    aside. A sentence with a number or a negation that was not said becomes a quotation."""
    kept, screen = dict[str, None](), Screen(talk, (), echoes)
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        if reason := screen.junk_in(sentence):
            screen.note(sentence, reason)
        elif reason := talk.objection(sentence, lenient=True):
            screen.note(sentence, reason)
            if quote := talk.quote(sentence):
                kept[quoted_line(*quote)] = None
        else:
            kept[sentence] = None
    return " ".join(filter(None, kept)), screen.set_aside


def checked_facts(facts: Iterable[str], talk: Talk, echoes: Echoes) -> list[str]:
    """The key facts that the conversation does not gainsay."""
    screen, lines = Screen(talk, (), echoes), map(clean_line, facts)
    return [
        one for one in lines if not screen.junk_in(one) and not talk.objection(one, lenient=True)
    ]
