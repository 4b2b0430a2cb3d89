"""What a model's new version of the long-term memory means: which lines it may change. Pure.

The model returns the whole file, against the version that it was shown; what counts is the lines
that differ, so that changes which others made meanwhile survive. Consolidation learns and rewords.
It forgets nothing: a line that the model merely left out stays (models leave lines out by
carelessness far more often than by intent; retiring is Dream's task and forgetting the person's),
and is taken out only where another line of the update says it. Where the stretch holds foreign
text, every change is held back for the person to confirm, but for lines of their own, which code
copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nanobot.memory.store import guard
from nanobot.memory.text.lines import Operation, operations_between

_HEADING = re.compile(r"\s*#{1,6}\s")
_PLACEHOLDER = re.compile(r"\s*\([^()]*\)\s*")


@dataclass(frozen=True, slots=True)
class Learned:
    """The changes to make, and those that wait for the person."""

    operations: tuple[Operation, ...] = ()
    held: tuple[Operation, ...] = ()


def learned(base: str, update: str | None, *, tainted: bool, quoted: Sequence[str] = ()) -> Learned:
    """What `update` changes in `base`, the file as the model knew it, and what lines of the
    person's that were `quoted` add to it."""
    own = [Operation(new=f"- {line}") for line in quoted if not guard.standing(line, base)]
    if update is None:
        return Learned(tuple(own))
    every = operations_between(base, update)
    standing = {change.new: change.old for change in every if change.old and _is_heading(change)}
    changes = [
        replace(change, section=standing.get(change.section, change.section))
        for change in every
        if _is_about_facts(change)
    ]
    if tainted:
        known = {line.strip() for line in base.splitlines()}
        held = [
            change if change.section in known else replace(change, section="")
            for change in changes
            if change.new
        ]
        return Learned(tuple(own), tuple(held))
    sections = {change.section for change in changes if change.new}
    lost = set(guard.lost_facts(base, update))
    kept = [change for change in changes if change.new or _may_go(change, sections, lost)]
    return Learned((*kept, *own))


def _may_go(removal: Operation, sections: set[str], lost: set[str]) -> bool:
    """Whether a line that the update lacks may be taken out."""
    if _PLACEHOLDER.fullmatch(removal.old):
        return removal.section in sections
    return bool(guard.fact_lines(removal.old)) and removal.old.strip() not in lost


def _is_about_facts(change: Operation) -> bool:
    """Whether a change adds or rewords a fact, or takes a line out. Headings stay as they are and
    are made where a fact needs one; order is the person's; a placeholder is nothing to learn."""
    if change.moves or _is_heading(change):
        return False
    return not change.new or bool(guard.fact_lines(change.new))


def _is_heading(change: Operation) -> bool:
    return bool(_HEADING.match(change.old) or _HEADING.match(change.new))
