"""Cues that a sentence is no plain statement about the subject of a fact: doubt, the past,
hearsay, jest, and other people. Pure.

A change of a known fact that rests on such a sentence waits for the person. In languages without
cues for people, only names tell other people apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal

from nanobot.memory.analysis import is_stop_word, stemmed
from nanobot.memory.figures import MONTHS
from nanobot.memory.languages import LANGUAGES, RUNS, Language

_THEY = (
    "he she his her er sein seine ihr ihre elle ils elles ella ele ela lui lei hij zij zijn haar"
    " он она его ее onun"
)
_PRONOUNS = frozenset(_THEY.split())
_HEARSAY = (
    "says said claims claimed thinks thought believes insists sagt sagte meint meinte behauptet dit"
    " pense dice dijo cree diz disse pensa zegt zei mowi говорит сказал diyor dedi"
)
_HEARSAY_WORDS = frozenset(_HEARSAY.split())
_WORD = r"[^\W\d_]+(?:['’-][^\W\d_]+)*"
_SHORT = 3
"""Letters up to which a cue is a whole word."""
_FREELY_CAPITAL = "german"
"""Its nouns are written like names."""


def is_doubtful(sentence: str, languages: Iterable[str]) -> bool:
    """Return True for a question, a supposition, a memory of the past, and hearsay."""
    asks = sentence.rstrip().endswith(("?", "？"))
    is_hearsay = not _HEARSAY_WORDS.isdisjoint(_words(sentence)[1:2])
    return asks or is_hearsay or has_cue(sentence, "doubt", tuple(languages))


def speaks_of_others(
    sentence: str, languages: Sequence[str], is_known: Callable[[str], bool]
) -> bool:
    """Whether a sentence, in the first of these languages, names people that are not known; a
    pronoun may be of one that is."""
    people = _people_in(sentence, languages)
    if any(map(is_known, people)):
        return not all(map(is_known, people))
    return bool(people) or not _PRONOUNS.isdisjoint(_words(sentence))


def _people_in(sentence: str, languages: Sequence[str]) -> list[str]:
    words = _words(sentence)
    first, *rest = re.findall(_WORD, sentence) or [""]
    names = [] if _FREELY_CAPITAL in languages else rest
    own = {word for one in _known(languages[:1]) for word in one.own.split()}
    if own and not own & {*words} and first != "New":
        names = [first, *names]  # else it is the verb, or what the person does something with
    people = [stemmed(name, "") for name in names if _may_name(name, languages)]
    return _roles_in(sentence, languages) + people


def _roles_in(sentence: str, languages: Sequence[str]) -> list[str]:
    """The words for people, such as "sister"."""
    found = [word for word in _words(sentence) if has_cue(word, "people", tuple(languages))]
    if not sentence.isascii():
        found += [run for run in RUNS.people.split() if run in sentence]
    return found


def _may_name(word: str, languages: Collection[str]) -> bool:
    folded = stemmed(word, "")
    if len(word) < 2 or not word[0].isupper() or folded in MONTHS or folded.endswith("day"):
        return False
    return not any(is_stop_word(part, one) for part in folded.split("'") for one in languages)


def _known(languages: Iterable[str]) -> list[Language]:
    return [LANGUAGES[one] for one in dict.fromkeys(languages) if one in LANGUAGES]


def _words(text: str) -> list[str]:
    return [stemmed(word, "") for word in re.findall(r"[^\W\d_]+", text)]


def has_cue(
    text: str, kind: Literal["over", "now", "doubt", "jest", "people"], languages: tuple[str, ...]
) -> bool:
    """Whether `text` has a word of this kind in one of the languages."""
    whole, beginnings = _cues(kind, languages)
    exact = {f"={word.casefold()}" for word in re.findall(r"[^\W\d_]+", text) if word != "May"}
    plain = _words(text)
    if not whole.isdisjoint((*exact, *plain)) or any(w.startswith(beginnings) for w in plain):
        return True
    return not text.isascii() and any(run in text for run in getattr(RUNS, kind).split())


@lru_cache(maxsize=256)
def _cues(kind: str, languages: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Whole words, and beginnings of words."""
    every = [cue for one in _known(languages) for cue in getattr(one, kind).split()]
    beginnings = tuple(cue for cue in every if cue[0] != "=" and len(cue) > _SHORT)
    return frozenset(every), beginnings
