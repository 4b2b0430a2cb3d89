"""Limits for every write to a long-term file: no loss of many facts at once, no endless growth.
Pure.

A fact is a line that is no heading, blank, rule, placeholder in parentheses, or line of the
template. It is kept if it is unchanged, or if some new line has at least 60 % of its words, all of
its numbers and names, and the same polarity: facts are reworded and merged all the time. An old
line only keeps itself. Every other loss counts: retired, replaced, contradicted. Only the person
may remove as many as they like.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from itertools import islice

from nanobot.memory.importance import importance_mark, without_importance
from nanobot.memory.line_changes import split
from nanobot.memory.similarity import words_of
from nanobot.memory.version import Author
from nanobot.providers.port import estimate_tokens
from nanobot.text import pluralize, shorten

BY_PERSON: frozenset[Author] = frozenset({"you", "restore", "forget", "sync"})
"""Authors of changes that the person made or requested. These may remove any number of facts."""

SIZE_BUDGET, FACTS_BUDGET = 8_000, 64_000
"""Tokens of one long-term file, and of MEMORY.md, of which prompts show the most important
facts."""

_KEPT_WORDS = 0.6
_MOST_NEW = 500
"""New lines that may be rewordings. A person's file can be far larger than the budget."""
_BULLET = re.compile(r"^[-*+]\s+")
_MARK = re.compile(r"^(?:[-*+]|[0-9]{1,9}[.)])\s+")
_NO_FACT = re.compile(
    r"#{1,6}(\s.*)?|[-*_=\s]*|[-*+]?\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|<!--.*-->"
    r"|\*?This file (?:stores important|is automatically) .*"  # of HKUDS/nanobot's MEMORY.md
)


def fact_lines(text: str, template: str = "") -> list[str]:
    """Return the facts of `text`, without lines of the untouched `template`."""
    return list(_facts(text, template))


def states_facts(text: str, template: str = "") -> bool:
    return any(True for _ in _facts(text, template))


def _facts(text: str, template: str) -> Iterator[str]:
    given = {line.strip() for line in split(template)}
    stripped = (line.strip() for line in split(text))
    return (line for line in stripped if line not in given and not _NO_FACT.fullmatch(line))


def find_line(line: str, text: str, *, facts_only: bool = True) -> str:
    """Return the line of `text` that matches `line` except for list mark, indent, case and final
    period, or ""."""
    wanted = {normalize_line(line), normalize_line(f"- {line}")}  # a number may be a day
    lines = (raw.rstrip() for raw in text.split("\n"))
    same = (there for there in lines if there and normalize_line(there) in wanted)
    return next((there for there in same if not facts_only or fact_lines(there)), "")


def indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def without_list_mark(line: str) -> str:
    """Return the identity of a fact: no list mark, importance or blanks around it."""
    return _MARK.sub("", without_importance(line).strip())


def without_bullet(text: str) -> str:
    """Return a fact without bullet and importance. A number stays: it may be a day (`3. Mai`)."""
    return _BULLET.sub("", without_importance(text).strip())


def with_words(line: str, words: str) -> str:
    """Replace the words of a line, but keep its indent and mark. A number replaces its number."""
    match, words = _MARK.match(line.lstrip()), without_bullet(words)
    mark = match[0] if match else ""
    is_numbered = mark[:1].isdigit() and _MARK.match(words)
    return indent(line) + ("" if is_numbered else mark) + words


def find_lost_facts(before: str, after: str, template: str = "") -> list[str]:
    """Return the facts of `before` that `after` does not keep."""
    from nanobot.memory.statements import still_says  # not needed at the start

    old, new = fact_lines(before, template), fact_lines(after, template)
    kept, known = set(new), set(old)
    fresh = [line for line in dict.fromkeys(new) if line not in known][:_MOST_NEW]
    added = [(line, words_of(line)) for line in fresh]

    def is_reworded(line: str) -> bool:
        words = words_of(line)
        needed = math.ceil(_KEPT_WORDS * len(words))
        near = (other for other, has in added if len(words & has) >= needed)
        return any(still_says(other, line) for other in near)

    return [line for line in old if line not in kept and not is_reworded(line)]


