"""What a fact is made of, so that it is known again in other words. Pure.

A fact is its content words and, among them, the keys: names, numbers, codes, without which it would
be another fact ("my sister Ann lives in Oslo" and "my sister Eve lives in Oslo" share all but one).
A text states a fact when it holds every key and most of the words; a fact without keys needs nearly
all of its words. Long texts are judged by their sentences, two at a time, because a fact is often
told in two, and everything is told somewhere in a long text.

Here is also the mark of a note that foreign content may have caused, `(from tool:web_fetch,
unconfirmed)`: such a note is read as foreign text, in a prompt and in a search.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from nanobot.memory.text.lines import split


def late(pattern: str, flags: int = 0) -> Callable[[], re.Pattern[str]]:
    """What gives the compiled pattern, always the same one. Raises `re.error` at the first use."""

    def compiled() -> re.Pattern[str]:
        return re.compile(pattern, flags)

    return cache(compiled)


_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = late(rf"[{_CJK}]|[^\W{_CJK}_]+(?:[.'’-][^\W{_CJK}_]+)*")
_SENTENCE_END = late(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_STAMP = re.compile(r"\s*\[\d{4}-\d{2}-\d{2} \d{2}:\d{2}\]\s*")
_DATE = re.compile(r"(19|20)\d\d([-./]\d{1,2}){0,2}|\d{1,2}|\d{1,2}[.:]\d{2}")

_STOP_WORDS = """
a about after all also am an and any are as at be because been before but by can could did do does
for from had has have he her his i if in into is it its just me my no not now of on or our says she
so some said than that the their them then there they this to told up us user users want wants was
we were what when where which who will with would you your
"""
_DAYS_AND_MONTHS = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july
august september october november december
"""
_STOP = frozenset(_STOP_WORDS.split())
_CALENDAR = frozenset(_DAYS_AND_MONTHS.split())
_SHORT_TEXT = 40
"""Up to this many words a text is judged as a whole."""


@dataclass(frozen=True, slots=True)
class Fact:
    """`words` in their base form; `keys` are those of them that may not be missing."""

    words: frozenset[str]
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, line: str) -> Fact:
        """What a line of a memory file states."""
        keys = set[str]()
        for sentence in sentences(line):
            spoken = _WORD().findall(_without_mark(sentence))
            keys |= {stem(word) for at, word in enumerate(spoken) if _is_key(word, first=at == 0)}
        found = words(line)
        return cls(found, frozenset(keys) & found)

    @classmethod
    def literal(cls, text: str) -> Fact:
        """What a person typed: each of its words counts."""
        found = words(text)
        return cls(found, found)

    def stated_by(self, text: str) -> bool:
        """Whether some part of `text` states it."""
        if not self._may_be_in(text.casefold()):
            return False
        return any(covers(self.words, self.keys, words(part)) for part in parts(text))

    def _may_be_in(self, folded: str) -> bool:
        """Rules most texts out cheaply: a word's base form differs from it at the end only."""
        if not folded.isascii():
            return True
        found = (word[:-1] in folded for word in self.keys or self.words)
        return all(found) if self.keys else any(found)


def covers(fact: Collection[str], keys: Collection[str], said: Collection[str]) -> bool:
    """Whether `said` holds all `keys` and enough of the words of a fact; never for no words."""
    if not fact or not all(key in said for key in keys):
        return False
    shared = sum(word in said for word in fact)
    return shared >= (0.6 if keys else 0.75) * len(fact)


def words(text: str) -> frozenset[str]:
    """The content words of `text` in their base form, single characters for CJK."""
    plain = unicodedata.normalize("NFKC", text)
    return frozenset(stem(word) for word in _WORD().findall(plain) if word.casefold() not in _STOP)


