"""Cues that a sentence is no plain statement about the subject of a fact: doubt, the past,
hearsay, jest, and other people. Pure.

A change of a known fact that rests on such a sentence waits for the person. Cues are compared
without case and accents and match the beginning of a word. One that starts with `=` matches a whole
word with its accents. In other languages than these, only names tell other people apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

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
_FREELY_CAPITAL = "german"
"""Its nouns are written like names."""


def is_doubtful(sentence: str, languages: Iterable[str]) -> bool:
    """Return True for a question, a supposition, a memory of the past, and hearsay."""
    cues, words = _known(languages), _words(sentence)
    if sentence.rstrip().endswith(("?", "？")) or _HEARSAY_WORDS & {*words[1:2]}:
        return True
    return _has(sentence, (one.doubt for one in cues), RUNS.doubt)


def is_jest(text: str, languages: Iterable[str]) -> bool:
    """Whether a message takes itself, or the one before it, back."""
    return _has(text, (one.jest for one in _known(languages)), RUNS.jest)


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
    cues, words = _known(languages), _words(sentence)
    found = [word for word in words if _has(word, (one.people for one in cues), "")]
    if not sentence.isascii():
        found += [run for run in RUNS.people.split() if run in sentence]
    first, *rest = re.findall(_WORD, sentence) or [""]
    names = [] if _FREELY_CAPITAL in languages else rest
    own = {word for one in _known(languages[:1]) for word in one.own.split()}
    if own and not own & {*words} and first != "New":
        names = [first, *names]  # else it is the verb, or what the person does something with
    return found + [stemmed(name, "") for name in names if _may_name(name, languages)]


def _may_name(word: str, languages: Collection[str]) -> bool:
    folded = stemmed(word, "")
    if len(word) < 2 or not word[0].isupper() or folded in MONTHS or folded.endswith("day"):
        return False
    return not any(is_stop_word(part, one) for part in folded.split("'") for one in languages)


def _known(languages: Iterable[str]) -> list[Language]:
    return [LANGUAGES[one] for one in dict.fromkeys(languages) if one in LANGUAGES]


def _words(text: str) -> list[str]:
    return [stemmed(word, "") for word in re.findall(r"[^\W\d_]+", text)]


def _has(text: str, cues: Iterable[str], runs: str) -> bool:
    every = " ".join(cues).split()
    whole = {f"={word.casefold()}" for word in re.findall(r"[^\W\d_]+", text) if word != "May"}
    beginnings = tuple(cue for cue in every if cue[0] != "=")
    if not whole.isdisjoint(every) or any(word.startswith(beginnings) for word in _words(text)):
        return True
    return not text.isascii() and any(run in text for run in runs.split())
