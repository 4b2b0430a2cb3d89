"""What a write to a long-term file may not do: forget many facts at once, or grow endlessly. Pure.

A fact is a line that is no heading, blank, rule, placeholder in parentheses, or line of the
template. It is kept if it stands unchanged, or if some line that is new holds at least 60 % of its
words: facts are reworded and merged all the time. A line that stood there before speaks only for
itself.
"""

from __future__ import annotations

import re

from nanobot.tokens import estimate_tokens

SIZE_BUDGET = 8_000
"""Tokens of one long-term file."""

_KEPT_WORDS = 0.6
_NO_FACT = re.compile(r"#{1,6}(\s.*)?|[-*_=\s]*|[-*+]?\s*\(.*\)|<!--.*-->")
# A word, or one character of a script that is written without spaces.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")


def fact_lines(text: str, template: str = "") -> list[str]:
    """The facts that `text` states, without those of the untouched `template`."""
    given = {line.strip() for line in template.splitlines()}
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line not in given and not _NO_FACT.fullmatch(line)]


def lost_facts(before: str, after: str, template: str = "") -> list[str]:
    """The facts of `before` that `after` does not keep."""
    old, new = fact_lines(before, template), fact_lines(after, template)
    standing = set(new)
    reworded = [_words(line) for line in dict.fromkeys(new) if line not in set(old)]
    return [line for line in old if line not in standing and not _kept(_words(line), reworded)]


def refusal(before: str, after: str, template: str = "") -> str:
    """Why replacing `before` by `after` is refused, as a sentence; empty where it is not.

    Both are whole files. `template` is what the file held before anything was learned.
    """
    if before.strip() and not after.strip():
        return "this would empty the file"
    lost = lost_facts(before, after, template)
    allowed = max(3, len(fact_lines(before, template)) // 5)
    if len(lost) > allowed:
        examples = "; ".join(line[:80] for line in lost[:3])
        return (
            f"this would drop {len(lost)} facts where at most {allowed} may go at once "
            f"(among them: {examples}); keep them, or change fewer lines at a time"
        )
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


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(line.casefold()))


def _kept(words: frozenset[str], candidates: list[frozenset[str]]) -> bool:
    needed = _KEPT_WORDS * len(words)
    return any(len(words & candidate) >= needed for candidate in candidates)