def stem(word: str) -> str:
    """A word without case, possessive and plural ending; crude, but always the same."""
    base = word.casefold().replace("’", "'").removesuffix("'s")
    if len(base) > 4 and base.endswith("ies"):
        return f"{base[:-3]}y"
    if len(base) > 3 and base.endswith("s") and not base.endswith("ss"):
        return base[:-1]
    return base


def similar(one: str, other: str) -> bool:
    """Whether two base forms may be the same word in other forms (allergy, allergic)."""
    if one == other:
        return True
    common = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        common += 1
    return common >= max(4, 0.6 * max(len(one), len(other)))


def share(wanted: Collection[str], text: str) -> float:
    """Which part of the words `wanted` occurs in `text`, in this form or a similar one; 0 to 1."""
    said = words(text)
    hits = sum(word in said or any(similar(word, one) for one in said) for word in wanted)
    return hits / len(wanted) if wanted else 0.0


def sentences(text: str) -> list[str]:
    """The sentences of a text; a line break ends one."""
    return [part for part in _SENTENCE_END().split(text) if part.strip()]


def parts(text: str) -> Iterator[str]:
    """What of a text may state one fact: a short text as a whole, else neighbouring sentences."""
    if len(_WORD().findall(text[: 16 * _SHORT_TEXT])) <= _SHORT_TEXT and len(text) < 1000:
        yield text
        return
    found = sentences(text)
    for at, sentence in enumerate(found):
        yield sentence
        if at + 1 < len(found):
            yield f"{sentence} {found[at + 1]}"


def without(text: str, facts: Iterable[Fact]) -> str:
    """`text` without the sentences that state one of the facts; the time in front stays.

    Empty where nothing else is left.
    """
    stamp = match[0] if (match := _STAMP.match(text)) else ""
    left = sentences(text[len(stamp) :])
    for fact in facts:
        left = _unsaid(left, fact)
    if len(left) == len(sentences(text[len(stamp) :])):
        return text
    return stamp + " ".join(sentence.strip() for sentence in left) if left else ""


def _unsaid(told: list[str], fact: Fact) -> list[str]:
    left = [one for one in told if not covers(fact.words, fact.keys, words(one))]
    gone = {
        at + step
        for at in range(len(left) - 1)
        if covers(fact.words, fact.keys, words(f"{left[at]} {left[at + 1]}"))
        for step in (0, 1)
    }
    return [one for at, one in enumerate(left) if at not in gone]


def _without_mark(line: str) -> str:
    return line.lstrip("-*+#> \t")


def _is_key(word: str, *, first: bool) -> bool:
    folded = word.casefold()
    if folded in _STOP or folded in _CALENDAR or _DATE.fullmatch(word):
        return False
    if any(letter.isdigit() for letter in word):
        return True
    return not first and word[0].isupper()


NOTE = "note"
"""The origin of what stands in such a note; its mark may say more, but that is for people."""

_MARKED = re.compile(r"- \d\d:\d\d \(from [^\n]{1,300}, unconfirmed\) ")
_TOLD = re.compile(r"\d\d:\d\d \(from ")
_LONGEST = 280


def mark_of(origins: Iterable[str]) -> str:
    """What such a note begins with; empty where there are no origins."""
    named = ", ".join(" ".join(origin.split()) for origin in dict.fromkeys(origins))
    return f"(from {named[:_LONGEST]}, unconfirmed) " if named else ""


def is_unconfirmed(line: str) -> bool:
    """Whether a line of notes carries the mark."""
    return _MARKED.match(line) is not None


def says_unconfirmed(notice: str) -> bool:
    """Whether the news of memory in a prompt tell of such a note; they may be cut in the mark."""
    return _TOLD.search(notice) is not None


def unconfirmed_in(notes: str) -> str:
    """Those of a day's notes that carry the mark, with what is indented under them."""
    found = []
    marked = False
    for line in split(notes):
        if line.strip() and not line.startswith(" "):
            marked = is_unconfirmed(line)
        if marked:
            found.append(line)
    return "\n".join(found)
