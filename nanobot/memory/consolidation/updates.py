"""What a model's new version of the long-term memory means: which lines it may change. Pure.

The model returns the whole file, against the version that it was shown; what counts is the lines
that differ, so that changes which others made meanwhile survive. Consolidation learns and rewords.
It forgets nothing: a line that the model merely left out stays (models leave lines out by
carelessness far more often than by intent; retiring is Dream's task and forgetting the person's),
and is taken out only where another line of the update says it. What rests on foreign content alone
is held back for the person to confirm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from nanobot.memory.grounds.grounds import Grounds
from nanobot.memory.store import guard
from nanobot.memory.text.lines import Operation, operations_between

_HEADING = re.compile(r"\s*#{1,6}\s")
_PLACEHOLDER = re.compile(r"\s*\([^()]*\)\s*")


@dataclass(frozen=True, slots=True)
class Learned:
    """The changes to make, and those that wait for the person."""

    operations: tuple[Operation, ...] = ()
    held: tuple[Operation, ...] = ()


def learned(base: str, update: str | None, grounds: Grounds) -> Learned:
    """What `update` changes in `base`, the file as the model knew it."""
    if update is None:
        return Learned()
    every = operations_between(base, update)
    standing = {change.new: change.old for change in every if change.old and _is_heading(change)}
    changes = [
        replace(change, section=standing.get(change.section, change.section))
        for change in every
        if _is_about_facts(change)
    ]
    held = tuple(change for change in changes if not _is_founded(change, grounds))
    sections = {change.section for change in changes if change.new and change not in held}
    lost = set(guard.lost_facts(base, update))
    kept = list[Operation]()
    for change in changes:
        goes = bool(change.new) or _may_go(change, sections, lost, bool(held))
        if goes and change not in held:
            kept.append(_under_known_heading(change, base, grounds))
    return Learned(tuple(kept), held)


def _is_founded(change: Operation, grounds: Grounds) -> bool:
    """Whether the person's own words carry what a change adds."""
    if not change.new:
        return True
    if change.old:
        return grounds.supports_change(change.old, change.new)
    return grounds.supports(change.new)


def _may_go(removal: Operation, sections: set[str], lost: set[str], anything_held: bool) -> bool:
    """Whether a line that the update lacks may be taken out."""
    if _PLACEHOLDER.fullmatch(removal.old):
        return removal.section in sections
    return (
        not anything_held
        and bool(guard.fact_lines(removal.old))
        and removal.old.strip() not in lost
    )


def _under_known_heading(change: Operation, base: str, grounds: Grounds) -> Operation:
    """`change`, without a heading that foreign content alone made up."""
    if not change.section or change.section in {line.strip() for line in base.splitlines()}:
        return change
    if not grounds.is_tainted or grounds.supports(change.section.lstrip("# ")):
        return change
    return replace(change, section="")


def _is_about_facts(change: Operation) -> bool:
    """Whether a change adds or rewords a fact, or takes a line out. Headings stay as they are and
    are made where a fact needs one; order is the person's; a placeholder is nothing to learn."""
    if change.moves or _is_heading(change):
        return False
    return not change.new or bool(guard.fact_lines(change.new))


def _is_heading(change: Operation) -> bool:
    return bool(_HEADING.match(change.old) or _HEADING.match(change.new))
