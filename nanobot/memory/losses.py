"""Facts that leave memory: how many may without approval, and the file that keeps them.

Every way for a fact to go counts, and small losses add up: within a week, over all versions of a
file. A fact that was reworded several times counts once. `retired.md` keeps the facts that are no
longer true, each with the day on which it went.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import date, timedelta
from itertools import takewhile

from msgspec import Struct

from nanobot.memory import guard
from nanobot.memory.gitstore import GitStore
from nanobot.memory.line_changes import Operation, apply_operations, operations_between, split

_WEEK, _DAY = timedelta(days=7), timedelta(days=1)
"""Facts that went within a week count together. Facts of a day are reported together."""
_UNREPORTED = 3
"""Facts that may go within a day without a message to the person."""


class Loss(Struct, frozen=True):
    """Facts that left a document by version `number`, not by the person. `within_a_day` of them
    went since yesterday."""

    path: str
    facts: tuple[str, ...]
    number: int
    within_a_day: int


NotifyLoss = Callable[[str, Loss], Awaitable[None]]
"""Notifies the person of a scope of facts that left its memory. Must not raise."""


class FactLosses:
    """Facts that left the files of the scope with these `versions`. `template_of` returns the text
    of a file before anything was learned. Blocks."""

    def __init__(self, versions: GitStore, template_of: Callable[[str], str]) -> None:
        self._versions, self._template_of = versions, template_of

    def within_bounds(
        self, path: str, text: str, operations: Sequence[Operation]
    ) -> tuple[list[Operation], tuple[Operation, ...]]:
        """Return the operations that stay within the limit of lost facts, in order, and the
        others."""
        template, steps = self._template_of(path), list(operations)
        known: tuple[set[str], dict[str, str]] | None = None
        while lost := guard.find_lost_facts(text, apply_operations(text, steps).text, template):
            gone, first = known = known or self._find_gone_since(path, text, _WEEK)
            room = guard.loss_limit(len(guard.fact_lines(text, template)) + len(gone)) - len(gone)
            # The replacement of a counted fact does not count again.
            lines = {guard.without_list_mark(one) for one in lost if first.get(one, "") not in gone}
            going = [one for one in steps if guard.without_list_mark(one.old) in lines]
            if not (beyond := going[max(0, room) :]):
                break
            # A dropped line no longer preserves other facts, so count again.
            steps = [one for one in steps if one not in beyond]
        return steps, tuple(one for one in operations if one not in steps)

    def refusal(self, path: str, old: str, new: str) -> str:
        """Return why too many facts would go, at once or within a week, or ""."""
        template = self._template_of(path)
        reason = guard.refusal(old, new, template)
        lost = guard.find_lost_facts(old, new, template)
        if reason or not lost:
            return reason
        gone, first = self._find_gone_since(path, old, _WEEK)
        facts = len(guard.fact_lines(old, template)) + len(gone)
        going = gone | {first.get(line, line) for line in lost}
        return guard.excess(going, facts, "within a week")

    def loss(self, path: str, old: str, new: str, number: int) -> Loss | None:
        """Return the facts that the version `number` removed if the person has to be notified, else
        None."""
        lost = guard.find_lost_facts(old, new, self._template_of(path))
        within = len(self._find_gone_since(path, new, _DAY)[0]) if lost else 0
        return Loss(path, tuple(lost), number, within) if within > _UNREPORTED else None

    def _find_gone_since(
        self, path: str, text: str, age: timedelta
    ) -> tuple[set[str], dict[str, str]]:
        """Return the facts that left a document within that time and are not in `text`, except
        facts that the person removed, and the first fact behind each line."""
        since, path = self._versions.clock.now() - age, self._versions.prefix + path
        with self._versions.acquire():
            self._versions.record_hand_edits()
            lineage = self._versions.lineage(path)
            recent = list(takewhile(lambda one: one.version.when > since, lineage))
        gone, by_person, first = set[str](), set[str](), dict[str, str]()
        for snapshot in reversed(recent):
            lost = guard.find_lost_facts(snapshot.before, snapshot.after)
            if snapshot.version.author in guard.BY_PERSON:
                by_person.update(lost)
            else:
                gone.update(first.get(line, line) for line in lost)
            for step in operations_between(snapshot.before, snapshot.after) if lost else ():
                if step.rewords:
                    old, new = step.old.strip(), step.new.strip()
                    first[new] = first.get(old, old)
        if recent:  # many small rewordings may add up to another fact
            gone.update(guard.find_lost_facts(recent[-1].before, text))
        standing = {line.strip() for line in split(text)}
        return gone - by_person - standing, first


def lines_to_retire(before: str, after: str, retired: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of `before` that are missing in `after` and listed in `retired`."""
    named = {guard.without_list_mark(line) for line in retired}
    remaining = {line.strip() for line in split(after)}
    lines = dict.fromkeys(line.strip() for line in split(before))
    return tuple(
        one for one in lines if one not in remaining and guard.without_list_mark(one) in named
    )


def with_retired(text: str, today: date, lines: Iterable[str]) -> str:
    """Append the facts on `lines` to `text`, each once a day."""
    present = set(split(text))
    marked = dict.fromkeys(
        f"- {today.isoformat()}: {guard.without_list_mark(line)}" for line in lines
    )
    new = [line for line in marked if line not in present]
    begun = text.rstrip("\n") if text.strip() else "# Retired facts\n"
    return "\n".join([begun, *new, ""]) if new else text


_RETIRED = r"- (\d{4}-\d\d-\d\d): (.*)"


def read_retired(text: str, facts: Iterable[str] = ()) -> list[tuple[date, str]]:
    """Return the retired facts and the days of their retirement, in the order of the file, except
    facts that a file of `facts` states again."""
    found = []
    for line in split(text):
        if match := re.fullmatch(_RETIRED, line.strip()):
            try:
                found.append((date.fromisoformat(match[1]), match[2]))
            except ValueError:
                continue  # an impossible date, typed by hand
    again = {guard.without_list_mark(line) for one in facts for line in guard.fact_lines(one)}
    return [(day, line) for day, line in found if line not in again]
