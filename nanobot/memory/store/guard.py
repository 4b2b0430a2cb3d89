"""What a write to a long-term file may not do: forget many facts at once, or grow endlessly. Pure.

A fact is a line that is no heading, blank, rule, placeholder in parentheses, or line of the
template. It is kept if it stands unchanged, or if some line that is new holds at least 60 % of its
words: facts are reworded and merged all the time. A line that stood there before speaks only for
itself. A fact that moves to the retired ones, or that the person takes out, is not lost. Losses are
measured against the text of a week ago as well, so that many small ones count like a large one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from hashlib import sha256

from nanobot.memory.text.lines import split
from nanobot.memory.text.wording import late
from nanobot.memory.versions.version import Author
from nanobot.providers.tokens import estimate_tokens

BY_PERSON: frozenset[Author] = frozenset({"you", "restore", "forget", "sync"})
"""Authors of changes that the person made or asked for: these may drop what they like."""

SIZE_BUDGET = 8_000
"""Tokens of one long-term file."""

_KEPT_WORDS = 0.6
_MARK = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])\s+")
_NO_FACT = re.compile(r"#{1,6}(\s.*)?|[-*_=\s]*|[-*+]?\s*\(.*\)|<!--.*-->")
# A word, or one character of a script that is written without spaces.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = late(rf"[{_CJK}]|[^\W{_CJK}]+")
_HKUDS = {75: "60a823970a669a27", 96: "38c02839fee6d5c4"}
"""By length, the beginnings of the SHA-256 of what it says about itself, at its top and its end."""
_NONE: frozenset[int] = frozenset()


def fact_lines(text: str, template: str = "") -> list[str]:
    """The facts that `text` states, without those of the untouched `template`."""
    given = {line.strip() for line in split(template)}
    stripped = (line.strip() for line in split(text))
    return [
        line
        for line in stripped
        if line not in given and not _NO_FACT.fullmatch(line) and not _is_of_hkuds(line)
    ]


def standing(line: str, text: str) -> str:
    """The fact of the file `text` that is `line`, whatever its bullet, indent and case: as it
    stands there, without blanks at its end; empty if none is."""
    wanted = _said(line)
    lines = (raw.rstrip() for raw in text.split("\n"))
    return next((there for there in lines if _said(there) == wanted and fact_lines(there)), "")


def indent(line: str) -> str:
    """The blanks in front of a line."""
    return line[: len(line) - len(line.lstrip())]


def lost_facts(before: str, after: str, template: str = "") -> list[str]:
    """The facts of `before` that `after` does not keep."""
    old, new = fact_lines(before, template), fact_lines(after, template)
    standing, known = set(new), set(old)
    reworded = _Rewordings(line for line in dict.fromkeys(new) if line not in known)
    return [line for line in old if line not in standing and not reworded.keep(line)]


def bare(line: str) -> str:
    """What makes a line the same fact: no list mark, no blanks around it."""
    return _MARK.sub("", line.strip())


def refusal(
    before: str,
    after: str,
    template: str = "",
    *,
    baseline: Callable[[], str | None] | None = None,
    excused: Iterable[str] = (),
) -> str:
    """Why replacing `before` by `after` is refused, as a sentence; empty where it is not.

    All texts are whole files. `template` is what the file held before anything was learned,
    `baseline` gives what it held a while ago (None: not known), so that many small losses count as
    one; it is only asked where something is lost. The lines in `excused` may go.
    """
    named = {bare(line) for line in excused}
    lost = [line for line in lost_facts(before, after, template) if bare(line) not in named]
    if before.strip() and not after.strip() and (lost or not fact_lines(before, template)):
        return "this would empty the file"
    allowed = _allowed(before, template)
    if len(lost) > allowed:
        return _too_many("at once", lost, allowed)
    earlier = baseline() if lost and baseline is not None else None
    if earlier is not None:
        gone = [line for line in lost_facts(earlier, after, template) if bare(line) not in named]
        if len(gone) > (allowed := _allowed(earlier, template)):
            return _too_many("within a week", gone, allowed)
    return oversize(before, after)


def oversize(before: str, after: str) -> str:
    """Why `after` is too large, as a sentence; empty where it is not, or shrinks the file."""
    size = estimate_tokens(after)
    if size <= SIZE_BUDGET or size <= estimate_tokens(before):
        return ""
    return (
        f"the file would have about {size:,} tokens and may have {SIZE_BUDGET:,}; "
        "shorten or merge lines first"
    )


def _is_of_hkuds(line: str) -> bool:
    """Whether a line stands in the MEMORY.md that HKUDS/nanobot begins with. All its other lines
    are headings and placeholders."""
    known = _HKUDS.get(len(line))
    return known is not None and sha256(line.encode("utf-8", "replace")).hexdigest()[:16] == known


def _said(line: str) -> str:
    return " ".join(bare(line).split()).casefold()


def _allowed(text: str, template: str) -> int:
    return max(3, len(fact_lines(text, template)) // 5)


def _too_many(when: str, lost: list[str], allowed: int) -> str:
    examples = "; ".join(line[:80] for line in lost[:3])
    return (
        f"this would drop {len(lost)} facts where at most {allowed} may go {when} "
        f"(among them: {examples}); keep them, or change fewer lines at a time"
    )


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD().findall(line.casefold()))


class _Rewordings:
    """The new lines, found by their words: a person's file may be far larger than the budget."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._holders: dict[str, set[int]] = {}
        for number, line in enumerate(lines):
            for word in _words(line):
                self._holders.setdefault(word, set()).add(number)

    def keep(self, line: str) -> bool:
        """Whether one of them has enough of the line's words."""
        words = _words(line)
        needed = math.ceil(_KEPT_WORDS * len(words))
        if not needed:
            return bool(self._holders)
        # Which has enough of all words has one of any that are more than may be missing.
        rarest = sorted((self._holders.get(word, _NONE) for word in words), key=len)
        likely = set().union(*rarest[: len(words) - needed + 1])
        return any(sum(number in held for held in rarest) >= needed for number in likely)