def loss_limit(facts: int) -> int:
    """Return how many of so many facts may go without approval."""
    return max(3, facts // 5)


def refusal(before: str, after: str, template: str = "") -> str:
    """Return why the file may not change from `before` to `after`, or "". `template` is its text
    before anything was learned."""
    lost, facts = find_lost_facts(before, after, template), fact_lines(before, template)
    if before.strip() and not after.strip() and (lost or not facts):
        return "this would empty the file"
    return excess(lost, len(facts), "at once")


def excess(lost: Collection[str], facts: int, when: str) -> str:
    """Return why so many facts may not go, or ""."""
    allowed = loss_limit(facts)
    if len(lost) <= allowed:
        return ""
    examples = "; ".join(line[:80] for line in islice(lost, 3))
    return (
        f"this would remove {len(lost)} facts, but at most {allowed} may be removed {when} "
        f"(examples: {examples}). Keep them, or change fewer lines at a time"
    )


def oversize(before: str, after: str, budget: int = SIZE_BUDGET) -> str:
    """Return why `after` is too large, or "". A file may always shrink."""
    size = estimate_tokens(after)
    if size <= budget or size <= estimate_tokens(before):
        return ""
    return (
        f"the file would have about {size:,} tokens, but the limit is {budget:,}. Shorten or "
        "merge lines first"
    )


_MOST_NAMED, _LONGEST_NAMED = 3, 100
_NOTICE_LINES, _NOTICE_CHARACTERS = 8, 160
_SINGLE = str.maketrans('"', "'")


def compare_facts(before: str, after: str) -> dict[str, list[str]]:
    """Return the added and removed facts, and those with another importance, ignoring list
    marks."""
    old, new = (
        {without_list_mark(line): importance_mark(line) for line in fact_lines(text)}
        for text in (before, after)
    )
    return {
        "added": [fact for fact in new if fact not in old],
        "removed": [fact for fact in old if fact not in new],
        "rated": [fact for fact, mark in new.items() if old.get(fact, mark) != mark],
    }


def summary_of_change(name: str, before: str, after: str) -> str:
    """Return `added: Tom's birthday is on 3 May and 2 more lines`, or `edited NAME` if no fact and
    no importance changed."""
    changes = compare_facts(before, after)
    kind = next((kind for kind, facts in changes.items() if facts), "")
    if not kind:
        return f"edited {name}"
    named = [fact for fact in changes[kind] if len(fact) <= _LONGEST_NAMED][:_MOST_NAMED]
    if more := len(changes[kind]) - len(named):
        rest = pluralize(more, "more line" if named else "line")
        return f"{kind}: {'; '.join(named)} and {rest}" if named else f"{kind}: {rest}"
    return f"{kind}: {'; '.join(named)}"


def memory_notice(before: str, after: str) -> str:
    """Return `[memory changed: added "…"; removed "…"]` in one line, or "". Long changes are cut,
    with a pointer to the file."""
    came, went, _ = compare_facts(before, after).values()
    changes = [*(("added", fact) for fact in came), *(("removed", fact) for fact in went)]
    if not changes:
        return ""
    shown = [
        f'{verb} "{shorten(line.translate(_SINGLE), _NOTICE_CHARACTERS)}"'
        for verb, line in changes[:_NOTICE_LINES]
    ]
    if more := len(changes) - len(shown):
        shown.append(f"and {more} more, see memory/MEMORY.md")
    return f"[memory changed: {'; '.join(shown)}]"


def normalize_line(line: str) -> str:
    words = " ".join(without_list_mark(line).split()).casefold()
    return words.rstrip(".。") or words
